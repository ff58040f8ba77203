"""The summary of a job: every number a report shows, as plain data; pure.

summary.json is this value. Means are over cases, whose trials are averaged first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gno_dist.plan import Plan, PlannedSuite, Point
from gno_dist.records import STAGES, Usage
from gno_dist.reduce import CellTotals, MeasureTotals, Reducer
from gno_dist.rubric import EPSILON, scale
from gno_dist.scoring import parse_any
from gno_dist.stats import mean, mean_interval, percentile, worst_case_bounds

SUMMARY_VERSION = 1


def summarise(
    plan: Plan, reducer: Reducer, *, fingerprint: str, run: Mapping[str, Any]
) -> dict[str, Any]:
    """The summary as plain data.

    Args:
        plan: the job's plan.
        reducer: totals of all records.
        fingerprint: of the records, 64 hex digits.
        run: observations of this invocation (times, calls, memory).
    """
    cells = [
        _cell(suite, point, reducer.cells.get((suite.loaded.name, point.id), CellTotals()))
        for suite in plan.suites
        for point in suite.points
    ]
    return {
        "version": SUMMARY_VERSION,
        "name": plan.name,
        "plan_digest": plan.digest,
        "complete": reducer.n_units == plan.n_units,
        "units": {
            "planned": plan.n_units,
            "done": reducer.n_units,
            "failed": reducer.n_failed,
        },
        "cells": cells,
        "gates": [gate for cell in cells for gate in cell.pop("gates")],
        "coverage": _coverage(cells),
        "usage": _usage(reducer.usage),
        "reproducible": not any(
            cell["receipts"].get(stage, {}).get("timed_out")
            for cell in cells
            for stage in cell["receipts"]
        ),
        "fingerprint": fingerprint,
        "run": dict(run),
    }


def _cell(suite: PlannedSuite, point: Point, totals: CellTotals) -> dict[str, Any]:
    names = [*suite.loaded.suite.rubrics, *map(str, map(parse_any, suite.loaded.suite.measures))]
    n_planned = len(point.cases) * suite.trials
    measures = {
        name: _measure(suite, name, totals.measures.get(name, MeasureTotals()), n_planned)
        for name in names
    }
    times = totals.service_ms
    return {
        "suite": suite.loaded.name,
        "kind": suite.loaded.suite.kind,
        "point": point.id,
        "label": point.label,
        "preset": point.spec.preset_name,
        "varied": point.spec.varied,
        "cases": len(point.cases),
        "trials": suite.trials,
        "units": totals.n_units,
        "measures": measures,
        "service_ms": {
            "p50": percentile(times, 50) if times else None,
            "p95": percentile(times, 95) if times else None,
            "composed": True,
        },
        "stage_ms": {
            stage: math.fsum(totals.stage_ms[stage]) / totals.n_units
            for stage in STAGES
            if stage in totals.stage_ms
        },
        "receipts": {stage: states for stage in STAGES if (states := totals.states(stage))},
        "calls": {"needed": totals.calls, "cached": totals.cached_calls},
        "usage": {"judge": _usage(totals.judge_usage), "system": _usage(totals.system_usage)},
        "gates": _gates(suite, point, measures, totals),
    }


def bounds_of(suite: PlannedSuite, name: str) -> tuple[float, float]:
    """The range of a measure's or rubric's values."""
    known = suite.loaded.suite.rubrics.get(name)
    return scale(known) if known is not None else (0.0, 1.0)


def _measure(
    suite: PlannedSuite, name: str, totals: MeasureTotals, n_planned: int
) -> dict[str, Any]:
    values = totals.means()[1].tolist()
    low, high = bounds_of(suite, name)
    interval = mean_interval(values, low=low, high=high) if values else None
    missing = n_planned - totals.scored
    bounds = worst_case_bounds(totals.values, missing, low, high) if missing else None
    return {
        "mean": mean(values) if values else None,
        "interval": interval and interval._asdict(),
        "scale": [low, high],
        "cases": len(values),
        "scored": totals.scored,
        "unscored": totals.unscored,
        "failed": totals.failed,
        "planned": n_planned,
        "worst_case": bounds and {"low": bounds[0], "high": bounds[1]},
        "canonical": name in suite.loaded.suite.rubrics or parse_any(name).canonical,
        "reasons": dict(sorted(totals.reasons.items(), key=lambda item: (-item[1], item[0]))),
    }


def _gates(
    suite: PlannedSuite, point: Point, measures: Mapping[str, Any], totals: CellTotals
) -> list[dict[str, Any]]:
    """The suite's thresholds applied to one cell.

    A threshold holds when the mean reaches it. With anything missing, the pessimistic end of the
    worst-case bounds must reach it: what was not measured cannot help to pass.
    """
    gates = []
    for key, threshold in suite.loaded.suite.thresholds.items():
        known = suite.loaded.suite.rubrics.get(key)
        name = key if known is not None else str(parse_any(key))
        measured = measures[name]
        worst = measured["worst_case"]
        reached = worst["low"] if worst else measured["mean"]
        gates.append(
            {
                "suite": suite.loaded.name,
                "label": point.label,
                "measure": name,
                "threshold": threshold,
                "reached": reached,
                "holds": reached is not None and reached >= threshold - EPSILON,
            }
        )
    return gates


def _coverage(cells: Sequence[Mapping[str, Any]]) -> float:
    """Scored trials over planned trials, over all measures of all cells."""
    planned = sum(m["planned"] for cell in cells for m in cell["measures"].values())
    scored = sum(m["scored"] for cell in cells for m in cell["measures"].values())
    return scored / planned if planned else 0.0


def _usage(usage: Usage) -> dict[str, Any]:
    return asdict(usage)


def exit_code(summary: Mapping[str, Any], min_coverage: float = 1.0) -> int:
    """0: all measured and every gate holds; 1: a gate fails; 3: something was not measured."""
    if summary["coverage"] < min_coverage - EPSILON or not summary["complete"]:
        return 3
    if any(measure["failed"] for cell in summary["cells"] for measure in cell["measures"].values()):
        return 3
    return 0 if all(gate["holds"] for gate in summary["gates"]) else 1
