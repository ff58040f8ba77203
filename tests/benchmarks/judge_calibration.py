"""Fit the likelihood judge's logistics on XQuAD and print how well each ratio separates.

Positive and negative answers to the same question: relevance, gold against another answer of the
same paragraph; groundedness, gold against an answer of another paragraph; completeness, the gold
span as topic against an answer with and without it. ``--write`` stores the fits beside the judge.
"""

import argparse
import json
import math
import os
import platform
import random
import sys
import time
from pathlib import Path

import numpy as np

from gno_dist.backends.llama import LlamaBackend, build
from gno_dist.backends.models import locate
from gno_dist.judges import likelihood

SEED = 20_261_130
MODEL = "embedded:gemma3-270m-q4"
ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "gno_dist" / "judges" / "calibration.json"


def cases(path: Path, n: int) -> list[dict[str, str]]:
    """``n`` seeded questions with gold, an answer of the same paragraph and of another one."""
    data = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [p for article in data for p in article["paragraphs"]]
    rng = random.Random(SEED)
    found = []
    for i, paragraph in enumerate(paragraphs):
        answers = [qa["answers"][0]["text"] for qa in paragraph["qas"]]
        for j, qa in enumerate(paragraph["qas"]):
            others = [a for a in answers if a != answers[j]]
            elsewhere = paragraphs[(i + 1 + rng.randrange(len(paragraphs) - 1)) % len(paragraphs)]
            foreign = elsewhere["qas"][0]["answers"][0]["text"]
            if others and foreign not in paragraph["context"]:
                found.append(
                    {
                        "context": paragraph["context"],
                        "question": qa["question"],
                        "gold": answers[j],
                        "same": rng.choice(others),
                        "foreign": foreign,
                    }
                )
    rng.shuffle(found)
    return found[:n]


def ratios(model: LlamaBackend, case: dict[str, str], answer: str) -> dict[str, float]:
    """Relevance, groundedness and completeness (topic: the gold span) of one answer."""
    items = likelihood.items(case["question"], [case["context"]], answer, [case["gold"]])
    values = model.handle("loglik", {"items": items}).value["logprobs"]
    found = likelihood.ratios(values)
    return {**found, "completeness": found["completeness"][0]}


def fit(positive: list[float], negative: list[float]) -> dict[str, float]:
    """Logistic by Newton's method with a ridge of 1e-3 on the slope (the classes may separate)."""
    x = np.array(positive + negative)
    y = np.array([1.0] * len(positive) + [0.0] * len(negative))
    scale = x.std()
    design = np.column_stack([np.ones_like(x), x / scale])
    weights = np.zeros(2)
    ridge = np.diag([0.0, 1e-3 * len(x)])
    for _ in range(100):
        p = 1.0 / (1.0 + np.exp(-design @ weights))
        gradient = design.T @ (y - p) - ridge @ weights
        hessian = (design * (p * (1 - p))[:, None]).T @ design + ridge
        step = np.linalg.solve(hessian, gradient)
        weights += step
        if abs(step).max() < 1e-10:
            break
    return {"intercept": round(float(weights[0]), 6), "slope": round(float(weights[1] / scale), 6)}


def auc(positive: list[float], negative: list[float]) -> float:
    """P(positive > negative) + P(equal) / 2."""
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    return wins / (len(positive) * len(negative))


def interval(positive: list[float], negative: list[float]) -> list[float]:
    """95 % percentile bootstrap of the AUC over questions, 1000 resamples."""
    rng = np.random.default_rng(SEED)
    pairs = np.array(list(zip(positive, negative, strict=True)))
    values = []
    for _ in range(1000):
        sample = pairs[rng.integers(0, len(pairs), len(pairs))]
        p, q = sample[:, 0], np.sort(sample[:, 1])
        below = np.searchsorted(q, p, "left") + np.searchsorted(q, p, "right")
        values.append(below.sum() / 2 / len(p) / len(q))
    return [round(float(v), 3) for v in np.quantile(values, [0.025, 0.975])]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    data = Path(os.environ.get("GNO_DIST_TEST_DATA", ROOT.parent / "shared" / "data"))
    path = data / "xquad" / "xquad.en.json"
    if not path.exists():
        print(f"no XQuAD at {path}; set GNO_DIST_TEST_DATA", file=sys.stderr)
        print(json.dumps({"name": "judge_calibration", "figures": {}, "bar": "", "holds": False}))
        return
    file = locate(MODEL)
    model = LlamaBackend(file.path, n_ctx=4096, threads=os.cpu_count() or 1)
    started = time.perf_counter()
    rows: dict[str, tuple[list[float], list[float]]] = {q: ([], []) for q in likelihood.QUALITIES}
    for case in cases(path, options.n):
        gold = ratios(model, case, case["gold"])
        same = ratios(model, case, case["same"])
        foreign = ratios(model, case, case["foreign"])
        for quality, negative in (
            ("relevance", same),
            ("groundedness", foreign),
            ("completeness", same),
        ):
            rows[quality][0].append(gold[quality])
            rows[quality][1].append(negative[quality])
    print(f"{platform.platform()}, {os.cpu_count()} cpus, {build()}")
    print(f"{options.n} questions, {time.perf_counter() - started:.0f} s")
    fits, figures = {}, {}
    for quality, (positive, negative) in rows.items():
        area, bounds = auc(positive, negative), interval(positive, negative)
        figures[f"{quality}_auc"] = round(area, 3)
        figures[f"{quality}_auc_interval"] = bounds
        fits[quality] = {**fit(positive, negative), "auc": round(area, 3), "questions": options.n}
        print(f"{quality}: AUC {area:.3f} {bounds}, {fits[quality]}")
    if options.write:
        stored = {
            "version": 1,
            "source": "XQuAD (English), tests/benchmarks/judge_calibration.py",
            "models": {file.sha256: fits},
        }
        STORE.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    holds = figures["relevance_auc"] >= 0.8 and not math.isnan(figures["relevance_auc"])
    bar = "relevance AUC (gold against another answer of the paragraph) at least .80"
    print(json.dumps({"name": "judge_calibration", "figures": figures, "bar": bar, "holds": holds}))


if __name__ == "__main__":
    main()
