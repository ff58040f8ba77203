"""What may be concluded, in plain sentences; pure.

Each suite's points are compared with its best one on the cases they share, on the suite's first
measure: a paired randomisation test, corrected by Holm over all pairs of points that differ. All
pairs, since the best one was found by looking at them all; points that are equal in every case are
one arm.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from gno_dist.plan import Plan, PlannedSuite
from gno_dist.reduce import MeasureTotals, Reducer
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
    values = {
        point: cell.measures.get(name, MeasureTotals()).case_means()
        for point in labels
        if (cell := reducer.cells.get((suite.loaded.name, point))) is not None
    }
    scored = {point: means for point, means in values.items() if means}
    entry: dict[str, Any] = {"suite": suite.loaded.name, "measure": name}
    if not scored:
        return {**entry, "sentences": ["No case was scored: nothing can be concluded."]}
    common = frozenset.intersection(*(frozenset(means) for means in scored.values()))
    if not common:
        return {**entry, "sentences": ["The points share no scored case: they cannot be compared."]}
    # The first point in plan order wins a tie.
    best = max(scored, key=lambda p: mean([scored[p][case] for case in sorted(common)]))
    comparisons = _compare(best, scored, sorted(common), labels)
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
    best: str,
    scored: Mapping[str, Mapping[str, float]],
    cases: Sequence[str],
    labels: Mapping[str, str],
) -> list[Comparison]:
    arms = {point: tuple(scored[point][case] for case in cases) for point in scored}
    distinct = list(dict.fromkeys([arms[best], *arms.values()]))  # the best arm stands first
    pairs = list(combinations(distinct, 2))
    results = {pair: paired_comparison(*pair, seed=SEED) for pair in pairs}
    adjusted = dict(zip(pairs, holm([results[pair].p_value for pair in pairs]), strict=True))
    equal = paired_comparison(arms[best], arms[best], seed=SEED)
    comparisons = []
    for point, arm in arms.items():
        if point == best:
            continue
        pair = (arms[best], arm)
        differences = [a - b for a, b in zip(*pair, strict=True)]
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
