"""Running a plan in a job folder from end to end: wiring, and nothing else.

Opens journal, cache and pools, runs the loop, and writes the reports whatever happened. The same
for a new job and a resumed one: what the journal holds is not run again.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from gno_dist import files
from gno_dist.backends.passages import PassageTexts
from gno_dist.cache import ReplyCache
from gno_dist.calls import PoolSpec
from gno_dist.dispatch import Dispatcher
from gno_dist.errors import ConfigError, JournalDamaged, StorageFailed, WorkerLost
from gno_dist.flow import Flow
from gno_dist.journal import Journal
from gno_dist.measured import keep_measured, read_measured
from gno_dist.observe import MemoryWatch
from gno_dist.placement import Machine, Placement, place_groups
from gno_dist.plan import Plan, Unit
from gno_dist.pool import PoolFactory, PoolSet
from gno_dist.records import UnitRecord
from gno_dist.reduce import Reducer
from gno_dist.report import markdown
from gno_dist.report.summary import summarise
from gno_dist.report.verdict import verdict
from gno_dist.runner import RunLimits, run_job
from gno_dist.trials import Passage, fingerprint
from gno_dist.watch import StatusWriter


class Execution(NamedTuple):
    """How a plan runs: nothing in here changes a result."""

    factory: PoolFactory
    machine: Machine
    cache_file: Path | None
    """None: replies are kept for this job only."""
    limits: RunLimits = RunLimits()
    workers: Mapping[str, int] = {}
    attempt_timeout_s: float = 120.0
    retry_failed: bool = False
    """Run units again whose record failed."""
    strict: bool = False
    """Refuse a job of which a group does not fit, instead of skipping the group."""
    measured_file: Path | None = None
    """Where the sizes of workers are kept for later placements."""


class Events(NamedTuple):
    """What a watcher is told."""

    on_record: Callable[[UnitRecord], None] = lambda record: None
    on_open: Callable[[PoolSpec, list[dict[str, Any]]], None] = lambda spec, facts: None
    on_loss: Callable[[WorkerLost, int], None] = lambda lost, n_calls: None
    on_stall: Callable[[str], None] = lambda message: None


def placement_of(plan: Plan, execution: Execution) -> Placement:
    """Which groups run on this machine, and with what.

    Raises:
        ConfigError: none fits, or with ``strict`` any does not.
    """
    placed = place_groups(
        plan,
        execution.machine,
        workers=execution.workers,
        attempt_timeout_s=execution.attempt_timeout_s,
        measured=read_measured(execution.measured_file),
    )
    if placed.skipped and (execution.strict or not placed.groups):
        raise ConfigError("resources", [reason for _, reason in placed.skipped])
    return placed


async def execute(
    plan: Plan, folder: Path, execution: Execution, events: Events | None = None
) -> dict[str, Any]:
    """Run what the journal lacks and write summary.json and report.md; returns the summary.

    Raises:
        ConfigError: as ``placement_of``.
        JournalDamaged: a record is of another unit than the plan's.
        GnoDistError: the job stopped early; a partial summary is written before it is raised.
    """
    events = events or Events()
    placed = placement_of(plan, execution)
    started = time.monotonic()
    reducer = Reducer()
    opened: list[dict[str, Any]] = []

    def on_open(spec: PoolSpec, facts: list[dict[str, Any]]) -> None:
        opened.extend({"label": spec.label, **fact} for fact in facts)
        events.on_open(spec, facts)

    pools = PoolSet(plan.pools, execution.factory, lambda spec: placed.limits[spec.key], on_open)
    path = folder / "journal.jsonl"
    with (
        closing(Journal(path, plan.n_units, forget_failed=execution.retry_failed)) as journal,
        closing(ReplyCache(execution.cache_file)) as cache,
    ):
        _replay(plan, journal, reducer)
        already = journal.n_done
        flow = Flow(pools, cache, passages_of(plan), Dispatcher(events.on_loss))
        memory = MemoryWatch()

        def run_so_far() -> dict[str, Any]:
            return {
                "wall_s": time.monotonic() - started,
                "units_run": journal.n_done - already,
                "calls_made": flow.made_calls,
                "calls_shared": flow.shared_calls,
                "stage_s": dict(flow.stage_s),
                "pools": opened,
                "worker_s": {
                    plan.pools[key].label: meter.shares()._asdict()
                    for key, meter in pools.meters.items()
                },
                "lost": dict(sum((meter.lost for meter in pools.meters.values()), Counter())),
                "peak_rss_bytes": memory.peak_bytes,
                "skipped": [
                    {
                        "pools": sorted(plan.pools[key].label for key in group.pools),
                        "units": plan.units_of(group),
                        "reason": reason,
                    }
                    for group, reason in placed.skipped
                ],
            }

        gc.collect()
        gc.freeze()  # suites and plan live as long as the job: no collection need look at them
        watch = StatusWriter(folder, plan, reducer, flow, run_so_far)
        state = "stopped"
        try:
            with memory:
                if journal.n_done < plan.n_units:
                    async with watch.running():
                        await run_job(
                            plan,
                            placed.groups,
                            flow,
                            pools,
                            journal,
                            reducer,
                            execution.limits,
                            events.on_record,
                            events.on_stall,
                        )
            state = "finished"
        finally:
            gc.unfreeze()
            await pools.close()
            peaks = {key: meter.peak_rss for key, meter in pools.meters.items() if meter.peak_rss}
            keep_measured(execution.measured_file, peaks)
            summary = write_reports(plan, journal, reducer, folder, run_so_far())
            watch.write(state)
    return summary


def _replay(plan: Plan, journal: Journal, reducer: Reducer) -> None:
    """Add what the journal holds to the totals; a record of another plan must not be among it."""
    if journal.n_done == 0:
        return
    ids = (unit.id for unit in plan.units() if journal.done(unit.number))
    for planned, record in zip(ids, journal.in_plan_order(), strict=True):
        if record.unit_id != planned:
            raise JournalDamaged(
                str(journal.path),
                0,
                f"unit {record.index} has id {record.unit_id[:12]}, planned is {planned[:12]};"
                " remove its line to run it again",
            )
        reducer.add(record)


def write_reports(
    plan: Plan, journal: Journal, reducer: Reducer, folder: Path, run: Mapping[str, Any]
) -> dict[str, Any]:
    """Write summary.json and report.md from the journal; returns the summary.

    Raises:
        StorageFailed: they cannot be written.
    """
    digest = fingerprint(plan, journal.plain())
    summary = summarise(plan, reducer, fingerprint=digest, run=run)
    summary["verdict"] = verdict(plan, reducer)
    try:
        files.write_json(folder / "summary.json", summary)
        files.write_text(folder / "report.md", markdown.render(summary))
    except OSError as exc:
        raise StorageFailed(str(folder), exc.strerror or str(exc)) from exc
    return summary


def passages_of(plan: Plan) -> Callable[[Unit], Passage]:
    """Unit -> passage texts of its suite's corpus at its point's chunking; kept once each."""
    known: dict[tuple[str, str], Passage] = {}

    def passage_of(unit: Unit) -> Passage:
        corpus = unit.suite.loaded.corpus
        if corpus is None:
            return _no_passages
        chunking = unit.point.spec.preset.chunking
        key = (corpus.digest, chunking.model_dump_json())
        if key not in known:
            known[key] = PassageTexts(corpus, chunking.model_dump())
        return known[key]

    return passage_of


def _no_passages(docid: str, seq: int) -> str:
    raise KeyError(f"{docid}#{seq}: this suite has no corpus")
