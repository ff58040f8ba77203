"""Running a plan in a job folder from end to end: wiring, and nothing else.

Opens journal, cache and pools, runs the loop, and writes the reports whatever happened. The same
for a new job and a resumed one: what the journal holds is not run again.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from gno_dist import files
from gno_dist.backends.passages import PassageTexts
from gno_dist.cache import ReplyCache
from gno_dist.calls import PoolSpec
from gno_dist.errors import JournalDamaged
from gno_dist.flow import Flow
from gno_dist.journal import Journal
from gno_dist.observe import MemoryWatch
from gno_dist.placement import Machine, place
from gno_dist.plan import Plan, Unit
from gno_dist.pool import PoolFactory, PoolLimits, PoolSet
from gno_dist.records import UnitRecord
from gno_dist.reduce import Reducer
from gno_dist.report import markdown
from gno_dist.report.summary import summarise
from gno_dist.report.verdict import verdict
from gno_dist.runner import RunLimits, run_job
from gno_dist.trials import Passage, fingerprint


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


class Events(NamedTuple):
    """What a watcher is told."""

    on_record: Callable[[UnitRecord], None] = lambda record: None
    on_open: Callable[[PoolSpec, list[dict[str, Any]]], None] = lambda spec, facts: None


def limits_by_pool(plan: Plan, execution: Execution) -> dict[str, PoolLimits]:
    """Placement of all groups; a pool of several groups gets the least of its limits.

    Raises:
        ConfigError: a group does not fit this machine.
    """
    limits: dict[str, PoolLimits] = {}
    for group in plan.groups:
        placed = place(
            {key: plan.pools[key] for key in group.pools},
            execution.machine,
            workers=execution.workers,
            attempt_timeout_s=execution.attempt_timeout_s,
        )
        for key, own in placed.items():
            known = limits.get(key, own)
            limits[key] = min(known, own, key=lambda limit: (limit.threads, limit.cpus))
    return limits


async def execute(
    plan: Plan, folder: Path, execution: Execution, events: Events | None = None
) -> dict[str, Any]:
    """Run what the journal lacks and write summary.json and report.md; returns the summary.

    Raises:
        ConfigError: a group does not fit this machine.
        JournalDamaged: a record is of another unit than the plan's.
        GnoDistError: the job stopped early; a partial summary is written before it is raised.
    """
    events = events or Events()
    limits = limits_by_pool(plan, execution)
    started = time.monotonic()
    reducer = Reducer()
    opened: list[dict[str, Any]] = []

    def on_open(spec: PoolSpec, facts: list[dict[str, Any]]) -> None:
        opened.extend({"label": spec.label, **fact} for fact in facts)
        events.on_open(spec, facts)

    pools = PoolSet(plan.pools, execution.factory, lambda spec: limits[spec.key], on_open)
    path = folder / "journal.jsonl"
    with (
        closing(Journal(path, plan.n_units, forget_failed=execution.retry_failed)) as journal,
        closing(ReplyCache(execution.cache_file)) as cache,
    ):
        _replay(plan, journal, reducer)
        already = journal.n_done
        flow = Flow(pools, cache, passages_of(plan))
        try:
            with MemoryWatch() as memory:
                if journal.n_done < plan.n_units:
                    await run_job(
                        plan, flow, pools, journal, reducer, execution.limits, events.on_record
                    )
        finally:
            await pools.close()
            run = {
                "wall_s": time.monotonic() - started,
                "units_run": journal.n_done - already,
                "calls_made": flow.made_calls,
                "calls_shared": flow.shared_calls,
                "stage_s": dict(flow.stage_s),
                "pools": opened,
                "peak_rss_bytes": memory.peak_bytes,
            }
            summary = write_reports(plan, journal, reducer, folder, run)
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
    """Write summary.json and report.md from the journal; returns the summary."""
    digest = fingerprint(plan, journal.plain())
    summary = summarise(plan, reducer, fingerprint=digest, run=run)
    summary["verdict"] = verdict(plan, reducer)
    files.write_json(folder / "summary.json", summary)
    files.write_text(folder / "report.md", markdown.render(summary))
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
