"""What the benchmarks share: no-op jobs on disk, running a plan, the machine, the last line."""

import asyncio
import platform
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import psutil

from gno_dist.backends.resolve import pools_of
from gno_dist.engine import Events, Execution, execute
from gno_dist.machine import this_machine
from gno_dist.plan import Plan
from gno_dist.pool import InlinePool, PoolFactory
from gno_dist.runner import RunLimits
from gno_dist.sweep import LoadedJob, load_job

SUITE = """
version: 1
name: noop
kind: rubric
cases: cases.jsonl
rubrics:
  fine: {type: score, instructions: "Is the output fine?", criteria: ["no", "yes"]}
"""


def write_job(folder: Path, n_cases: int, models: list[str], output: str = "At the depot.") -> Path:
    """A rubric sweep of distinct cases at one preset a fake model; returns the sweep's path."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cases.jsonl").open("wb") as stream:
        for i in range(n_cases):
            case = {"id": f"c{i}", "input": f"Where is parcel {i}?", "output": output}
            stream.write(orjson.dumps(case) + b"\n")
    (folder / "suite.yaml").write_text(SUITE, "utf-8")
    # Different contexts make different pools, so that presets share no reply.
    presets = "".join(
        f"  p{i}: {{judge: {{backend: fake, model: {model!r}, n_ctx: {256 + i}}}}}\n"
        for i, model in enumerate(models)
    )
    (folder / "presets.yaml").write_text(f"version: 1\npresets:\n{presets}", "utf-8")
    names = ", ".join(f"p{i}" for i in range(len(models)))
    sweep = f"version: 1\nname: noop\npresets_file: presets.yaml\npresets: [{names}]\n"
    path = folder / "sweep.yaml"
    path.write_text(f"{sweep}suites: [{{suite: suite.yaml}}]\n", "utf-8")
    return path


class Run(NamedTuple):
    """One run of a job."""

    units: int
    wall_s: float
    """From the plan to the written report."""
    warm_s: float
    """Without opening the backend: from the first warm worker to the written report."""
    summary: dict[str, Any]

    @property
    def rate(self) -> float:
        """Units a second, warm."""
        return self.units / self.warm_s


def load(path: Path) -> LoadedJob:
    """The job, loaded."""
    return load_job(path)


def run(
    job: LoadedJob,
    folder: Path,
    factory: PoolFactory = InlinePool,
    workers: int = 1,
    lanes: int = 5,
) -> Run:
    """Run a job end to end: plan, calls, journal, report, fingerprint. No reply cache on disk."""
    folder.mkdir(parents=True)
    opened: list[float] = []
    started = time.perf_counter()
    plan = Plan(job, pools_of)
    planned_s = time.perf_counter() - started
    execution = Execution(factory, this_machine(), None, RunLimits(lanes), workers={"llm": workers})
    events = Events(on_open=lambda spec, facts: opened.append(time.perf_counter()))
    summary = asyncio.run(execute(plan, folder, execution, events))
    ended = time.perf_counter()
    return Run(plan.n_units, ended - started, ended - opened[0] + planned_s, summary)


def machine() -> str:
    """One line about this machine."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{platform.machine()}, {this_machine().cores} cores, {memory:.0f} GiB,"
        f" Python {platform.python_version()}"
    )


def finish(name: str, figures: dict[str, Any], bar: str, *, holds: bool) -> None:
    """Print the last line and exit: 0 when the bar holds."""
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    line = {"name": name, "figures": rounded, "bar": bar, "holds": holds}
    print(orjson.dumps(line).decode("utf-8"))
    sys.exit(0 if holds else 1)
