"""The loop: lanes over one shared iterator of shards, group after group.

Shards are cut at run time and nothing stored names them, so lanes, crashes and completion order
change no result. Knows flow, journal and reducer; not what a unit does.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gno_dist.errors import BudgetExceeded
from gno_dist.flow import Flow
from gno_dist.journal import Journal
from gno_dist.plan import Group, Plan, Unit
from gno_dist.pool import PoolSet
from gno_dist.records import Failed, UnitRecord
from gno_dist.reduce import Reducer

MAX_SHARD_UNITS = 64
SHARD_S = 1.0
"""A shard is cut for about this much work."""
UNIFORM_FAILURES = 10
"""So many first units that all failed the same way stop the job: the cause is not the cases."""


class RunLimits(NamedTuple):
    """What bounds a run."""

    lanes: int = 5
    max_failed: int | None = None
    """Failed units above this number stop the job; None: no limit."""


class Sharder:
    """Cuts the units of a group into shards; cases stay whole, so that their points share work."""

    def __init__(self, plan: Plan, group: Group, journal: Journal) -> None:
        self._cases: Iterator[list[Unit]] = (
            missing
            for units in plan.case_units(group)
            if (missing := [unit for unit in units if not journal.done(unit.number)])
        )
        self._unit_s: float | None = None

    def next(self) -> list[Unit]:
        """The next shard; empty when all units are given out."""
        wanted = 1 if self._unit_s is None else int(SHARD_S / max(self._unit_s, 1e-6))
        shard: list[Unit] = []
        while len(shard) < min(max(wanted, 1), MAX_SHARD_UNITS):
            case = next(self._cases, None)
            if case is None:
                break
            shard.extend(case)
        return shard

    def took(self, units: int, seconds: float) -> None:
        """Learn from a finished shard how long a unit takes (moving average)."""
        latest = seconds / units
        self._unit_s = latest if self._unit_s is None else 0.7 * self._unit_s + 0.3 * latest


async def run_job(
    plan: Plan,
    flow: Flow,
    pools: PoolSet,
    journal: Journal,
    reducer: Reducer,
    limits: RunLimits,
    on_record: Callable[[UnitRecord], None] = lambda record: None,
) -> None:
    """Run every unit that the journal lacks; return when each has a record.

    Raises:
        BudgetExceeded: too many units failed, or the first ones all failed the same way.
        BackendError: a backend cannot be opened.
        OSError: the journal cannot be written.
    """
    watch = _FailureWatch(limits.max_failed)

    async def lane(sharder: Sharder) -> None:
        while shard := sharder.next():
            started = time.monotonic()
            for record in await flow.run(shard):
                if journal.append(record):
                    reducer.add(record)
                    on_record(record)
                    watch.check(record)
            sharder.took(len(shard), time.monotonic() - started)

    for group in plan.groups:
        await pools.keep_only(group.pools)
        sharder = Sharder(plan, group, journal)
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(limits.lanes):
                    lanes.create_task(lane(sharder))
        except BaseExceptionGroup as errors:
            raise _first_cause(errors) from None
        finally:
            journal.sync()


def _first_cause(errors: BaseException) -> BaseException:
    """Lanes and calls fail together, in nested groups: the first leaf is the cause."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors


class _FailureWatch:
    """Stops a job whose failures are not the cases' own."""

    def __init__(self, max_failed: int | None) -> None:
        self._max_failed = max_failed
        self._seen = 0
        self._failed = 0
        self._first: set[str] = set()

    def check(self, record: UnitRecord) -> None:
        self._seen += 1
        failures = {
            f"{outcome.error}: {outcome.message}"
            for outcome in record.outcomes.values()
            if isinstance(outcome, Failed)
        }
        self._failed += bool(failures)
        self._first |= failures or {""}
        if self._max_failed is not None and self._failed > self._max_failed:
            raise BudgetExceeded(
                "failure budget",
                f"{self._failed} units failed, {self._max_failed} are allowed;"
                " raise it with --max-failed N",
            )
        if self._seen == UNIFORM_FAILURES and len(self._first) == 1 and "" not in self._first:
            (cause,) = self._first
            raise BudgetExceeded(
                "failure budget",
                f"the first {UNIFORM_FAILURES} units all failed the same way ({cause});"
                " mend that and resume",
            )
