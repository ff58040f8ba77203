"""Real deaths of real workers: each has its own name, costs only what ran, and is replaced."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from gno_dist.backends.host import decode_reply
from gno_dist.calls import Fault, Reply
from gno_dist.dispatch import Dispatcher
from gno_dist.errors import BackendError, WorkerLost
from gno_dist.pool import PoolLimits, PoolSet
from workers.autopsy import EXIT_MARK, cause_of_death

from .test_pool_contract import call, encoded, fake

pytestmark = [pytest.mark.ray, pytest.mark.kills]

MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


@asynccontextmanager
async def open_pool(
    cluster: Any, limits: PoolLimits | None = None, **faults: str
) -> AsyncIterator[Any]:
    from workers.pool import RayPool

    pool = RayPool(fake(**faults), limits or PoolLimits(cpus=0.1), cluster)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


@pytest.mark.parametrize(
    ("fault", "reason", "detail"),
    [
        ("segfault", "segfault", "segmentation fault (SIGSEGV) in string_at"),
        ("abort", "abort", "abort (SIGABRT) in <lambda> (fake.py:"),
        ("die", "exit", "exited with code 66"),
        ("sysexit", "exit", "exited with code 67"),
    ],
)
async def test_a_worker_that_ends_itself(
    ray_cluster: Any, fault: str, reason: str, detail: str
) -> None:
    async with open_pool(ray_cluster, poison=fault) as pool:
        (first,) = await pool.pids()
        with pytest.raises(WorkerLost) as lost:
            await pool.run(encoded("poison"))
        replies = [decode_reply(r) for r in await pool.run(encoded("a"))]
        (second,) = await pool.pids()
        assert pool.meter.lost == {reason: 1}
    assert lost.value.reason == reason
    assert detail in lost.value.detail
    assert isinstance(replies[0], Reply)
    assert second != first
    assert not psutil.pid_exists(first)


async def test_a_worker_that_is_killed(ray_cluster: Any) -> None:
    async with open_pool(ray_cluster, slow="hang") as pool:
        (first,) = await pool.pids()
        running = asyncio.create_task(pool.run(encoded("slow")))
        await asyncio.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(WorkerLost) as lost:
            await running
        assert isinstance(decode_reply((await pool.run(encoded("a")))[0]), Reply)
    assert lost.value.reason == "killed"


@contextmanager
def little_memory(pid: int, limit: int) -> Iterator[None]:
    """Hold a process to ``limit`` bytes by a memory group of its own."""
    group = MEMORY_GROUPS / f"gno-dist-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as exc:
        pytest.skip(f"no memory group can be made here: {exc}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:  # its process is still going away
                psutil.wait_procs([psutil.Process()], timeout=0.1)


async def test_a_worker_that_the_kernel_kills_for_memory(ray_cluster: Any) -> None:
    async with open_pool(ray_cluster, big="fill") as pool:
        (pid,) = await pool.pids()
        with little_memory(pid, 400 * 2**20), pytest.raises(WorkerLost) as lost:
            await pool.run(encoded("big"))
    assert lost.value.reason == "oom"
    assert "out of memory" in lost.value.detail


async def test_a_worker_that_dies_idle_costs_no_call_an_attempt(ray_cluster: Any) -> None:
    async with open_pool(ray_cluster) as pool:
        (first,) = await pool.pids()
        os.kill(first, signal.SIGKILL)
        psutil.Process(first).wait(10) if psutil.pid_exists(first) else None
        await asyncio.sleep(0.5)
        assert await pool.pids() == []
        (reply,) = [decode_reply(r) for r in await pool.run(encoded("a"))]
        assert isinstance(reply, Reply)
        assert not pool.meter.lost


async def test_a_stopped_worker_is_frozen_and_its_call_is_not_to_blame(
    ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.pool.FROZEN_AFTER_S", 2.0)
    monkeypatch.setattr("workers.pool.BEAT_EVERY_S", 0.3)
    losses: list[str] = []
    dispatcher = Dispatcher(lambda lost, n: losses.append(lost.reason))
    async with open_pool(ray_cluster, slow="slow") as pool:
        (first,) = await pool.pids()
        os.kill(first, signal.SIGSTOP)
        (reply,) = await dispatcher.answer(pool, [call("slow")])
        (second,) = await pool.pids()
    assert losses == ["frozen"]
    assert isinstance(reply, Reply)
    assert second != first
    assert not psutil.pid_exists(first) or psutil.Process(first).status() == "zombie"


@pytest.mark.parametrize("n_workers", [1, 2])
async def test_a_worker_that_is_killed_while_it_opens(ray_cluster: Any, n_workers: int) -> None:
    """A kill from outside says nothing about the backend: the pool is opened again."""
    from workers.pool import RayPools

    ray_cluster.start()
    known = set(_actors())
    victims = []

    async def kill_the_last_to_come() -> None:
        while len(new := [p for p in _actors() if p not in known]) < n_workers:
            await asyncio.sleep(0.001)
        victims.append(new[-1].pid)
        new[-1].kill()

    limits = PoolLimits(cpus=0.1, workers=n_workers)
    pools = PoolSet({"k": fake()}, RayPools(ray_cluster), lambda spec: limits)
    killing = asyncio.create_task(kill_the_last_to_come())
    pool = await pools.get("k")
    await killing
    replies = await Dispatcher().answer(pool, [call(text) for text in "ab"])
    await pools.close()
    assert victims
    assert all(isinstance(reply, Reply) for reply in replies)


def _actors() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, IndexError):
            if process.cmdline()[0].startswith("ray::HostActor"):
                found.append(process)
    return found


async def test_poison_is_named_and_its_neighbours_live(ray_cluster: Any) -> None:
    calls = [call(text) for text in ("a", "b", "poison", "c")]
    async with open_pool(ray_cluster, poison="segfault") as pool:
        replies = await Dispatcher().answer(pool, calls)
    assert [type(reply) for reply in replies] == [Reply, Reply, Fault, Reply]
    bad = replies[2]
    assert isinstance(bad, Fault)
    assert bad.error == "WorkerLost (segfault)"
    assert "2 workers were lost on this call alone" in bad.message


async def test_an_actor_without_room_is_an_error_in_time(
    ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.pool import RayPool

    monkeypatch.setattr("workers.pool.SCHEDULE_TIMEOUT_S", 1.0)
    pool = RayPool(fake(), PoolLimits(cpus=64), ray_cluster)
    try:
        with pytest.raises(BackendError, match="no node had room.*64 CPUs.*free are"):
            await pool.open()
    finally:
        await pool.close()


SIGNAL = "*** {0} received at time=1 on cpu 1 ***\nPC: @ 0x7f (unknown)\n"
STACK = """Fatal Python error: Aborted

Stack (most recent call first):
  File "/x/llama_cpp/llama_cpp.py", line 3015 in llama_decode
  File "/x/gno_dist/backends/llama.py", line 12 in handle
"""


@pytest.mark.parametrize(
    ("words", "message", "kills", "reason", "detail"),
    [
        (SIGNAL.format("SIGILL"), "", 0, "illegal", "built for another processor (SIGILL)"),
        (
            "x.c:1: GGML_ASSERT(n > 0) failed\n" + SIGNAL.format("SIGABRT") + STACK,
            "",
            0,
            "abort",
            "abort (SIGABRT) in llama_decode (llama_cpp.py:3015): x.c:1: GGML_ASSERT(n > 0) failed",
        ),
        (f"{EXIT_MARK} 3\n", "", 0, "exit", "the process exited with code 3"),
        ("", "UnexpectedSystemExit: Worker exits with an exit code 4.", 0, "exit", "code 4"),
        ("", "end of file", 1, "oom", "out of memory"),
        ("warning: slow\n", "end of file", 0, "killed", "from outside"),
        # A crash explains itself, whatever else the kernel killed meanwhile.
        (SIGNAL.format("SIGSEGV"), "", 2, "segfault", "SIGSEGV"),
    ],
)
def test_causes_by_hand(words: str, message: str, kills: int, reason: str, detail: str) -> None:
    death = cause_of_death(message, words, kills)
    assert death.reason == reason
    assert detail in death.detail
