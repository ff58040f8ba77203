"""How many workers and threads each pool of a group gets, and whether they fit together; pure.

Never more threads than cores over all workers of a group, where every worker needs at least one;
memory is the model file plus what its context takes. Changes no result.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gno_dist.calls import PoolSpec
from gno_dist.plan import Group, Plan
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
    gpus: int = 0


class DoesNotFit(Exception):
    """A group needs more than the machine has; the message says what and how much."""


def memory_of(spec: PoolSpec, workers: int, measured: int = 0) -> int:
    """Bytes that a pool's workers take together; weights are mapped once a host.

    Args:
        spec: the pool.
        workers: how many it has.
        measured: greatest resident size of one worker of it in an earlier run, weights included.
    """
    if spec.kind == "llama":
        weights = int(spec.location.get("bytes", 0))
        own = WORKER_BYTES + CONTEXT_BYTES
        return weights + workers * (max(WORKER_BYTES, measured - weights) if measured else own)
    return workers * (measured or WORKER_BYTES + INDEX_BYTES)


def role_of(spec: PoolSpec) -> str:
    """The name by which ``--actors`` counts a pool: ``search`` or ``llm``."""
    return "search" if spec.kind == "index" else "llm"


def place(
    specs: Mapping[str, PoolSpec],
    machine: Machine,
    *,
    workers: Mapping[str, int] | None = None,
    attempt_timeout_s: float = 120.0,
    measured: Mapping[str, int] | None = None,
) -> dict[str, PoolLimits]:
    """Limits of each pool of one group.

    1. Each pool has one worker, or the number given for its role.
    2. An index worker has one thread: its embedder's barriers spin.
    3. The cores that are left are shared evenly by the language model workers, at least one each.
    4. Workers whose model has layers on a GPU share the GPUs evenly.

    Args:
        specs: pools that are open together, by key.
        machine: what is free.
        workers: role (``search``, ``llm``) -> workers of each of its pools.
        attempt_timeout_s: deadline of a batch.
        measured: pool key -> resident bytes of one worker in an earlier run.

    Raises:
        DoesNotFit: the group needs more memory, or a GPU.
    """
    counts = {key: (workers or {}).get(role_of(spec), 1) for key, spec in specs.items()}
    known = measured or {}
    needed = sum(memory_of(spec, counts[key], known.get(key, 0)) for key, spec in specs.items())
    if needed > machine.memory_bytes:
        names = ", ".join(sorted(spec.label for spec in specs.values()))
        raise DoesNotFit(
            f"{names} need about {needed / 2**30:.1f} GiB together and"
            f" {machine.memory_bytes / 2**30:.1f} GiB are free; lower --actors or the sweep"
        )
    on_gpu = [key for key, spec in specs.items() if spec.identity.get("gpu_layers")]
    if on_gpu and not machine.gpus:
        names = ", ".join(sorted(specs[key].label for key in on_gpu))
        raise DoesNotFit(f"{names} want a GPU (gpu_layers) and there is none; set gpu_layers to 0")
    searching = sum(counts[key] for key, spec in specs.items() if spec.kind == "index")
    thinking = sum(counts[key] for key, spec in specs.items() if spec.kind != "index")
    threads = max(1, (machine.cores - searching) // max(1, thinking))
    share = min(1.0, machine.cores / max(1, searching + threads * thinking))
    gpu = min(1.0, machine.gpus / max(1, sum(counts[key] for key in on_gpu)))
    limits = {}
    for key, spec in specs.items():
        own = 1 if spec.kind == "index" else threads
        limits[key] = PoolLimits(
            workers=counts[key],
            threads=own,
            cpus=_cut(own * share),
            gpus=_cut(gpu) if key in on_gpu else 0.0,
            attempt_timeout_s=attempt_timeout_s,
        )
    return limits


def _cut(share: float) -> float:
    """Three digits, so that the shares' sum stays below the whole."""
    return math.floor(share * 1000) / 1000


class Placement(NamedTuple):
    """Which groups run here, and with what."""

    limits: Mapping[str, PoolLimits]
    """Pool key -> limits; a pool of several groups has the least of them."""
    groups: Sequence[Group]
    """Those that fit."""
    skipped: Sequence[tuple[Group, str]]
    """Those that do not, with the reason."""


def place_groups(
    plan: Plan,
    machine: Machine,
    *,
    workers: Mapping[str, int] | None = None,
    attempt_timeout_s: float = 120.0,
    measured: Mapping[str, int] | None = None,
) -> Placement:
    """Place every group of a plan; a group whose pools do not fit together is skipped."""
    limits: dict[str, PoolLimits] = {}
    fitting, skipped = [], []
    for group in plan.groups:
        try:
            placed = place(
                {key: plan.pools[key] for key in group.pools},
                machine,
                workers=workers,
                attempt_timeout_s=attempt_timeout_s,
                measured=measured,
            )
        except DoesNotFit as exc:
            skipped.append((group, str(exc)))
            continue
        fitting.append(group)
        for key, own in placed.items():
            known = limits.get(key, own)
            limits[key] = min(known, own, key=lambda limit: (limit.threads, limit.cpus))
    return Placement(limits, fitting, skipped)
