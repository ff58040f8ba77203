"""Streaming aggregates of a cell: trials -> case -> cell, the same in whatever order they arrive.

A cell keeps one exact sum a case and measure, and the observed service times. Sums are exact, so
completion order cannot show in any digit.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from gno_dist.records import Failed, Scored, UnitRecord, Unscored, Usage
from gno_dist.stats import ExactSum


class Counts(NamedTuple):
    """How many trials gave a number, none, or broke."""

    scored: int = 0
    unscored: int = 0
    failed: int = 0

    @property
    def planned(self) -> int:
        """All of them."""
        return self.scored + self.unscored + self.failed

    def plus(self, *, scored: int = 0, unscored: int = 0, failed: int = 0) -> "Counts":
        """These counts with more added."""
        return Counts(self.scored + scored, self.unscored + unscored, self.failed + failed)


@dataclass
class MeasureTotals:
    """One measure in one cell."""

    counts: Counts = Counts()
    sums: dict[str, ExactSum] = field(default_factory=dict)
    """Case id -> sum over its scored trials."""
    trials: dict[str, int] = field(default_factory=dict)
    """Case id -> number of its scored trials."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why trials are unscored or failed -> how many."""

    def case_means(self) -> dict[str, float]:
        """Case id -> mean over its scored trials, in case id order."""
        return {case: self.sums[case].value() / self.trials[case] for case in sorted(self.sums)}


@dataclass
class CellTotals:
    """One point in one suite."""

    n_units: int = 0
    measures: dict[str, MeasureTotals] = field(default_factory=dict)
    service_ms: list[float] = field(default_factory=list)
    stage_ms: dict[str, ExactSum] = field(default_factory=dict)
    receipts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Stage -> state -> number of trials."""
    judge_usage: Usage = Usage()
    system_usage: Usage = Usage()
    calls: int = 0
    cached_calls: int = 0


class Reducer:
    """Totals of all cells; ``add`` may be called in any order, once a unit."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], CellTotals] = {}
        self.n_units = 0
        self.n_failed = 0
        self.usage = Usage()

    def add(self, record: UnitRecord) -> None:
        """Add one trial."""
        cell = self.cells.setdefault((record.suite, record.point), CellTotals())
        for name, outcome in record.outcomes.items():
            _add_outcome(cell.measures.setdefault(name, MeasureTotals()), record.case_id, outcome)
        for receipt in record.receipts:
            states = cell.receipts.setdefault(receipt.stage, {})
            states[receipt.state] = states.get(receipt.state, 0) + 1
        observed = record.observed
        cell.n_units += 1
        cell.service_ms.append(observed.service_ms)
        for stage, ms in observed.stage_ms.items():
            cell.stage_ms.setdefault(stage, ExactSum()).add(ms)
        cell.judge_usage += observed.judge_usage
        cell.system_usage += observed.system_usage
        cell.calls += observed.calls
        cell.cached_calls += observed.cached_calls
        self.n_units += 1
        self.n_failed += record.failed
        self.usage += observed.judge_usage + observed.system_usage


def _add_outcome(totals: MeasureTotals, case_id: str, outcome: Scored | Unscored | Failed) -> None:
    if isinstance(outcome, Scored):
        totals.counts = totals.counts.plus(scored=1)
        totals.sums.setdefault(case_id, ExactSum()).add(outcome.value)
        totals.trials[case_id] = totals.trials.get(case_id, 0) + 1
        return
    if isinstance(outcome, Unscored):
        totals.counts = totals.counts.plus(unscored=1)
        reason = f"unscored: {outcome.reason}"
    else:
        totals.counts = totals.counts.plus(failed=1)
        reason = f"failed: {outcome.error}: {outcome.message}"
    totals.reasons[reason] = totals.reasons.get(reason, 0) + 1
