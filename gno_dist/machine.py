"""What this machine has for us: cores, memory and GPUs, as its limits for this process say.

A container may hold fewer cores and less memory than the host shows; both kinds of control groups
are read. Knows nothing of pools.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import psutil

from gno_dist.placement import Machine

GROUPS = Path("/sys/fs/cgroup")


def this_machine() -> Machine:
    """Cores this process may use, available memory, visible GPUs."""
    return Machine(cores(), memory(), gpus())


def cores(groups: Path = GROUPS) -> int:
    """Cores by affinity and by the control group's quota, at least one."""
    quota, period = _numbers(groups / "cpu.max", 2) or (
        *(_numbers(groups / "cpu/cpu.cfs_quota_us", 1) or (-1,)),
        *(_numbers(groups / "cpu/cpu.cfs_period_us", 1) or (1,)),
    )
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, quota // period)) if quota > 0 and period > 0 else allowed


def memory(groups: Path = GROUPS) -> int:
    """Available bytes, of the machine and within the control group."""
    free = int(psutil.virtual_memory().available)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        if (most := _numbers(groups / limit, 1)) and (taken := _numbers(groups / used, 1)):
            free = min(free, max(0, most[0] - taken[0]))
    return free


def gpus() -> int:
    """NVIDIA GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in {"", "-1"}])
    return sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in Path("/dev").glob("nvidia*"))


def _numbers(path: Path, count: int) -> Sequence[int] | None:
    """The first ``count`` numbers of a file; None without it, or where it says "max"."""
    try:
        words = path.read_text(encoding="ascii").split()[:count]
        return tuple(map(int, words)) if len(words) == count else None
    except (OSError, ValueError):
        return None
