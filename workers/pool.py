"""RayPool: warm actors for one backend behind an idle queue.

Actors are never restarted by Ray: that hides why one died and takes longer than a new one. A place
in the queue is an actor, or None where one was lost; the next batch starts its replacement. A late
actor is killed, never handed on.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError

from gno_dist.calls import PoolSpec
from gno_dist.errors import GnoDistError, WorkerLost
from gno_dist.pool import PoolLimits
from workers.actor import HostActor
from workers.cluster import RayCluster
from workers.failures import LOST, worker_lost

START_TIMEOUT_S = 600.0
"""Building a large index happens in an actor's start."""

_remote: Any = ray.remote  # its annotations do not know concurrency groups
_ACTOR = _remote(max_restarts=0, max_task_retries=0, concurrency_groups={"run": 1, "ctl": 1})(
    HostActor
)
"""``run`` has one thread, since models are not thread-safe; ``ctl`` answers beside it."""


class RayPool:
    """Actors that each hold the backend warm."""

    def __init__(self, spec: PoolSpec, limits: PoolLimits, cluster: RayCluster) -> None:
        self.spec = spec
        self._limits = limits
        self._cluster = cluster
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        self._actors: set[Any] = set()

    async def open(self) -> list[dict[str, Any]]:
        """Start all actors; the first alone, so that an index is built once before the others."""
        self._cluster.start()
        facts = []
        for _ in range(self._limits.workers):
            actor, info = await self._start_actor()
            facts.append(info)
            self._idle.put_nowait(actor)
        return facts

    async def _start_actor(self) -> tuple[Any, dict[str, Any]]:
        """A new warm actor.

        Raises:
            WorkerLost: it died or was not ready in time.
            GnoDistError: the backend's own error, as it raised it.
        """
        actor = _ACTOR.options(num_cpus=self._limits.cpus).remote(self.spec, self._limits.threads)
        self._actors.add(actor)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                return actor, await actor.start.remote()
        except RayTaskError as exc:
            self._drop(actor)
            raise _own_error(exc) from None
        except LOST as exc:
            self._drop(actor)
            raise worker_lost(self.spec.label, exc) from None
        except BaseException:
            self._drop(actor)
            raise

    async def run(self, batch: Sequence[bytes]) -> list[bytes]:
        """Answer a batch on the next free actor."""
        actor, free = await self._idle.get(), None
        try:
            if actor is None:
                actor, _ = await self._start_actor()
            async with asyncio.timeout(self._limits.attempt_timeout_s):
                replies: list[bytes] = await actor.run.remote(list(batch))
            free = actor
            return replies
        except RayTaskError as exc:  # the call came back: the actor is free
            free = actor
            raise _own_error(exc) from None
        except LOST as exc:
            raise worker_lost(self.spec.label, exc) from None
        finally:
            if free is None and actor is not None:
                self._drop(actor)
            self._idle.put_nowait(free)

    def _drop(self, actor: Any) -> None:
        self._actors.discard(actor)
        ray.kill(actor)

    async def pids(self) -> list[int]:
        """Process ids of the live actors."""
        return [await actor.pid.remote() for actor in list(self._actors)]

    async def close(self) -> None:
        """Kill all actors: their memory, and a GPU's, is free at once."""
        for actor in list(self._actors):
            self._drop(actor)


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
