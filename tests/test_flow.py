"""Calls of shards that meet: equal ones are made once, and a fault is nobody's reply."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gno_dist.backends.host import Host
from gno_dist.backends.resolve import pools_of
from gno_dist.cache import ReplyCache
from gno_dist.calls import PoolSpec
from gno_dist.engine import passages_of
from gno_dist.errors import BackendError, WorkerLost
from gno_dist.flow import Flow
from gno_dist.journal import Journal
from gno_dist.meter import Meter
from gno_dist.plan import Plan, Unit
from gno_dist.pool import PoolLimits, PoolSet
from gno_dist.records import Failed, Scored, UnitRecord, canonical_part
from gno_dist.reduce import Reducer
from gno_dist.runner import RunLimits, run_job
from gno_dist.sweep import load_job

from .conftest import write_tiny


def canonical(record: UnitRecord) -> dict[str, Any]:
    return canonical_part(record.model_dump(mode="json"))


PRESETS = """
version: 1
presets:
  one: {embedder: {backend: fake}, judge: {backend: fake, model: "one"}}
  same: {embedder: {backend: fake}, judge: {backend: fake, model: "one"}}
  two: {embedder: {backend: fake}, judge: {backend: fake, model: "two"}}
"""
SWEEP = """
version: 1
name: rubrics
presets_file: presets.yaml
presets: [one, same, two]
suites: [{suite: support.yaml}]
"""
TIMEOUT_S = 20


class OpenPool:
    """A pool in the loop's thread; ``gates`` hold back its batches, ``opening`` its opening."""

    def __init__(self, spec: PoolSpec, script: "Script") -> None:
        self.spec = spec
        self.limits = PoolLimits()
        self.meter = Meter()
        self._script = script
        self._host = Host(spec, 1)

    async def open(self) -> list[dict[str, Any]]:
        self._script.opened.append(self.spec.label)
        if (gate := self._script.opening.get(self.spec.label)) is not None:
            await gate.wait()
        if (error := self._script.open_errors.get(self.spec.label)) is not None:
            raise error
        return [self._host.start()]

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        self._script.calls.extend((self.spec.label, data) for data in batch)
        self._script.arrived.set()
        if (gate := self._script.gates.get(self.spec.label)) is not None:
            await gate.wait()
        if (error := self._script.run_errors.get(self.spec.label)) is not None:
            raise error
        return self._host.run(batch)

    async def close(self) -> None:
        self._host.stop()
        self._script.closed.append(self.spec.label)


class Script:
    """What the pools of a test do, and what they have done; keys are pool labels."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.opening: dict[str, asyncio.Event] = {}
        self.open_errors: dict[str, Exception] = {}
        self.run_errors: dict[str, Exception] = {}
        self.arrived = asyncio.Event()
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.calls: list[tuple[str, bytes]] = []

    def factory(self, spec: PoolSpec, limits: PoolLimits) -> OpenPool:
        return OpenPool(spec, self)

    def pools(self, plan: Plan) -> PoolSet:
        return PoolSet(plan.pools, self.factory, lambda spec: PoolLimits())


@asynccontextmanager
async def flowing(
    plan: Plan, script: Script, cache_file: Path | None = None
) -> AsyncIterator[tuple[Flow, ReplyCache]]:
    pools, cache = script.pools(plan), ReplyCache(cache_file)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield Flow(pools, cache, passages_of(plan)), cache
    finally:
        await pools.close()
        cache.close()


MakePlan = Callable[..., Plan]


@pytest.fixture
def make_plan(tmp_path: Path) -> MakePlan:
    """The plan of two cases at three presets; replacements change the presets' text."""

    def make(*replacements: tuple[str, str]) -> Plan:
        presets = PRESETS
        for old, new in replacements:
            presets = presets.replace(old, new)
        path = write_tiny(tmp_path / "tiny", presets=presets, sweep=SWEEP)
        return Plan(load_job(path), pools_of)

    return make


def unit(plan: Plan, case: str, preset: str) -> Unit:
    (found,) = (
        unit
        for unit in plan.units()
        if unit.case.id == case and unit.point.spec.preset_name == preset
    )
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


def judged(record: UnitRecord) -> Any:
    return record.judgement


async def test_equal_calls_of_one_shard_are_made_once(make_plan: MakePlan) -> None:
    plan, script = make_plan(), Script()
    async with flowing(plan, script) as (flow, _):
        one, same, two = await flow.run([unit(plan, "c1", p) for p in ("one", "same", "two")])
    assert [label for label, _ in script.calls] == ["fake one", "fake two"]
    assert (flow.made_calls, flow.shared_calls) == (2, 1)
    assert judged(one) == judged(same)
    assert judged(one) != judged(two)


async def test_records_stand_in_the_order_of_the_units(make_plan: MakePlan) -> None:
    plan = make_plan()
    units = list(plan.units())[::-1]
    async with flowing(plan, Script()) as (flow, _):
        records = await flow.run(units)
    assert [record.unit_id for record in records] == [unit.id for unit in units]
    assert not any(record.failed for record in records)


async def test_equal_calls_of_two_lanes_are_made_once(make_plan: MakePlan) -> None:
    plan, script = make_plan(), Script()
    gate = script.gates["fake one"] = asyncio.Event()
    async with flowing(plan, script) as (flow, _):
        first = asyncio.create_task(flow.run([unit(plan, "c1", "one")]))
        await script.arrived.wait()
        second = asyncio.create_task(flow.run([unit(plan, "c1", "same")]))
        await until(lambda: flow.shared_calls == 1)
        assert not first.done()
        assert not second.done()
        gate.set()
        (a,), (b,) = await first, await second
    assert len(script.calls) == 1
    assert (flow.made_calls, flow.shared_calls) == (1, 1)
    assert judged(a) is not None
    assert judged(a) == judged(b)
    # What a unit needed does not depend on who asked first.
    assert a.observed.calls == b.observed.calls == 1


async def test_a_pool_is_opened_once_for_two_lanes(make_plan: MakePlan) -> None:
    plan, script = make_plan(), Script()
    gate = script.opening["fake one"] = asyncio.Event()
    async with flowing(plan, script) as (flow, _):
        lanes = [asyncio.create_task(flow.run([unit(plan, c, "one")])) for c in ("c1", "c2")]
        await until(lambda: bool(script.opened))
        gate.set()
        await asyncio.gather(*lanes)
    assert script.opened == script.closed == ["fake one"]
    assert flow.made_calls == 2


async def test_a_reply_that_waits_for_its_shard_is_shared_once(make_plan: MakePlan) -> None:
    """One lane's quick call is in the cache and still under way: its slow call is not back."""
    plan, script = make_plan(), Script()
    gate = script.gates["fake two"] = asyncio.Event()
    async with flowing(plan, script) as (flow, cache):
        first = asyncio.create_task(flow.run([unit(plan, "c1", "one"), unit(plan, "c1", "two")]))
        await until(lambda: cache.count() == 1)
        (b,) = await flow.run([unit(plan, "c1", "same")])
        assert not first.done()
        gate.set()
        (a, _) = await first
    assert judged(a) == judged(b)
    assert (flow.made_calls, flow.shared_calls) == (2, 1)


async def test_a_later_job_finds_the_replies_and_opens_no_pool(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    plan, file = make_plan(), tmp_path / "replies.sqlite"
    units = list(plan.units())
    async with flowing(plan, Script(), file) as (flow, cache):
        first = await flow.run(units)
        assert cache.count() == flow.made_calls == 4
    script = Script()
    async with flowing(plan, script, file) as (flow, _):
        again = await flow.run(units)
    assert (flow.made_calls, flow.shared_calls) == (0, 6)
    assert script.opened == script.calls == []
    assert list(map(canonical, again)) == list(map(canonical, first))
    assert [record.observed.cached_calls for record in first] == [0] * 6
    assert [record.observed.cached_calls for record in again] == [1] * 6
    # A cached reply keeps the time and the tokens it took when it was made.
    assert [r.observed.stage_ms for r in again] == [r.observed.stage_ms for r in first]
    assert [r.observed.judge_usage for r in again] == [r.observed.judge_usage for r in first]


async def test_faults_are_not_cached(make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan(('"one"', '"one;raise=away"'))
    file = tmp_path / "replies.sqlite"
    async with flowing(plan, Script(), file) as (flow, cache):
        good, bad = await flow.run([unit(plan, "c1", "one"), unit(plan, "c2", "one")])
        (again,) = await flow.run([unit(plan, "c2", "same")])
        assert cache.count() == 1
    assert flow.made_calls == 3
    assert all(isinstance(outcome, Scored) for outcome in good.outcomes.values())
    for record in (bad, again):
        assert record.judgement is None
        for outcome in record.outcomes.values():
            assert isinstance(outcome, Failed)
            assert "RuntimeError: fake fault at 'away'" in outcome.message
    # The model is mended; the fault it gave stands in nobody's way.
    mended = make_plan()
    async with flowing(mended, Script(), file) as (flow, _):
        (record,) = await flow.run([unit(mended, "c2", "one")])
    assert flow.made_calls == 1
    assert not record.failed


async def test_a_fault_under_way_is_shared_by_its_lanes(make_plan: MakePlan) -> None:
    plan, script = make_plan(('"one"', '"one;raise=away"')), Script()
    gate = script.gates["fake one"] = asyncio.Event()
    async with flowing(plan, script) as (flow, _):
        first = asyncio.create_task(flow.run([unit(plan, "c2", "one")]))
        await script.arrived.wait()
        second = asyncio.create_task(flow.run([unit(plan, "c2", "same")]))
        await until(lambda: flow.shared_calls == 1)
        gate.set()
        (a,), (b,) = await first, await second
    assert len(script.calls) == 1
    assert a.failed
    assert a.outcomes == b.outcomes


async def test_a_lost_pool_fails_its_own_calls_only(make_plan: MakePlan) -> None:
    plan, script = make_plan(), Script()
    script.run_errors["fake two"] = WorkerLost("fake two", "timeout", "no answer within 1 s")
    async with flowing(plan, script) as (flow, cache):
        one, two = await flow.run([unit(plan, "c1", "one"), unit(plan, "c1", "two")])
        assert cache.count() == 1
    assert not one.failed
    assert {receipt.state for receipt in two.receipts if receipt.stage == "judge"} == {"timed_out"}
    said = "WorkerLost (timeout): 2 workers were lost on this call alone"
    assert [o.message for o in two.outcomes.values()] == [said] * 3  # type: ignore[union-attr]
    assert two.observed.details == ("no answer within 1 s",)


OPENING = {
    "its own error": (BackendError("fake one", "the file is gone"), "fake one: the file is gone"),
    "a lost worker": (WorkerLost("fake one", "died", "signal 9"), "gno-dist doctor.*signal 9"),
}


@pytest.mark.parametrize("lanes", [1, 5])
@pytest.mark.parametrize(("error", "said"), OPENING.values(), ids=OPENING)
async def test_a_backend_that_cannot_be_opened_reaches_the_caller_of_run_job(
    make_plan: MakePlan, tmp_path: Path, error: Exception, said: str, lanes: int
) -> None:
    plan, script = make_plan(), Script()
    script.open_errors["fake one"] = error
    pools, cache = script.pools(plan), ReplyCache(None)
    journal = Journal(tmp_path / "journal.jsonl", plan.n_units)
    flow = Flow(pools, cache, passages_of(plan))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(BackendError, match=said):
                await run_job(plan, plan.groups, flow, pools, journal, Reducer(), RunLimits(lanes))
    finally:
        await pools.close()
        cache.close()
        journal.close()
    assert script.opened.count("fake one") == 1
    assert not any(
        record.point == unit(plan, "c1", "one").point.id for record in journal.in_plan_order()
    )


async def test_a_backend_that_cannot_be_opened_again_reaches_the_caller_of_run_job(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    """A pool replaces a lost worker inside ``run``: opening may fail there too."""
    plan, script = make_plan(), Script()
    script.run_errors["fake two"] = BackendError("fake two", "the file is gone")
    pools, cache = script.pools(plan), ReplyCache(None)
    journal = Journal(tmp_path / "journal.jsonl", plan.n_units)
    flow = Flow(pools, cache, passages_of(plan))
    try:
        with pytest.raises(BackendError, match="the file is gone"):
            await run_job(plan, plan.groups, flow, pools, journal, Reducer(), RunLimits(lanes=3))
    finally:
        await pools.close()
        cache.close()
        journal.close()
    assert set(script.closed) == set(script.opened)
