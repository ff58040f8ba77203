"""Peers on no-op cases, each with its recommended options: cases a second, end to end.

They do different amounts for a case: the bare loop writes a line and nothing else, pydantic-evals
keeps results in memory and writes nothing, Inspect writes its evaluation log.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson


def bare_loop(n: int) -> float:
    """Asyncio workers that each build a small record and write it as a JSON line: the floor."""

    async def main(stream: Any) -> None:
        numbers = iter(range(n))

        async def worker() -> None:
            for i in numbers:
                await asyncio.sleep(0)
                record = {"id": f"c{i}", "outcome": {"kind": "scored", "value": 0.5}, "ms": 0.1}
                stream.write(orjson.dumps(record) + b"\n")

        await asyncio.gather(*(worker() for _ in range(5)))

    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "x").open("ab", 0) as stream:
        started = time.perf_counter()
        asyncio.run(main(stream))
        return n / (time.perf_counter() - started)


def pydantic_evals(n: int) -> float:
    """A data set of no-op cases with one evaluator, eight at once; nothing is stored."""
    from pydantic_evals import Case, Dataset
    from pydantic_evals.evaluators import Evaluator, EvaluatorContext

    class Fine(Evaluator[str, str, Any]):
        """Always 0.5."""

        def evaluate(self, ctx: EvaluatorContext[str, str, Any]) -> float:
            return 0.5

    async def task(text: str) -> str:
        return text

    cases = [Case(name=f"c{i}", inputs=f"Where is parcel {i}?") for i in range(n)]
    dataset: Any = Dataset(name="noop", cases=cases, evaluators=[Fine()])
    started = time.perf_counter()
    dataset.evaluate_sync(task, max_concurrency=8, progress=False)
    return n / (time.perf_counter() - started)


def inspect_ai(n: int) -> float:
    """A task of no-op samples on its mock model with a constant scorer and its own log."""
    os.environ["INSPECT_DISPLAY"] = "none"
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import Score, Target, mean, scorer
    from inspect_ai.solver import Generate, TaskState, solver

    @solver
    def nothing() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            return state

        return solve

    @scorer(metrics=[mean()])
    def fine() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            return Score(value=0.5)

        return score

    samples = [Sample(id=f"c{i}", input=f"Where is parcel {i}?") for i in range(n)]
    task = Task(dataset=MemoryDataset(samples), solver=nothing(), scorer=fine())
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        logs = eval(
            task,
            model="mockllm/model",
            display="none",
            log_dir=folder,
            log_samples=True,
            log_realtime=False,
            max_samples=64,
            score_display=False,
        )
        seconds = time.perf_counter() - started
    if logs[0].status != "success":
        raise RuntimeError(f"inspect: {logs[0].status}: {logs[0].error}")
    return n / seconds


if __name__ == "__main__":
    for measure, n in ((bare_loop, 30_000), (pydantic_evals, 3000), (inspect_ai, 300)):
        print(f"{measure.__name__}: {measure(n):.0f} cases/s")
