"""Streaming aggregates of a cell: trials -> case -> cell, the same in whatever order they arrive.

A cell keeps twelve bytes a scored trial and measure and eight a trial and stage; records
are not kept. Means are exact sums over sorted cases, so that the order in which trials complete
shows in no digit.
"""

import math
from array import array
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from gno_dist.records import Failed, Outcome, Scored, UnitRecord, Unscored, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class CaseNumbers:
    """Case ids by number, in order of first use; shared by all cells of a reducer."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []

    def of(self, case_id: str) -> int:
        """The number of a case."""
        number = self._numbers.setdefault(case_id, len(self.names))
        if number == len(self.names):
            self.names.append(case_id)
        return number


@dataclass
class MeasureTotals:
    """One measure in one cell: how many trials gave a number, none, or broke, and the numbers."""

    numbers: CaseNumbers = field(default_factory=CaseNumbers)
    unscored: int = 0
    failed: int = 0
    values: "array[float]" = field(default_factory=lambda: array("d"))
    """One a scored trial."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why trials are unscored or failed -> how many."""
    _cases: "array[int]" = field(default_factory=lambda: array("I"))
    """Parallel to ``values``: numbers of their cases."""

    @property
    def scored(self) -> int:
        """Trials that gave a number."""
        return len(self.values)

    def add(self, case: int, outcome: Outcome) -> None:
        """Add one trial of the case with this number."""
        if isinstance(outcome, Scored):
            self._cases.append(case)
            self.values.append(outcome.value)
            return
        if isinstance(outcome, Unscored):
            self.unscored += 1
            reason = f"unscored: {outcome.reason}"
        else:
            self.failed += 1
            reason = f"failed: {outcome.error}: {outcome.message}"
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def means(self) -> "tuple[NDArray[np.uint32], NDArray[np.float64]]":
        """Numbers of the cases with scored trials, ascending, and each one's mean over them."""
        import numpy as np

        cases, values = np.array(self._cases, np.uint32), np.array(self.values)
        order = np.argsort(cases, kind="stable")
        cases, values = cases[order], values[order]
        if len(unique := np.unique(cases)) == len(cases):
            return cases, values
        pairs = zip(cases.tolist(), values.tolist(), strict=True)
        groups = (list(group) for _, group in groupby(pairs, key=lambda pair: pair[0]))
        means = (math.fsum(value for _, value in group) / len(group) for group in groups)
        return unique, np.fromiter(means, np.float64, len(unique))

    def case_means(self) -> dict[str, float]:
        """Case id -> mean over its scored trials, in case id order."""
        cases, means = self.means()
        named = zip(cases.tolist(), means.tolist(), strict=True)
        return dict(sorted((self.numbers.names[case], value) for case, value in named))


@dataclass
class CellTotals:
    """One point in one suite."""

    n_units: int = 0
    measures: dict[str, MeasureTotals] = field(default_factory=dict)
    service_ms: "array[float]" = field(default_factory=lambda: array("d"))
    stage_ms: dict[str, "array[float]"] = field(default_factory=dict)
    """Stage -> service times of the trials that had it."""
    receipts: dict[tuple[str, str], int] = field(default_factory=dict)
    """(stage, state) -> number of trials."""
    judge_usage: Usage = Usage()
    system_usage: Usage = Usage()
    calls: int = 0
    cached_calls: int = 0

    def states(self, stage: str) -> dict[str, int]:
        """State -> number of trials in which the stage ended so, in order of states."""
        return {state: n for (name, state), n in sorted(self.receipts.items()) if name == stage}


class Reducer:
    """Totals of all cells; ``add`` may be called in any order, once a unit."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], CellTotals] = {}
        self.n_units = 0
        self.n_failed = 0
        self._numbers = CaseNumbers()

    @property
    def usage(self) -> Usage:
        """Tokens and cost of everything."""
        return sum((c.judge_usage + c.system_usage for c in self.cells.values()), Usage())

    def add(self, record: UnitRecord) -> None:
        """Add one trial."""
        key = (record.suite, record.point)
        cell = self.cells.get(key) or self.cells.setdefault(key, CellTotals())
        case = self._numbers.of(record.case_id)
        failed = False
        for name, outcome in record.outcomes.items():
            totals = cell.measures.get(name)
            if totals is None:
                totals = cell.measures[name] = MeasureTotals(self._numbers)
            totals.add(case, outcome)
            failed = failed or isinstance(outcome, Failed)
        for receipt in record.receipts:
            state = (receipt.stage, receipt.state)
            cell.receipts[state] = cell.receipts.get(state, 0) + 1
        observed = record.observed
        cell.n_units += 1
        cell.service_ms.append(observed.service_ms)
        for stage, ms in observed.stage_ms.items():
            cell.stage_ms.setdefault(stage, array("d")).append(ms)
        if observed.judge_usage:
            cell.judge_usage += observed.judge_usage
        if observed.system_usage:
            cell.system_usage += observed.system_usage
        cell.calls += observed.calls
        cell.cached_calls += observed.cached_calls
        self.n_units += 1
        self.n_failed += failed
