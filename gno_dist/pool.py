"""The seam between what is asked and where it runs: the Pool protocol, and pools in this process.

A pool answers batches for one backend. It knows deadlines and lost workers; it knows nothing of
units, caches or what a call means. Ray's pool lives in ``workers``.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from gno_dist.backends.host import Host
from gno_dist.calls import PoolSpec
from gno_dist.errors import OUTSIDE, BackendError, WorkerLost
from gno_dist.meter import Meter


class PoolLimits(NamedTuple):
    """What a pool may use."""

    workers: int = 1
    threads: int = 1
    """Threads of one worker for one call."""
    cpus: float = 1.0
    """Share of the machine that a scheduler reserves for one worker; admission only."""
    gpus: float = 0.0
    """Share of a GPU that a scheduler reserves for one worker."""
    attempt_timeout_s: float = 120.0
    """One batch must be answered within this time; a worker that is late is replaced."""


class Pool(Protocol):
    """Workers for one backend."""

    spec: PoolSpec
    limits: PoolLimits
    meter: Meter
    """Their times so far."""

    async def open(self) -> list[dict[str, Any]]:
        """Start the workers, warm; returns facts about each.

        Raises:
            BackendError: the backend cannot be opened.
            WorkerLost: a worker died while it was opening.
        """

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        """Answer a batch of encoded calls in order; waits for a free worker.

        Raises:
            WorkerLost: the worker died or was late; it is replaced before the next batch.
        """

    async def close(self) -> None:
        """Stop all workers; a second close does nothing."""


OPEN_ATTEMPTS = 3
"""A pool is opened so often while what ends its workers comes from outside."""

PoolFactory = Callable[[PoolSpec, PoolLimits], Pool]


class _Thread:
    """A daemon thread that runs functions in turn; a stuck call blocks no exit."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Callable[..., None]] | None]
        self._jobs = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, report = job
            try:
                result = function()
            except BaseException as exc:  # reported to the waiting coroutine, which raises it
                report(None, exc)
            else:
                report(result, None)

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function there and wait for it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def report(result: Any, error: BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        self._jobs.put((function, report))
        return await future

    def end(self) -> None:
        """Let the thread end after what it is doing."""
        self._jobs.put(None)


class InlinePool:
    """One worker in a thread of this process: SQLite and llama.cpp keep their thread.

    A late call cannot be killed in a thread. Its thread is abandoned, with whatever it holds, and
    a new one opens the backend again; a crash of the library ends the process.
    """

    def __init__(self, spec: PoolSpec, limits: PoolLimits) -> None:
        self.spec = spec
        self.limits = limits._replace(workers=1)
        self.meter = Meter()
        self._thread: _Thread | None = None
        self._host: Host | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> list[dict[str, Any]]:
        """Start the thread and open the backend in it."""
        async with self._turn:
            return [await self._start()]

    async def _start(self) -> dict[str, Any]:
        thread = _Thread(f"gno-dist {self.spec.label}")
        host = Host(self.spec, self.limits.threads)
        self.meter.started(thread)
        try:
            info: dict[str, Any] = await thread.run(host.start)
        except BaseException:
            self.meter.ended(thread)
            thread.end()
            raise
        self.meter.loaded(thread)
        self._thread, self._host = thread, host
        return info

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        """Answer a batch in the thread; one batch at a time."""
        async with self._turn:
            if self._thread is None or self._host is None:
                await self._start()
            thread, host = self._thread, self._host
            assert thread is not None
            assert host is not None
            asked = time.monotonic()
            try:
                async with asyncio.timeout(self.limits.attempt_timeout_s):
                    replies, inside_s = await thread.run(lambda: host.timed(batch))
            except BaseException as exc:
                # Late or cancelled: the thread may still be inside the library. Never reuse it.
                self._abandon()
                if isinstance(exc, TimeoutError):
                    self.meter.lost["timeout"] += 1
                    raise late(self.spec, self.limits) from None
                raise
            self.meter.worked(inside_s, time.monotonic() - asked)
            answered: list[bytes] = replies
            return answered

    def _abandon(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self.meter.ended(self._thread)
        self._thread = self._host = None

    async def close(self) -> None:
        """Close the backend in its thread."""
        async with self._turn:
            if self._thread is not None and self._host is not None:
                await self._thread.run(self._host.stop)
            self._abandon()


def late(spec: PoolSpec, limits: PoolLimits) -> WorkerLost:
    """The loss of a worker that did not answer in time."""
    detail = f"no answer within {limits.attempt_timeout_s:g} s (--attempt-timeout)"
    return WorkerLost(spec.label, "timeout", detail)


class PoolSet:
    """The pools of a job by key, opened when first asked for, closed when no longer needed."""

    def __init__(
        self,
        specs: Mapping[str, PoolSpec],
        factory: PoolFactory,
        limits_of: Callable[[PoolSpec], PoolLimits],
        on_open: Callable[[PoolSpec, list[dict[str, Any]]], None] = lambda spec, facts: None,
    ) -> None:
        self._specs = specs
        self._factory = factory
        self._limits_of = limits_of
        self._on_open = on_open
        self._open: dict[str, asyncio.Task[Pool]] = {}
        self.meters: dict[str, Meter] = {}
        """Key -> meter of every pool so far, open or closed."""

    async def get(self, key: str) -> Pool:
        """The open pool of a key; concurrent first callers share one opening."""
        if key not in self._open:
            self._open[key] = asyncio.create_task(self._start(key))
        return await asyncio.shield(self._open[key])

    async def _start(self, key: str) -> Pool:
        spec = self._specs[key]
        pool = self._factory(spec, self._limits_of(spec))
        self.meters[key] = pool.meter
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            try:
                facts = await pool.open()
            except WorkerLost as lost:
                await pool.close()
                pool.meter.lost[lost.reason] += 1
                if lost.reason in OUTSIDE and attempt < OPEN_ATTEMPTS:
                    continue
                hint = "its process ended while it opened; `gno-dist doctor` tests this machine"
                raise BackendError(spec.label, f"{hint} ({lost.detail})") from None
            break
        self._on_open(spec, facts)
        return pool

    async def keep_only(self, keys: frozenset[str]) -> None:
        """Close every pool that is not among ``keys``."""
        for key in [key for key in self._open if key not in keys]:
            task = self._open.pop(key)
            if not task.done():
                task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(outcome, BaseException):
                await outcome.close()

    async def close(self) -> None:
        """Close all pools."""
        await self.keep_only(frozenset())
