"""``plan --resources``: what each group of pools would get on this machine, and whether it fits."""

from collections.abc import Mapping, Sequence
from typing import Any

from gno_dist.backends.paths import measured_file
from gno_dist.cli.console import show, show_json, show_table
from gno_dist.cli.execute import workers_by_role
from gno_dist.machine import this_machine
from gno_dist.measured import read_measured
from gno_dist.placement import Machine, memory_of, place_groups
from gno_dist.plan import Group, Plan
from gno_dist.pool import PoolLimits


def show_resources(plan: Plan, actors: Sequence[str], *, as_json: bool) -> None:
    """Print placement; nothing is opened.

    Raises:
        ConfigError: ``--actors`` is wrong.
    """
    found = resources(plan, this_machine(), workers_by_role(actors), read_measured(measured_file()))
    if as_json:
        show_json(found)
        return
    machine = found["machine"]
    show(
        f"This machine: {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.1f} GiB free,"
        f" {machine['gpus']} GPUs"
    )
    for number, group in enumerate(found["groups"], start=1):
        show(f"\nGroup {number}: {group['units']} units, {group['memory_bytes'] / 2**30:.1f} GiB")
        if group["skipped"]:
            show(f"  SKIPPED: {group['skipped']}")
        header = ["pool", "workers", "threads", "CPUs", "GPUs", "MiB", "size is"]
        show_table(header, [list(map(_cell, pool.values())) for pool in group["pools"]])


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def resources(
    plan: Plan, machine: Machine, workers: Mapping[str, int], measured: Mapping[str, int]
) -> dict[str, Any]:
    """Machine and groups as plain data."""
    placed = place_groups(plan, machine, workers=workers, measured=measured)
    reasons = {group.pools: reason for group, reason in placed.skipped}

    def pool(key: str) -> dict[str, Any]:
        spec = plan.pools[key]
        limits = placed.limits.get(key, PoolLimits(threads=0, cpus=0.0))
        size = memory_of(spec, limits.workers, measured.get(key, 0))
        return {
            "pool": spec.label,
            "workers": limits.workers,
            "threads": limits.threads,
            "cpus": limits.cpus,
            "gpus": limits.gpus,
            "memory_mib": size // 2**20,
            "size": "measured" if key in measured else "estimated",
        }

    def entry(group: Group) -> dict[str, Any]:
        pools = sorted(map(pool, group.pools), key=lambda found: str(found["pool"]))
        return {
            "units": plan.units_of(group),
            "memory_bytes": sum(found["memory_mib"] for found in pools) * 2**20,
            "skipped": reasons.get(group.pools),
            "pools": pools,
        }

    return {
        "version": 1,
        "machine": machine._asdict(),
        "groups": [entry(group) for group in plan.groups],
    }
