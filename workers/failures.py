"""One table from ray's exceptions to why a worker was lost; whatever is not in it is a bug of ours.

Ray reports a dead worker by many types, some of which are not subclasses of ``RayActorError``.
Where the table says "died", the process itself may tell more: see ``autopsy``.
"""

from ray import exceptions as ray_errors

from gno_dist.errors import LostReason, WorkerLost
from workers.autopsy import Death

TABLE: dict[type[BaseException], LostReason] = {
    ray_errors.OutOfMemoryError: "oom",
    ray_errors.NodeDiedError: "died",
    ray_errors.WorkerCrashedError: "died",
    ray_errors.RayActorError: "died",
    ray_errors.TaskCancelledError: "died",
    ray_errors.ObjectLostError: "died",
    ray_errors.LocalRayletDiedError: "died",
    TimeoutError: "timeout",
}
"""First matching row counts: more special types stand first."""

LOST = tuple(TABLE)


def worker_lost(backend: str, exc: BaseException, death: Death | None = None) -> WorkerLost:
    """The loss that an exception of ``LOST`` reports, with its cause in one line.

    Args:
        backend: label of the pool.
        exc: what Ray raised.
        death: what is known of the process's end, where it could be looked at.
    """
    reason = next(reason for kind, reason in TABLE.items() if isinstance(exc, kind))
    if reason == "died" and death is not None:
        return WorkerLost(backend, *death)
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return WorkerLost(backend, reason, " ".join(lines)[:300] or type(exc).__name__)
