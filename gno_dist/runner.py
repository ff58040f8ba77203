"""The loop: lanes over one shared iterator of shards, group after group.

Shards are cut at run time and nothing stored names them, so lanes, crashes and completion order
change no result. Knows flow, journal and reducer; not what a unit does.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gno_dist.errors import BudgetExceeded
from gno_dist.flow import Flow
from gno_dist.journal import Journal
from gno_dist.plan import Group, Plan, Unit
from gno_dist.pool import PoolSet
from gno_dist.records import Failed, UnitRecord
from gno_dist.reduce import Reducer

MAX_SHARD_UNITS = 256
SHARD_S = 1.0
"""A shard is cut for about this much work."""
UNIFORM_FAILURES = 10
"""So many first units that all failed the same way stop the job: the cause is not the cases."""


class RunLimits(NamedTuple):
    """What bounds a run."""

    lanes: int = 5
    max_failed: int | None = None
    """Failed units above this number stop the job; None: no limit."""
    stall_warn_s: float = 120.0
    """Without any reply for this long, say what is in flight."""
    stall_end_s: float = 1200.0
    """Without any reply for this long, stop the job: every wait should have ended before."""


Kind = tuple[int, frozenset[str]]
"""Suite, by its first unit, and points of a case."""


class Shard(NamedTuple):
    """Units that one lane works on together; ``kind`` tells which cost about the same."""

    units: list[Unit]
    kind: Kind


class Sharder:
    """Cuts the units of a group into shards; cases stay whole, so that their points share work.

    A shard holds one kind of case only (same suite, same points), since another kind may take a
    thousand times longer. How many cases fit is learned for each kind; the first shard has one,
    and the last ones are small, so that no lane works alone at the end.
    """

    def __init__(self, plan: Plan, group: Group, journal: Journal, lanes: int = 1) -> None:
        self._lanes = lanes
        self._left = plan.units_of(group)
        self._unit_s: dict[Kind, float] = {}
        self._cases = self._missing(plan.case_units(group), journal)
        self._next = next(self._cases, None)

    def _missing(self, cases: Iterable[list[Unit]], journal: Journal) -> Iterator[list[Unit]]:
        for units in cases:
            missing = [unit for unit in units if not journal.done(unit.number)]
            self._left -= len(units) - len(missing)
            if missing:
                yield missing

    def next(self) -> Shard | None:
        """The next shard; None when all units are given out."""
        if self._next is None:
            return None
        kind = _kind(self._next)
        known = self._unit_s.get(kind)
        wanted = 1 if known is None else int(SHARD_S / max(known, 1e-6))
        wanted = min(wanted, MAX_SHARD_UNITS, self._left // (2 * self._lanes))
        units: list[Unit] = []
        while self._next is not None and _kind(self._next) == kind:
            if units and len(units) + len(self._next) > wanted:
                break
            units.extend(self._next)
            self._next = next(self._cases, None)
        self._left -= len(units)
        return Shard(units, kind)

    def took(self, shard: Shard, seconds: float) -> None:
        """Learn from a finished shard how long a unit of its kind takes (moving average)."""
        latest = seconds / len(shard.units)
        known = self._unit_s.get(shard.kind, latest)
        self._unit_s[shard.kind] = 0.7 * known + 0.3 * latest


def _kind(units: list[Unit]) -> Kind:
    return units[0].suite.first_index, frozenset([unit.point.id for unit in units])


async def run_job(
    plan: Plan,
    groups: Sequence[Group],
    flow: Flow,
    pools: PoolSet,
    journal: Journal,
    reducer: Reducer,
    limits: RunLimits,
    on_record: Callable[[UnitRecord], None] = lambda record: None,
    on_stall: Callable[[str], None] = lambda message: None,
) -> None:
    """Run every unit of the groups that the journal lacks; return when each has a record.

    Raises:
        BudgetExceeded: too many units failed, the first ones all failed the same way, or nothing
            moved for too long.
        BackendError: a backend cannot be opened.
        StorageFailed: the journal cannot be written.
    """
    watch = _FailureWatch(limits.max_failed)

    async def lane(sharder: Sharder) -> None:
        while (shard := sharder.next()) is not None:
            started = time.monotonic()
            written = journal.append_all(await flow.run(shard.units))
            for record in written:  # all, before anything may stop the job: totals fit the journal
                reducer.add(record)
            for record in written:
                on_record(record)
                watch.check(record)
            sharder.took(shard, time.monotonic() - started)

    for group in groups:
        await pools.keep_only(group.pools)
        sharder = Sharder(plan, group, journal, limits.lanes)
        try:
            async with asyncio.TaskGroup() as tasks:
                stall = tasks.create_task(_watch_stalls(flow, limits, on_stall))
                await asyncio.wait([tasks.create_task(lane(sharder)) for _ in range(limits.lanes)])
                stall.cancel()
        except BaseExceptionGroup as errors:
            raise _first_cause(errors) from None
        finally:
            journal.sync()


async def _watch_stalls(flow: Flow, limits: RunLimits, on_stall: Callable[[str], None]) -> None:
    """Say when nothing moves, and end the job when nothing ever will.

    Raises:
        BudgetExceeded: no reply for ``stall_end_s``.
    """
    said = started = time.monotonic()
    while True:
        await asyncio.sleep(min(limits.stall_warn_s, limits.stall_end_s) / 10)
        last, now = max(started, flow.dispatcher.last_progress), time.monotonic()
        if now - last < limits.stall_warn_s:
            continue
        waiting = "; ".join(map(str, flow.in_flight)) or "nothing"
        message = f"no reply for {now - last:.0f} s; in flight: {waiting}"
        if now - last >= limits.stall_end_s:
            raise BudgetExceeded("stalled", message)
        if now - max(last, said) >= limits.stall_warn_s:
            said = now
            on_stall(message)


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
        failed = record.failed
        self._failed += failed
        if self._seen <= UNIFORM_FAILURES:
            self._first |= _failures(record) if failed else {""}
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
                " mend that and `gno-dist resume JOB --retry-failed`",
            )


def _failures(record: UnitRecord) -> set[str]:
    return {
        f"{outcome.error}: {outcome.message}"
        for outcome in record.outcomes.values()
        if isinstance(outcome, Failed)
    }
