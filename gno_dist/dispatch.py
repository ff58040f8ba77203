"""Getting calls answered by a pool that may lose workers: batches, then one by one, then a fault.

This is the one place that repeats anything. A lost batch says nothing about which call did it, so
its calls run alone on fresh workers; a call that loses two workers alone becomes a fault. A worker
that froze or was killed from outside says nothing about its call: that one runs again uncharged, a
few times.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from gno_dist.backends.host import decode_reply, encode_call
from gno_dist.calls import Call, Fault, Reply
from gno_dist.errors import OUTSIDE, WorkerLost
from gno_dist.pool import Pool

SOLO_ATTEMPTS = 2
UNCHARGED_ATTEMPTS = 5
"""A call whose workers were lost this often, alone, is charged after all: else it ran forever."""
BATCH_S = 0.5
"""A batch is cut for about this much work: overhead is small, and a lost one is soon made again."""
FIRST_BATCH = 8
MAX_BATCH = 256

OnLoss = Callable[[WorkerLost, int], None]
"""Told of every lost worker, with the number of calls in its batch."""


class Dispatcher:
    """Answers calls on pools, and learns how long they take; one for a whole job."""

    def __init__(self, on_loss: OnLoss = lambda lost, n_calls: None) -> None:
        self._on_loss = on_loss
        self._call_s: dict[tuple[str, str], float] = {}
        self.last_progress = time.monotonic()
        """When a batch last came back, or was lost."""

    async def answer(self, pool: Pool, calls: Sequence[Call]) -> list[Reply | Fault]:
        """Answer all calls of one stage, in order; batches run on as many workers as are free.

        1. A batch whose worker is lost runs again, each call alone.
        2. A call alone whose worker is lost runs once more.
        3. Lost again, it becomes a fault that names the cause.
        """
        parts = self._cut(pool, calls)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._batch(pool, part)) for part in parts]
        return [reply for task in tasks for reply in task.result()]

    def _cut(self, pool: Pool, calls: Sequence[Call]) -> list[Sequence[Call]]:
        """Batches of about ``BATCH_S``, and as many as there are workers."""
        if not calls:
            return []
        known = self._call_s.get((pool.spec.key, calls[0].stage))
        size = FIRST_BATCH if known is None else int(BATCH_S / max(known, 1e-6))
        share = -(-len(calls) // pool.limits.workers)
        size = max(1, min(size, share, MAX_BATCH))
        return [calls[start : start + size] for start in range(0, len(calls), size)]

    async def _batch(self, pool: Pool, calls: Sequence[Call]) -> list[Reply | Fault]:
        try:
            return await self._run(pool, calls)
        except WorkerLost as lost:
            if len(calls) == 1:
                return [await self._alone(pool, calls[0], [lost])]
            return [await self._alone(pool, call, []) for call in calls]

    async def _alone(self, pool: Pool, call: Call, losses: list[WorkerLost]) -> Reply | Fault:
        """Run one call alone; ``losses``: those of its solo attempts so far."""
        while not _is_poison(losses):
            try:
                (reply,) = await self._run(pool, [call])
                return reply
            except WorkerLost as lost:
                losses.append(lost)
        # What came from outside must not show in a record: its digest is the same each time.
        charged = [lost for lost in losses if lost.reason not in OUTSIDE] or losses
        last = charged[-1]
        return Fault(
            f"WorkerLost ({last.reason})",
            f"{len(charged)} workers were lost on this call alone",
            timed_out=last.reason == "timeout",
            detail=last.detail,
        )

    async def _run(self, pool: Pool, calls: Sequence[Call]) -> list[Reply | Fault]:
        try:
            replies = [decode_reply(data) for data in await pool.run(list(map(encode_call, calls)))]
        except WorkerLost as lost:
            self._on_loss(lost, len(calls))
            raise
        finally:
            self.last_progress = time.monotonic()
        times = [reply.ms / 1000.0 for reply in replies if isinstance(reply, Reply)]
        if times:
            key, latest = (pool.spec.key, calls[0].stage), sum(times) / len(times)
            self._call_s[key] = 0.7 * self._call_s.get(key, latest) + 0.3 * latest
        return replies


def _is_poison(losses: Sequence[WorkerLost]) -> bool:
    charged = sum(lost.reason not in OUTSIDE for lost in losses)
    return charged >= SOLO_ATTEMPTS or len(losses) >= UNCHARGED_ATTEMPTS
