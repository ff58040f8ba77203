"""The loop: every missing unit is given out once, cases stay whole, lanes bound what is at work."""

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist.backends.host import Host
from gno_dist.backends.resolve import pools_of
from gno_dist.cache import ReplyCache
from gno_dist.calls import PoolSpec
from gno_dist.engine import passages_of
from gno_dist.flow import Flow
from gno_dist.journal import Journal
from gno_dist.meter import Meter
from gno_dist.plan import Plan, Unit
from gno_dist.pool import PoolLimits, PoolSet
from gno_dist.records import Scored, UnitRecord
from gno_dist.reduce import Reducer
from gno_dist.runner import MAX_SHARD_UNITS, RunLimits, Sharder, run_job
from gno_dist.sweep import load_job

from .conftest import SUITES, SWEEP, write_tiny

MANY = "".join(
    f'  - {{id: m{n}, input: "Where is key {n}?", output: "Here."}}\n' for n in range(90)
)
SUPPORT = SUITES["support"].replace("rubrics:\n", MANY + "rubrics:\n")
RUBRICS_ONLY = SWEEP.replace(
    "  - {suite: query.yaml, axes: {depth: [fast, vector, hybrid, balanced, thorough]}}\n"
    "  - {suite: ask.yaml}\n",
    "",
)
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Plan]:
    """Trials -> plan. At 1 the largest case has 10 units, at 40 the smallest has more than 64."""
    path = write_tiny(tmp_path_factory.mktemp("runner") / "tiny", support=SUPPORT)
    return {trials: Plan(load_job(path), pools_of, trials) for trials in (1, 3, 40)}


@pytest.fixture
def rubric_plan(tmp_path: Path) -> Plan:
    """92 cases at two presets; no index."""
    path = write_tiny(tmp_path / "tiny", support=SUPPORT, sweep=RUBRICS_ONLY)
    return Plan(load_job(path), pools_of)


def done_record(unit: Unit) -> UnitRecord:
    return UnitRecord(
        unit_id=unit.id,
        index=unit.number,
        suite=unit.suite.loaded.name,
        point=unit.point.id,
        case_id=unit.case.id,
        trial=unit.trial,
        outcomes={"m": Scored(value=1.0)},
    )


def open_journal(folder: str, plan: Plan) -> Journal:
    return Journal(Path(folder) / "journal.jsonl", plan.n_units)


def case_of(unit: Unit) -> tuple[str, str]:
    return unit.suite.loaded.name, unit.case.id


@settings(max_examples=40, deadline=None)
@given(
    trials=st.sampled_from([1, 3, 40]),
    nth=st.integers(1, 7),
    stretch=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    took=st.lists(st.sampled_from([0.0, 0.001, 0.1, 5.0]), min_size=1, max_size=6),
)
def test_every_missing_unit_is_given_out_once_in_whole_cases(
    plans: dict[int, Plan],
    trials: int,
    nth: int,
    stretch: tuple[float, float],
    took: list[float],
) -> None:
    """Done are a stretch of the units and, where nth > 1, every nth of all; shards took so long."""
    plan = plans[trials]
    units = list(plan.units())
    first, last = (int(share * len(units)) for share in sorted(stretch))
    done = {n for n in range(len(units)) if first <= n < last or (nth > 1 and n % nth == 0)}
    given_out: list[int] = []
    seconds = itertools.cycle(took)
    with tempfile.TemporaryDirectory() as folder, closing(open_journal(folder, plan)) as journal:
        for number in sorted(done):
            journal.append(done_record(units[number]))
        for group in plan.groups:
            sharder = Sharder(plan, group, journal)
            missing = (
                [unit.number for unit in case if unit.number not in done]
                for case in plan.case_units(group)
            )
            cases = iter([case for case in missing if case])
            while (shard := sharder.next()) is not None:
                numbers = [unit.number for unit in shard.units]
                whole: list[int] = []
                while len(whole) < len(numbers):
                    whole += next(cases)
                assert numbers == whole
                one_case = len({case_of(unit) for unit in shard.units}) == 1
                assert one_case or len(numbers) <= MAX_SHARD_UNITS
                given_out += numbers
                sharder.took(shard, next(seconds))
            assert next(cases, None) is None
            assert sharder.next() is None
    assert sorted(given_out) == [unit.number for unit in units if unit.number not in done]


def shard_sizes(plan: Plan, folder: Path, unit_s: float) -> list[int]:
    """Sizes of the shards of a plan whose units all take so long."""
    sizes = []
    journal = Journal(folder / "sizes.jsonl", plan.n_units)
    for group in plan.groups:
        sharder = Sharder(plan, group, journal)
        while (shard := sharder.next()) is not None:
            sizes.append(len(shard.units))
            sharder.took(shard, unit_s * len(shard.units))
    journal.close()
    return sizes


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that a plan of 184 units fills some."""
    monkeypatch.setattr("gno_dist.runner.MAX_SHARD_UNITS", 64)


@pytest.mark.usefixtures("small_shards")
def test_quick_units_fill_shards_and_slow_ones_go_case_by_case(
    rubric_plan: Plan, tmp_path: Path
) -> None:
    # Two units a case; the first shard knows nothing yet, the last ones halve what is left.
    assert shard_sizes(rubric_plan, tmp_path, 1e-9) == [2, 64, 58, 30, 14, 8, 4, 2, 2]
    assert shard_sizes(rubric_plan, tmp_path, 0.1) == [2, *[10] * 17, 6, 2, 2, 2]
    assert shard_sizes(rubric_plan, tmp_path, 30.0) == [2] * 92


@pytest.mark.usefixtures("small_shards")
def test_a_case_larger_than_a_shard_is_a_shard_of_its_own(
    plans: dict[int, Plan], tmp_path: Path
) -> None:
    plan = plans[40]
    assert set(shard_sizes(plan, tmp_path, 1e-9)) == {10 * 40, 2 * 40}


class HostPool:
    """The backend in the loop's thread; lets the loop turn before it answers."""

    def __init__(self, spec: PoolSpec, limits: PoolLimits) -> None:
        self.spec = spec
        self.limits = limits
        self.meter = Meter()
        self._host = Host(spec, 1)

    async def open(self) -> list[dict[str, Any]]:
        return [self._host.start()]

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        for _ in range(5):
            await asyncio.sleep(0)
        return self._host.run(batch)

    async def close(self) -> None:
        self._host.stop()


class CountingFlow(Flow):
    """A flow that notes how many shards are at work, and which units it was given."""

    at_work = 0
    peak = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given: list[int] = []
        self.hold: asyncio.Event | None = None

    async def run(self, units: Sequence[Unit]) -> list[UnitRecord]:
        self.given.extend(unit.number for unit in units)
        self.at_work += 1
        self.peak = max(self.peak, self.at_work)
        try:
            if self.hold is not None and len(self.given) > len(units):
                await self.hold.wait()
            return await super().run(units)
        finally:
            self.at_work -= 1


class Job:
    """What ``run_job`` needs for a plan in a folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.pools = PoolSet(plan.pools, HostPool, lambda spec: PoolLimits())
        self.cache = ReplyCache(None)
        self.flow = CountingFlow(self.pools, self.cache, passages_of(plan))
        self.journal = Journal(folder / "journal.jsonl", plan.n_units)
        self.seen: list[UnitRecord] = []

    async def run(self, lanes: int) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await run_job(
                    self.plan,
                    self.plan.groups,
                    self.flow,
                    self.pools,
                    self.journal,
                    Reducer(),
                    RunLimits(lanes),
                    self.seen.append,
                )
        finally:
            await self.pools.close()
            self.cache.close()
            self.journal.close()


@pytest.mark.parametrize("lanes", [1, 2, 7])
async def test_lanes_bound_what_is_in_flight(rubric_plan: Plan, tmp_path: Path, lanes: int) -> None:
    job = Job(rubric_plan, tmp_path)
    await job.run(lanes)
    assert job.flow.peak == lanes
    assert job.flow.at_work == 0
    assert sorted(job.flow.given) == list(range(rubric_plan.n_units))


async def test_a_job_runs_only_what_its_journal_lacks(rubric_plan: Plan, tmp_path: Path) -> None:
    units = list(rubric_plan.units())
    done = units[::3]
    before = Job(rubric_plan, tmp_path)
    for unit in done:
        before.journal.append(done_record(unit))
    await before.run(lanes=3)
    missing = [unit.number for unit in units if unit not in done]
    assert sorted(before.flow.given) == missing
    assert sorted(record.index for record in before.seen) == missing
    again = Job(rubric_plan, tmp_path)
    records = list(again.journal.in_plan_order())
    await again.run(lanes=3)
    assert again.flow.given == []
    assert [record.unit_id for record in records] == [unit.id for unit in units]
    # What was there is as it was.
    assert [records[unit.number] for unit in done] == [done_record(unit) for unit in done]


async def test_a_cancelled_job_stops_its_lanes_and_its_journal_goes_on(
    rubric_plan: Plan, tmp_path: Path
) -> None:
    job = Job(rubric_plan, tmp_path)
    job.flow.hold = asyncio.Event()  # all shards but the first wait for ever
    running = asyncio.create_task(job.run(lanes=3))
    async with asyncio.timeout(TIMEOUT_S):
        while not job.seen or job.flow.at_work < 3:
            await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert job.flow.at_work == 0
    kept = len(job.seen)
    assert 0 < kept < rubric_plan.n_units
    rest = Job(rubric_plan, tmp_path)
    assert rest.journal.n_done == kept
    await rest.run(lanes=3)
    assert len(rest.seen) == rubric_plan.n_units - kept


async def test_an_error_of_a_watcher_reaches_the_caller_as_itself(
    rubric_plan: Plan, tmp_path: Path
) -> None:
    job = Job(rubric_plan, tmp_path)

    class Unwell(Exception):
        pass

    class Watcher(list[UnitRecord]):
        def append(self, record: UnitRecord) -> None:
            super().append(record)
            if len(self) == 5:
                raise Unwell

    job.seen = Watcher()
    with pytest.raises(Unwell):
        await job.run(lanes=4)
    assert job.flow.at_work == 0
    journal = Journal(tmp_path / "journal.jsonl", rubric_plan.n_units)
    assert {record.index for record in journal.in_plan_order()} >= {r.index for r in job.seen}
    journal.close()
