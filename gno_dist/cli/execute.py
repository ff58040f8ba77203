"""From a checked job to its result: what ``sweep``, ``run`` and ``resume`` share."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import typer
from pydantic import ValidationError

from gno_dist import jobs
from gno_dist.backends.paths import measured_file, reply_cache_file
from gno_dist.backends.resolve import check_models, pools_of
from gno_dist.cli.console import say, show, show_json, show_table
from gno_dist.cli.interrupt import Interruptible
from gno_dist.cli.options import PoolKind
from gno_dist.cli.progress import Progress, ProgressKind
from gno_dist.engine import Events, Execution, execute, placement_of
from gno_dist.errors import BackendError, ConfigError, GnoDistError, Interrupted, StorageFailed
from gno_dist.files import read_structured, write_json
from gno_dist.journal import Journal
from gno_dist.machine import this_machine
from gno_dist.manifest import manifest_of
from gno_dist.plan import Plan, lints
from gno_dist.pool import InlinePool, PoolFactory
from gno_dist.report import text
from gno_dist.report.summary import exit_code
from gno_dist.runner import RunLimits
from gno_dist.settings import Settings, load_settings
from gno_dist.sweep import LoadedJob


class Invocation(NamedTuple):
    """What one call of the command line wants beside the settings."""

    actors: Sequence[str] = ()
    ray_address: str = "local"
    as_json: bool = False
    progress: ProgressKind = "text"
    retry_failed: bool = False
    strict: bool = False


def settings_from(**flags: Any) -> Settings:
    """The settings here: flags, then gno-dist.yaml, then defaults."""
    return override(load_settings(Path.cwd()), **flags)


def override(settings: Settings, **flags: Any) -> Settings:
    """Settings with the flags that were given; None means not given.

    Raises:
        ConfigError: a value out of its range.
    """
    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if value is not None
    }
    try:
        return Settings.model_validate({**settings.model_dump(), **given})
    except ValidationError as exc:
        problems = [
            f"--{_flag(error['loc'][0])}: {error['msg']} (found {error['input']!r})"
            for error in exc.errors(include_url=False)
        ]
        raise ConfigError("flags", problems) from exc


def start(job: LoadedJob, settings: Settings, invocation: Invocation, trials: int | None) -> None:
    """Make a job folder for a checked job and carry it out."""
    check_models(job)
    plan = Plan(job, pools_of, trials)
    placed = placement_of(plan, execution_of(settings, invocation, InlinePool))
    for group, reason in placed.skipped:
        say(f"skipped: {reason} ({plan.units_of(group)} units are not run)")
    folder = jobs.create_folder(Path(settings.results), plan)
    manifest = manifest_of(job, plan, folder, settings.model_dump(mode="json"))
    try:
        write_json(folder / "manifest.json", manifest)
        carry_out(plan, folder, settings, invocation)
    except (BackendError, OSError):
        shutil.rmtree(folder)  # nothing ran in it, and nothing is left half-done
        raise


def carry_out(plan: Plan, folder: Path, settings: Settings, invocation: Invocation) -> None:
    """Run what a job folder is missing and show the result.

    Raises:
        typer.Exit: with any code but 0.
        BackendError: a backend cannot be opened and nothing was run.
    """
    if invocation.progress == "text":
        _announce(plan, folder, settings)
    result, stopped = _run(plan, folder, settings, invocation)
    if isinstance(stopped, BackendError) and (result is None or not result["units"]["done"]):
        raise stopped
    if result is not None:
        show_summary(result, folder, as_json=invocation.as_json)
    if stopped is not None:
        why = str(stopped) or "interrupted"
        say(f"gno-dist: {why}\nresume with: gno-dist resume {folder}")
        raise typer.Exit(stopped.exit_code)
    assert result is not None
    if code := exit_code(result, settings.min_coverage):
        raise typer.Exit(code)


def _announce(plan: Plan, folder: Path, settings: Settings) -> None:
    for line in lints(plan):
        say(f"lint: {line}")
    say(f"job {folder}: {plan.n_units} units in {len(plan.groups)} group(s)")
    shown = settings.model_dump(mode="json", exclude={"version", "results"})
    say("settings: " + ", ".join(f"{name}={value}" for name, value in shown.items()))


def _run(
    plan: Plan, folder: Path, settings: Settings, invocation: Invocation
) -> tuple[dict[str, Any] | None, GnoDistError | None]:
    """The summary, where one was written, and what stopped the job early."""
    done = _count_done(folder, plan, retry_failed=invocation.retry_failed)
    interruptible = Interruptible()
    with interruptible.listening(), ExitStack() as stack:
        factory = _factory(settings.pool, invocation.ray_address, stack)
        progress = stack.enter_context(Progress(plan, done, invocation.progress))
        execution = execution_of(settings, invocation, factory)
        events = Events(progress.on_record, progress.on_open, progress.on_loss, progress.on_stall)
        try:
            return interruptible.run(execute(plan, folder, execution, events)), None
        except KeyboardInterrupt:
            stopped: GnoDistError = Interrupted()
        except GnoDistError as exc:
            stopped = exc
    written = folder / "summary.json"  # what stopped the job may have come before its first unit
    if isinstance(stopped, StorageFailed) or not written.exists():
        return None, stopped  # what lies there, if anything, is an older one
    return read_structured(written), stopped


def _flag(setting: object) -> str:
    return str(setting).removesuffix("_s").replace("_", "-")


def _count_done(folder: Path, plan: Plan, *, retry_failed: bool) -> int:
    path = folder / "journal.jsonl"
    if not path.exists():
        return 0
    journal = Journal(path, plan.n_units, forget_failed=retry_failed)
    journal.close()
    if journal.torn_bytes:
        say(f"{path}: cut a torn last line of {journal.torn_bytes} bytes; a copy is kept beside it")
    return journal.n_done


def execution_of(settings: Settings, invocation: Invocation, factory: PoolFactory) -> Execution:
    """How a job runs here, from settings and flags.

    Raises:
        ConfigError: ``--actors`` is wrong.
    """
    return Execution(
        factory=factory,
        machine=this_machine(),
        cache_file=reply_cache_file() if settings.cache else None,
        limits=RunLimits(settings.concurrency, settings.max_failed),
        workers=_workers(invocation.actors, settings.pool),
        attempt_timeout_s=settings.attempt_timeout_s,
        retry_failed=invocation.retry_failed,
        strict=invocation.strict,
        measured_file=measured_file(),
    )


def _workers(entries: Sequence[str], pool: PoolKind) -> dict[str, int]:
    if entries and pool == "inline":
        raise ConfigError("--actors", ["counts Ray actors; --pool inline has one worker a backend"])
    return workers_by_role(entries)


def workers_by_role(entries: Sequence[str]) -> dict[str, int]:
    """``search=2`` and the like as role -> workers of each of its pools.

    Raises:
        ConfigError: naming every entry that is wrong.
    """
    counts, problems = {}, []
    for entry in entries:
        role, _, number = entry.partition("=")
        if role not in {"search", "llm"} or not number.isdigit() or int(number) < 1:
            problems.append(f"{entry!r}; write search=N or llm=N, N from 1 on")
        else:
            counts[role] = int(number)
    if problems:
        raise ConfigError("--actors", problems)
    return counts


def _factory(kind: PoolKind, ray_address: str, stack: ExitStack) -> PoolFactory:
    if kind == "inline":
        return InlinePool
    # ray itself is imported when the first pool opens: a cached job never waits for it.
    cluster: list[Any] = []

    def factory(*args: Any) -> Any:
        from workers.cluster import RayCluster

        if not cluster:
            cluster.append(RayCluster(ray_address, num_cpus=this_machine().cores))
            stack.callback(cluster[0].stop)
            cluster[0].start()
        from workers.pool import RayPools

        return RayPools(cluster[0])(*args)

    return factory


def show_summary(summary: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    """The result: one JSON document, or tables, sentences and the fingerprint line."""
    if as_json:
        show_json(summary)
        return
    for suite, cells in text.by_suite(summary["cells"]).items():
        show(f"\n{suite} ({cells[0]['kind']})")
        show_table(*text.suite_rows(cells))
    show("\nMeans over cases with 95 % intervals; p50/p95: service time composed of the stages'.")
    show("\nWhat may be concluded")
    for entry in summary["verdict"]:
        show(f"  {entry['suite']}: {' '.join(entry['sentences'])}")
    sections: list[tuple[str, Callable[[Any], list[str]]]] = [
        ("Gates that do not hold", text.gate_lines),
        ("Not measured", text.missing_lines),
        ("This run", text.run_lines),
    ]
    for title, lines_of in sections:
        if lines := lines_of(summary):
            show(f"\n{title}")
            for line in lines:
                show(f"  {line}")
    if not summary["complete"]:
        units = summary["units"]
        show(f"\nPARTIAL: {units['done']} of {units['planned']} units")
    show(f"\n{folder / 'report.md'}")
    show(f"fingerprint {summary['fingerprint']}")
