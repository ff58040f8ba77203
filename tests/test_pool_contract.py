"""What every pool must do, on every pool: order, faults, deadlines, losses, closing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gno_dist.backends.host import decode_reply, encode_call
from gno_dist.calls import Call, Fault, PoolSpec, Reply, make_call
from gno_dist.errors import BackendError, WorkerLost
from gno_dist.pool import InlinePool, Pool, PoolLimits

MakePool = Callable[..., Pool]


def fake(**faults: str) -> PoolSpec:
    return PoolSpec("fake", "fake one", {"name": "one"}, {"faults": faults})


def call(text: str, spec: PoolSpec | None = None) -> Call:
    spec = spec or fake()
    item = {"prefix": [text], "continuation": text}
    return make_call("rerank", spec, spec.key, "loglik", {"items": [item]})


@pytest.fixture(params=["inline", pytest.param("ray", marks=pytest.mark.ray)])
def make_pool(request: pytest.FixtureRequest) -> MakePool:
    def make(spec: PoolSpec, **limits: Any) -> Pool:
        wanted = PoolLimits(cpus=0.1, **limits)
        if request.param == "inline":
            return InlinePool(spec, wanted)
        from workers.pool import RayPools

        return RayPools(request.getfixturevalue("ray_cluster"))(spec, wanted)

    return make


def encoded(*texts: str) -> list[bytes]:
    return [encode_call(call(text)) for text in texts]


async def test_replies_stand_in_the_order_of_the_calls(make_pool: MakePool) -> None:
    pool = make_pool(fake())
    await pool.open()
    try:
        both = [decode_reply(r) for r in await pool.run(encoded("a", "b"))]
        swapped = [decode_reply(r) for r in await pool.run(encoded("b", "a"))]
    finally:
        await pool.close()
    assert all(isinstance(reply, Reply) for reply in both)
    values = [reply.value for reply in both if isinstance(reply, Reply)]
    assert values[0] != values[1]
    assert values[::-1] == [reply.value for reply in swapped if isinstance(reply, Reply)]


async def test_opening_says_what_was_opened(make_pool: MakePool) -> None:
    pool = make_pool(fake())
    facts = await pool.open()
    await pool.close()
    assert facts[0]["backend"] == "fake"
    assert facts[0]["load_s"] >= 0


async def test_a_bad_call_is_a_fault_in_its_place_and_its_neighbours_live(
    make_pool: MakePool,
) -> None:
    pool = make_pool(fake(bad="raise"))
    await pool.open()
    try:
        replies = [decode_reply(r) for r in await pool.run(encoded("a", "bad", "b"))]
    finally:
        await pool.close()
    assert [type(reply) for reply in replies] == [Reply, Fault, Reply]
    assert isinstance(replies[1], Fault)
    assert replies[1].error == "RuntimeError"
    assert "'bad'" in replies[1].message


async def test_a_late_worker_is_lost_and_the_pool_goes_on(make_pool: MakePool) -> None:
    pool = make_pool(fake(slow="hang"), attempt_timeout_s=1.0)
    await pool.open()
    try:
        with pytest.raises(WorkerLost) as lost:
            await pool.run(encoded("slow"))
        replies = [decode_reply(r) for r in await pool.run(encoded("a"))]
    finally:
        await pool.close()
    assert lost.value.reason == "timeout"
    assert isinstance(replies[0], Reply)


async def test_a_backend_that_cannot_be_opened_says_why(make_pool: MakePool) -> None:
    pool = make_pool(PoolSpec("no-such-kind", "odd", {}, {}))
    with pytest.raises(BackendError, match="unknown kind of backend"):
        await pool.open()
    await pool.close()


async def test_a_cancelled_call_leaves_a_pool_that_works(make_pool: MakePool) -> None:
    pool = make_pool(fake(slow="hang"))
    await pool.open()
    try:
        task = asyncio.create_task(pool.run(encoded("slow")))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        replies = [decode_reply(r) for r in await pool.run(encoded("a"))]
    finally:
        await pool.close()
    assert isinstance(replies[0], Reply)


async def test_closing_twice_is_harmless(make_pool: MakePool) -> None:
    pool = make_pool(fake())
    await pool.open()
    await pool.close()
    await pool.close()


@pytest.mark.ray
async def test_two_actors_answer_beside_each_other(ray_cluster: Any) -> None:
    from workers.pool import RayPool

    pool = RayPool(fake(), PoolLimits(workers=2, cpus=0.1), ray_cluster)
    facts = await pool.open()
    try:
        both = await asyncio.gather(pool.run(encoded("a")), pool.run(encoded("a")))
    finally:
        await pool.close()
    assert len({fact["pid"] for fact in facts}) == 2
    values = [decode_reply(replies[0]) for replies in both]
    assert isinstance(values[0], Reply)
    assert isinstance(values[1], Reply)
    assert values[0].value == values[1].value


async def test_time_is_told_apart(make_pool: MakePool) -> None:
    pool = make_pool(fake(slow="slow"))
    await pool.open()
    await pool.run(encoded("slow", "slow"))
    await asyncio.sleep(0.2)
    await pool.close()
    shares = pool.meter.shares()
    assert shares.working >= 0.1
    assert shares.idle >= 0.15
    assert shares.loading > 0
    assert pool.meter.batches == 1
    await asyncio.sleep(0.05)
    assert pool.meter.shares() == shares, "a closed pool's time stands still"
