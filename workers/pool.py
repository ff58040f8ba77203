"""RayPool: warm actors for one backend behind an idle queue.

Actors are never restarted by Ray: that hides why one died and takes longer than a new one. A place
in the queue is a worker, or None where one was lost; the next batch starts its replacement. A late
or frozen one is killed, never handed on. One batch is with a worker at a time, so that the calls it
was executing when it was lost are known; one that dies idle costs nobody an attempt.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil
import ray
from ray.exceptions import RayTaskError

from gno_dist.calls import PoolSpec
from gno_dist.errors import BackendError, GnoDistError, WorkerLost
from gno_dist.meter import Meter
from gno_dist.pool import PoolLimits, late
from workers.actor import HostActor
from workers.autopsy import cause_of_death, last_words, oom_kills, pid_named_in
from workers.cluster import RayCluster
from workers.failures import LOST, worker_lost

SCHEDULE_TIMEOUT_S = 60.0
"""An actor that no node has room for waits forever, and Ray says nothing."""
START_TIMEOUT_S = 600.0
"""Building a large index happens in an actor's start."""
BEAT_EVERY_S = 1.0
"""A batch that takes longer is asked about this often."""
FROZEN_AFTER_S = 15.0
"""Without an answer to that for so long, the process is stopped or its host is."""

END_S = 2.0
"""A worker that is told to end has so long."""

_remote: Any = ray.remote  # its annotations do not know concurrency groups
_ACTOR = _remote(
    max_restarts=0, max_task_retries=0, concurrency_groups={"run": 1, "ctl": 1, "life": 1}
)(HostActor)
"""``run`` has one thread, since models are not thread-safe; the others answer beside it."""


class _Worker:
    """An actor with what is known of its process."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.pid = 0
        self.process: psutil.Process | None = None
        """The process, where it runs on this host."""
        self.oom_kills = oom_kills()
        self.life: asyncio.Task[None] | None = None

    @property
    def dead(self) -> bool:
        """Whether its process is known to have ended."""
        return self.life is not None and self.life.done()

    async def beat(self) -> int:
        """Ask it for a sign of life; returns its resident bytes."""
        self.pid, rss = await self.actor.beat.remote()
        return int(rss)

    async def outlive(self) -> None:
        """Return when the process has ended."""
        with suppress(*LOST):
            await self.actor.live.remote()


class RayPool:
    """Actors that each hold the backend warm."""

    def __init__(self, spec: PoolSpec, limits: PoolLimits, cluster: RayCluster) -> None:
        self.spec = spec
        self.limits = limits
        self.meter = Meter()
        self._cluster = cluster
        self._idle: asyncio.Queue[_Worker | None] = asyncio.Queue()
        self._workers: set[_Worker] = set()
        self._ending: list[psutil.Process] = []

    async def open(self) -> list[dict[str, Any]]:
        """Start all actors; the first alone, so that an index is built once before the others."""
        self._cluster.start()
        started = [await self._start()]
        more = [self._start() for _ in range(1, self.limits.workers)]
        for outcome in await asyncio.gather(*more, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
            started.append(outcome)
        for worker, _ in started:
            self._idle.put_nowait(worker)
        return [facts for _, facts in started]

    async def _start(self) -> tuple[_Worker, dict[str, Any]]:
        """A new warm worker and facts about it.

        Raises:
            WorkerLost: it died or was not ready in time.
            BackendError: no node has room for it; or the backend's own error, as it raised it.
        """
        limits = self.limits
        options = _ACTOR.options(num_cpus=limits.cpus, num_gpus=limits.gpus or None)
        worker = _Worker(options.remote(self.spec, limits.threads))
        self._workers.add(worker)
        self.meter.started(worker)
        try:
            await self._be_scheduled(worker)
            async with asyncio.timeout(START_TIMEOUT_S):
                facts: dict[str, Any] = await worker.actor.start.remote()
                self.meter.peak_rss = max(self.meter.peak_rss, await worker.beat())
        except BaseException as exc:
            lost = self._lost(worker, exc)
            self._drop(worker)
            if lost is None:
                raise
            raise lost from None
        self.meter.loaded(worker)
        worker.life = asyncio.create_task(worker.outlive())
        return worker, facts

    async def _be_scheduled(self, worker: _Worker) -> None:
        try:
            async with asyncio.timeout(SCHEDULE_TIMEOUT_S):
                await worker.beat()
            if self._cluster.logs is not None:
                worker.process = psutil.Process(worker.pid)
        except TimeoutError:
            wanted = f"{self.limits.cpus:g} CPUs and {self.limits.gpus:g} GPUs"
            raise BackendError(
                self.spec.label,
                f"no node had room for a worker within {SCHEDULE_TIMEOUT_S:g} s: it asks for"
                f" {wanted}, free are {self._cluster.free()}; lower --actors",
            ) from None

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        """Answer a batch on the next free worker."""
        worker, free = await self._idle.get(), None
        try:
            if worker is not None and worker.dead:  # while it was idle: no call is to blame
                self._drop(worker)
                worker = None
            if worker is None:
                worker, _ = await self._start()
            asked = time.monotonic()
            replies, inside_s = await self._answered(worker, batch)
            self.meter.worked(inside_s, time.monotonic() - asked)
            free = worker
            return replies
        except RayTaskError as exc:  # the call came back: the worker is free
            free = worker
            raise _own_error(exc) from None
        except Exception as exc:
            lost = self._lost(worker, exc) if worker is not None else None
            if lost is None:
                raise
            self.meter.lost[lost.reason] += 1
            raise lost from None
        finally:
            if free is None and worker is not None:
                self._drop(worker)
                await self._see_them_end()
            self._idle.put_nowait(free)

    async def _answered(self, worker: _Worker, batch: Sequence[bytes]) -> tuple[list[bytes], float]:
        """The replies and the seconds inside the worker; asks for signs of life meanwhile.

        Raises:
            TimeoutError: the attempt is over its deadline.
            WorkerLost: no sign of life.
        """

        async def answer() -> tuple[list[bytes], float]:
            # JSON in one line each: one object travels faster than many.
            replies, inside_s = await worker.actor.run.remote(b"\n".join(batch))
            return replies.split(b"\n"), inside_s

        working = asyncio.ensure_future(answer())
        began = seen = time.monotonic()
        try:
            while True:
                await asyncio.wait({working}, timeout=BEAT_EVERY_S)
                if working.done():
                    return working.result()
                if time.monotonic() - began >= self.limits.attempt_timeout_s:
                    raise TimeoutError
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_EVERY_S):
                        rss = await worker.beat()
                        self.meter.peak_rss = max(self.meter.peak_rss, rss)
                        seen = time.monotonic()
                if time.monotonic() - seen >= FROZEN_AFTER_S:
                    detail = f"no sign of life for {FROZEN_AFTER_S:g} s"
                    raise WorkerLost(self.spec.label, "frozen", detail)
        finally:
            working.cancel()

    def _lost(self, worker: _Worker, exc: BaseException) -> WorkerLost | None:
        """The loss that an exception means; None when it is none."""
        if isinstance(exc, WorkerLost):
            return exc
        if isinstance(exc, TimeoutError):
            return late(self.spec, self.limits)
        if not isinstance(exc, LOST):
            return None
        folder = self._cluster.logs
        pid = worker.pid or pid_named_in(str(exc))
        if folder is None or not pid:  # on another host, or it never ran
            return worker_lost(self.spec.label, exc)
        words = last_words(folder, pid)
        death = cause_of_death(str(exc), words, oom_kills() - worker.oom_kills)
        return worker_lost(self.spec.label, exc, death)

    def _drop(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        self.meter.ended(worker)
        if worker.life is not None:
            worker.life.cancel()
        ray.kill(worker.actor)
        if worker.process is not None:
            self._ending.append(worker.process)

    async def pids(self) -> list[int]:
        """Process ids of the live workers."""
        return [worker.pid for worker in self._workers if not worker.dead]

    async def close(self) -> None:
        """End all workers: their memory, and a GPU's, is free when this returns."""
        for worker in list(self._workers):
            self._drop(worker)
        await self._see_them_end()

    async def _see_them_end(self) -> None:
        """Ray asks a process to end itself, which one that is stopped never does."""
        deadline = time.monotonic() + END_S
        while self._ending:
            self._ending = [process for process in self._ending if process.is_running()]
            if time.monotonic() > deadline:
                for process in self._ending:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            await asyncio.sleep(0.02)


def _own_error(exc: RayTaskError) -> Exception:
    """The exception that was raised in the actor, when it is one of ours; else Ray's."""
    cause = exc.cause
    if isinstance(cause, GnoDistError) and not isinstance(cause, WorkerLost):
        return cause
    return exc


class RayPools:
    """A factory of RayPools that share one cluster; for ``PoolSet``."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster

    def __call__(self, spec: PoolSpec, limits: PoolLimits) -> RayPool:
        """A pool that is not open yet."""
        return RayPool(spec, limits, self._cluster)
