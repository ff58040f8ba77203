"""Getting calls answered by a pool that may lose workers: batches, then one by one, then a fault.

This is the one place that repeats anything. A lost batch says nothing about which call did it, so
its calls run alone on fresh workers; a call that loses two workers alone becomes a fault.
"""

import asyncio
from collections.abc import Sequence

from gno_dist.backends.host import decode_reply, encode_call
from gno_dist.calls import Call, Fault, Reply
from gno_dist.errors import WorkerLost
from gno_dist.pool import Pool

SOLO_ATTEMPTS = 2
BATCH = {"index": 64, "llama": 8}
"""Kind of pool -> calls in one batch: about a second of work."""
DEFAULT_BATCH = 16


async def answer(pool: Pool, calls: Sequence[Call]) -> list[Reply | Fault]:
    """Answer all calls, in order; batches run on as many workers as are free.

    1. A batch whose worker is lost runs again, each call alone.
    2. A call alone whose worker is lost runs once more.
    3. Lost again, it becomes a fault that names the cause.
    """
    size = BATCH.get(pool.spec.kind, DEFAULT_BATCH)
    parts = [calls[start : start + size] for start in range(0, len(calls), size)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_batch(pool, part)) for part in parts]
    return [reply for task in tasks for reply in task.result()]


async def _batch(pool: Pool, calls: Sequence[Call]) -> list[Reply | Fault]:
    try:
        return [decode_reply(data) for data in await pool.run([encode_call(c) for c in calls])]
    except WorkerLost as lost:
        if len(calls) == 1:
            return [await _alone(pool, calls[0], lost)]
        return [await _alone(pool, call, None) for call in calls]


async def _alone(pool: Pool, call: Call, lost: WorkerLost | None) -> Reply | Fault:
    """Run one call alone; ``lost`` is an earlier solo attempt's loss."""
    for _ in range(SOLO_ATTEMPTS - (lost is not None)):
        try:
            (data,) = await pool.run([encode_call(call)])
            return decode_reply(data)
        except WorkerLost as exc:
            lost = exc
    assert lost is not None
    message = f"{SOLO_ATTEMPTS} workers were lost on this call alone; the last: {lost.detail}"
    return Fault(f"WorkerLost ({lost.reason})", message, timed_out=lost.reason == "timeout")
