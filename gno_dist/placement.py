"""How many workers and threads each pool of a group gets, and whether they fit together; pure.

Never more threads than cores over all workers of a group, where every worker needs at least one;
memory is the model file plus what its context takes. Changes no result.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from gno_dist.calls import PoolSpec
from gno_dist.errors import ConfigError
from gno_dist.pool import PoolLimits

WORKER_BYTES = 150 * 2**20
"""A Python worker with its libraries."""
CONTEXT_BYTES = 700 * 2**20
"""Kept prompt states and logits of a language model worker."""
INDEX_BYTES = 250 * 2**20
"""An index worker with the embedder's weights."""


class Machine(NamedTuple):
    """What is free."""

    cores: int
    memory_bytes: int


def this_machine() -> Machine:
    """Cores this process may use, and available memory."""
    import os

    import psutil

    return Machine(len(os.sched_getaffinity(0)), psutil.virtual_memory().available)


def memory_of(spec: PoolSpec, workers: int) -> int:
    """Bytes that a pool's workers take together; weights are mapped once a host."""
    if spec.kind == "llama":
        return int(spec.location.get("bytes", 0)) + workers * (WORKER_BYTES + CONTEXT_BYTES)
    return workers * (WORKER_BYTES + INDEX_BYTES)


def role_of(spec: PoolSpec) -> str:
    """The name by which ``--actors`` counts a pool: ``search`` or ``llm``."""
    return "search" if spec.kind == "index" else "llm"


def place(
    specs: Mapping[str, PoolSpec],
    machine: Machine,
    *,
    workers: Mapping[str, int] | None = None,
    attempt_timeout_s: float = 120.0,
) -> dict[str, PoolLimits]:
    """Limits of each pool of one group.

    1. Each pool has one worker, or the number given for its role.
    2. An index worker has one thread: its embedder's barriers spin.
    3. The cores that are left are shared evenly by the language model workers, at least one each.

    Args:
        specs: pools that are open together, by key.
        machine: what is free.
        workers: role (``search``, ``llm``) -> workers of each of its pools.
        attempt_timeout_s: deadline of a batch.

    Raises:
        ConfigError: the group does not fit the memory.
    """
    counts = {key: (workers or {}).get(role_of(spec), 1) for key, spec in specs.items()}
    needed = sum(memory_of(spec, counts[key]) for key, spec in specs.items())
    if needed > machine.memory_bytes:
        names = ", ".join(sorted(spec.label for spec in specs.values()))
        raise ConfigError(
            "memory",
            [
                f"{names} need about {needed / 2**30:.1f} GiB together and"
                f" {machine.memory_bytes / 2**30:.1f} GiB are free; lower --actors or the sweep"
            ],
        )
    searching = sum(counts[key] for key, spec in specs.items() if spec.kind == "index")
    thinking = sum(counts[key] for key, spec in specs.items() if spec.kind != "index")
    threads = max(1, (machine.cores - searching) // max(1, thinking))
    share = min(1.0, machine.cores / max(1, searching + threads * thinking))
    limits = {}
    for key, spec in specs.items():
        own = 1 if spec.kind == "index" else threads
        cpus = math.floor(own * share * 1000) / 1000
        limits[key] = PoolLimits(counts[key], own, cpus, attempt_timeout_s)
    return limits
