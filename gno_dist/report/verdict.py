"""What may be concluded, in plain sentences; pure.

Each suite's points are compared with its best one on the cases they share, on the suite's first
measure: a paired randomisation test, corrected by Holm over all pairs of points that differ. All
pairs, since the best one was found by looking at them all; points that are equal in every case are
one arm.
"""

from array import array
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from gno_dist.plan import Plan, PlannedSuite
from gno_dist.reduce import Reducer
from gno_dist.scoring import parse_any
from gno_dist.stats import (
    PairedResult,
    holm,
    mean,
    minimum_detectable_effect,
    paired_comparison,
)

LEVEL = 0.95
LEAST_DIFFERING = 6
"""With fewer cases that differ the exact test cannot decide at the level: 2 / 2^5 > 0.05."""
SEED = 20_260_930
"""Seed of the Monte Carlo test (more than 20 cases); fixed, so that a report can be made again."""


class Comparison(NamedTuple):
    """The best point against another on common cases."""

    other: str
    result: PairedResult
    p_adjusted: float
    detectable: float | None
    """Least difference that this many cases could have shown."""

    @property
    def decided(self) -> bool:
        """Whether the difference is more than chance at the level, after correction."""
        return self.p_adjusted <= 1.0 - LEVEL


def verdict(plan: Plan, reducer: Reducer) -> list[dict[str, Any]]:
    """One entry a suite: measure, best point, comparisons and sentences."""
    return [_suite_verdict(suite, reducer) for suite in plan.suites]


def primary_measure(suite: PlannedSuite) -> str:
    """The measure or rubric that decides: the first that the suite names."""
    names = [*suite.loaded.suite.rubrics, *suite.loaded.suite.measures]
    return names[0] if suite.loaded.suite.rubrics else str(parse_any(names[0]))


def _suite_verdict(suite: PlannedSuite, reducer: Reducer) -> dict[str, Any]:
    name = primary_measure(suite)
    labels = {point.id: point.label for point in suite.points}
    scored = {
        point: totals.means()
        for point in labels
        if (cell := reducer.cells.get((suite.loaded.name, point))) is not None
        and (totals := cell.measures.get(name)) is not None
        and totals.scored
    }
    entry: dict[str, Any] = {"suite": suite.loaded.name, "measure": name}
    if not scored:
        return {**entry, "sentences": ["No case was scored: nothing can be concluded."]}
    common = reduce(np.intersect1d, (cases for cases, _ in scored.values()))
    if not len(common):
        return {**entry, "sentences": ["The points share no scored case: they cannot be compared."]}
    arms = {
        point: array("d", (means[np.isin(cases, common)] + 0.0).tobytes())
        for point, (cases, means) in scored.items()
    }
    # The first point in plan order wins a tie.
    best = max(arms, key=lambda point: mean(arms[point]))
    comparisons = _compare(best, arms, labels)
    return {
        **entry,
        "common_cases": len(common),
        "best": labels[best],
        "comparisons": [
            {
                "other": c.other,
                "difference": c.result.mean_difference,
                "interval": c.result.interval and c.result.interval._asdict(),
                "p": c.result.p_value,
                "p_holm": c.p_adjusted,
                "method": c.result.method,
                "wins": c.result.wins,
                "ties": c.result.ties,
                "losses": c.result.losses,
                "decided": c.decided,
                "detectable": c.detectable,
            }
            for c in comparisons
        ],
        "sentences": _sentences(labels[best], name, len(common), comparisons),
    }


def _compare(
    best: str, arms: Mapping[str, "array[float]"], labels: Mapping[str, str]
) -> list[Comparison]:
    """The best arm against each other one; ``arms``: point -> one value a common case."""
    keys = {point: arm.tobytes() for point, arm in arms.items()}
    distinct = {keys[point]: arms[point] for point in [best, *arms]}  # the best arm stands first
    pairs = list(combinations(distinct, 2))
    results = {(a, b): paired_comparison(distinct[a], distinct[b], seed=SEED) for a, b in pairs}
    adjusted = dict(zip(pairs, holm([results[pair].p_value for pair in pairs]), strict=True))
    equal = paired_comparison(arms[best], arms[best], seed=SEED)
    comparisons = []
    for point, arm in arms.items():
        if point == best:
            continue
        pair = (keys[best], keys[point])
        differences = [a - b for a, b in zip(arms[best], arm, strict=True)]
        comparisons.append(
            Comparison(
                labels[point],
                results.get(pair, equal),
                adjusted.get(pair, 1.0),
                minimum_detectable_effect(differences),
            )
        )
    return comparisons


def _sentences(best: str, name: str, n: int, comparisons: Sequence[Comparison]) -> list[str]:
    if not comparisons:
        return [f"One point only ({best}): there is nothing to compare."]
    same = [c for c in comparisons if c.result.method == "identical"]
    better = [c for c in comparisons if c.decided]
    undecided = [c for c in comparisons if not c.decided and c not in same]
    sentences = []
    if len(same) == len(comparisons):
        return [f"All points score the same on {name} in each of {n} common cases."]
    if better:
        named = ", ".join(
            f"{c.other} (by {c.result.mean_difference:.3f}, p {c.p_adjusted:.3f})" for c in better
        )
        sentences.append(f"On {name}, {best} is better than {named} on {n} common cases.")
    else:
        sentences.append(
            f"On {name}, {best} has the highest mean, but no difference to another point is more"
            f" than chance would give on {n} common cases."
        )
    if undecided:
        named = ", ".join(_undecided(c) for c in undecided)
        sentences.append(f"Undecided against {named}.")
    if same:
        sentences.append(f"Equal in every case: {', '.join(c.other for c in same)}.")
    return sentences


def _undecided(c: Comparison) -> str:
    shown = f"{c.other} (difference {c.result.mean_difference:.3f}, p {c.p_adjusted:.2f}"
    differing = c.result.wins + c.result.losses
    if differing < LEAST_DIFFERING:  # whatever their size: no sign pattern is rare enough
        return f"{shown}; {differing} of {c.result.n} cases differ, too few to tell)"
    if c.detectable is None:
        return shown + ")"
    return f"{shown}; {c.result.n} cases would mostly show a true difference of {c.detectable:.3f})"
