"""Calls on pools that lose workers: nothing is lost with them but what kills them alone."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from gno_dist.backends.host import encode_reply
from gno_dist.calls import Call, Fault, PoolSpec, Reply, make_call
from gno_dist.dispatch import FIRST_BATCH, Dispatcher
from gno_dist.errors import BackendError, LostReason, WorkerLost
from gno_dist.meter import Meter
from gno_dist.pool import OPEN_ATTEMPTS, PoolLimits, PoolSet
from gno_dist.records import Usage


class EchoPool:
    """Answers every call with its text; ``loses`` says which batches lose their worker."""

    def __init__(self, loses: Callable[[int, list[str]], bool], reason: LostReason = "died"):
        self.spec = PoolSpec("echo", "echo", {}, {})
        self.limits = PoolLimits()
        self.meter = Meter()
        self.batches: list[list[str]] = []
        self._loses = loses
        self._reason: LostReason = reason

    async def open(self) -> list[dict[str, Any]]:
        return []

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        texts = [orjson.loads(data)["args"]["text"] for data in batch]
        number = len(self.batches)
        self.batches.append(texts)
        await asyncio.sleep(0)
        if self._loses(number, texts):
            raise WorkerLost("echo", self._reason, f"loss {number}")
        return [encode_reply(Reply(text, 1.0, Usage())) for text in texts]

    async def close(self) -> None:
        pass


def calls(*texts: str) -> list[Call]:
    spec = PoolSpec("echo", "echo", {}, {})
    return [make_call("judge", spec, spec.key, "echo", {"text": text}) for text in texts]


def values(replies: Sequence[Reply | Fault]) -> list[Any]:
    return [reply.value if isinstance(reply, Reply) else reply for reply in replies]


def poison(_: int, texts: list[str]) -> bool:
    return "poison" in texts


def never(_: int, texts: list[str]) -> bool:
    return False


async def test_no_calls_need_no_worker() -> None:
    pool = EchoPool(never)
    assert await Dispatcher().answer(pool, []) == []
    assert pool.batches == []


async def test_a_batch_lost_once_runs_again_call_by_call() -> None:
    pool = EchoPool(lambda number, _: number == 0)
    assert values(await Dispatcher().answer(pool, calls("a", "b", "c"))) == ["a", "b", "c"]
    assert pool.batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]


async def test_a_call_that_kills_alone_twice_is_a_fault_and_its_neighbours_live() -> None:
    pool = EchoPool(poison)
    first, bad, last = await Dispatcher().answer(pool, calls("a", "poison", "b"))
    assert values([first, last]) == ["a", "b"]
    assert isinstance(bad, Fault)
    assert bad.error == "WorkerLost (died)"
    assert bad.message == "2 workers were lost on this call alone"
    assert bad.detail == "loss 3"
    assert not bad.timed_out
    assert pool.batches == [["a", "poison", "b"], ["a"], ["poison"], ["poison"], ["b"]]


async def test_a_lone_call_has_two_attempts_in_all() -> None:
    pool = EchoPool(poison)
    (bad,) = await Dispatcher().answer(pool, calls("poison"))
    assert isinstance(bad, Fault)
    assert pool.batches == [["poison"], ["poison"]]


async def test_a_lone_call_lost_once_is_answered() -> None:
    pool = EchoPool(lambda number, _: number == 0)
    assert values(await Dispatcher().answer(pool, calls("a"))) == ["a"]


@pytest.mark.parametrize(("reason", "marked"), [("timeout", True), ("oom", False), ("died", False)])
async def test_only_late_calls_are_marked_as_timed_out(reason: LostReason, marked: bool) -> None:
    (bad,) = await Dispatcher().answer(EchoPool(poison, reason), calls("poison"))
    assert isinstance(bad, Fault)
    assert bad.error == f"WorkerLost ({reason})"
    assert bad.timed_out is marked


@pytest.mark.parametrize("lost", [None, 0, 2, 4])
async def test_order_is_kept_over_several_batches(lost: int | None) -> None:
    texts = [f"t{n}" for n in range(4 * FIRST_BATCH + 3)]
    pool = EchoPool(lambda number, _: number == lost)
    assert values(await Dispatcher().answer(pool, calls(*texts))) == texts
    assert [len(batch) for batch in pool.batches[:5]] == [FIRST_BATCH] * 4 + [3]


async def test_a_poison_call_costs_only_its_own_batch_a_repeat() -> None:
    texts = [f"t{n}" for n in range(3 * FIRST_BATCH)]
    texts[20] = "poison"
    pool = EchoPool(poison)
    found = values(await Dispatcher().answer(pool, calls(*texts)))
    assert isinstance(found.pop(20), Fault)
    assert found == [text for text in texts if text != "poison"]
    assert len(pool.batches) == 3 + FIRST_BATCH + 1


async def test_batches_are_answered_side_by_side() -> None:
    """Both batches must be in the pool at once for either to be answered."""
    both_here = asyncio.Event()

    class Meeting(EchoPool):
        async def run(self, batch: Sequence[bytes]) -> list[bytes]:
            if len(self.batches) == 1:
                both_here.set()
            replies = await super().run(batch)
            async with asyncio.timeout(10):
                await both_here.wait()
            return replies

    texts = [f"t{n}" for n in range(FIRST_BATCH + 1)]
    assert values(await Dispatcher().answer(Meeting(never), calls(*texts))) == texts


async def test_other_errors_are_not_repeated() -> None:
    class Broken(EchoPool):
        async def run(self, batch: Sequence[bytes]) -> list[bytes]:
            self.batches.append([])
            raise BackendError("echo", "cannot be opened again")

    pool = Broken(never)
    with pytest.raises(ExceptionGroup) as errors:
        await Dispatcher().answer(pool, calls("a", "b"))
    assert errors.group_contains(BackendError, match="cannot be opened again")
    assert len(pool.batches) == 1


class OpeningPool(EchoPool):
    """Loses a worker at each of its first openings."""

    def __init__(self, reasons: list[LostReason]) -> None:
        super().__init__(never)
        self.reasons = reasons
        self.openings = 0

    async def open(self) -> list[dict[str, Any]]:
        self.openings += 1
        if self.reasons:
            raise WorkerLost("echo", self.reasons.pop(0), "gone")
        return [{"ready": True}]


async def test_a_pool_is_opened_again_after_a_kill_from_outside() -> None:
    pool = OpeningPool(["killed", "frozen"])
    opened: list[Any] = []
    pools = PoolSet(
        {"k": pool.spec},
        lambda spec, limits: pool,
        lambda spec: PoolLimits(),
        lambda spec, facts: opened.append(facts),
    )
    assert await pools.get("k") is pool
    assert opened == [[{"ready": True}]]
    assert pool.meter.lost == {"killed": 1, "frozen": 1}


@pytest.mark.parametrize(
    ("reasons", "openings"),
    [(["killed", "killed", "killed", "killed"], OPEN_ATTEMPTS), (["segfault"], 1), (["oom"], 1)],
)
async def test_a_pool_that_cannot_be_opened_ends_the_job(
    reasons: list[LostReason], openings: int
) -> None:
    pool = OpeningPool(reasons)
    pools = PoolSet({"k": pool.spec}, lambda spec, limits: pool, lambda spec: PoolLimits())
    with pytest.raises(BackendError, match="its process ended while it opened"):
        await pools.get("k")
    assert pool.openings == openings
