"""``sweep``, ``run`` and ``resume``: everything that runs units."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gno_dist import jobs
from gno_dist.backends.paths import reply_cache_file
from gno_dist.backends.resolve import check_models, pools_of
from gno_dist.cli.console import app, errors_as_exit_codes, say, show, show_json, show_table
from gno_dist.cli.progress import Progress
from gno_dist.data import data_folder
from gno_dist.engine import Events, Execution, execute, limits_by_pool
from gno_dist.errors import ConfigError, GnoDistError, Interrupted
from gno_dist.files import read_structured, write_json
from gno_dist.journal import Journal
from gno_dist.placement import this_machine
from gno_dist.plan import Plan
from gno_dist.pool import InlinePool, PoolFactory
from gno_dist.report import text
from gno_dist.report.summary import exit_code
from gno_dist.runner import RunLimits
from gno_dist.settings import Settings, load_settings
from gno_dist.sweep import LoadedJob, load_job, single_suite_job

PoolKind = Literal["inline", "ray"]
PoolOption = Annotated[
    PoolKind | None, typer.Option("--pool", help="Where backends run: this process, or Ray actors.")
]
CacheOption = Annotated[
    bool | None, typer.Option("--cache/--no-cache", help="Use stage results of earlier jobs.")
]
ActorsOption = Annotated[
    list[str] | None,
    typer.Option("--actors", metavar="ROLE=N", help="Workers of each pool: search=2, llm=1."),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="Shards worked on at once.")
]
ResultsOption = Annotated[
    Path | None, typer.Option("--results", help="Folder in which job folders are made.")
]
TimeoutOption = Annotated[
    float | None, typer.Option("--attempt-timeout", help="Seconds one batch of calls may take.")
]
MaxFailedOption = Annotated[
    int | None, typer.Option("--max-failed", min=0, help="Stop when more units than this failed.")
]
CoverageOption = Annotated[
    float | None,
    typer.Option("--min-coverage", min=0, max=1, help="Least share of outcomes to be scored."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON document.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
AddressOption = Annotated[
    str, typer.Option("--ray-address", help="'local' for a private cluster, or HOST:PORT.")
]
TrialsOption = Annotated[
    int | None,
    typer.Option("--trials", min=1, help="Trials of every case, instead of the suites'."),
]


def default_sweep() -> Path:
    """The sweep that runs without arguments."""
    return data_folder("fixtures") / "sweeps" / "default.yaml"


def default_presets() -> Path:
    """The shipped presets."""
    return data_folder("fixtures") / "presets.yaml"


@app.command()
def sweep(
    file: Annotated[
        Path | None, typer.Argument(help="A sweep file; without it the default.")
    ] = None,
    pool: PoolOption = None,
    cache: CacheOption = None,
    actors: ActorsOption = None,
    concurrency: ConcurrencyOption = None,
    trials: TrialsOption = None,
    results: ResultsOption = None,
    attempt_timeout: TimeoutOption = None,
    max_failed: MaxFailedOption = None,
    min_coverage: CoverageOption = None,
    ray_address: AddressOption = "local",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a sweep: suites x presets x axes x trials, in a new job folder."""
    with errors_as_exit_codes():
        settings = _settings(
            pool=pool,
            cache=cache,
            concurrency=concurrency,
            results=results,
            attempt_timeout_s=attempt_timeout,
            max_failed=max_failed,
            min_coverage=min_coverage,
        )
        job = load_job(file or default_sweep())
        _start(job, settings, actors, trials, ray_address, as_json, quiet)


@app.command()
def run(
    suite: Annotated[Path, typer.Argument(help="A suite file.")],
    preset: Annotated[str, typer.Option("--preset", help="Name of the preset.")] = "embedded-q4",
    presets: Annotated[Path | None, typer.Option("--presets", help="A presets file.")] = None,
    pool: PoolOption = None,
    cache: CacheOption = None,
    actors: ActorsOption = None,
    concurrency: ConcurrencyOption = None,
    trials: TrialsOption = None,
    results: ResultsOption = None,
    attempt_timeout: TimeoutOption = None,
    max_failed: MaxFailedOption = None,
    min_coverage: CoverageOption = None,
    ray_address: AddressOption = "local",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run one suite at one preset; in this process unless --pool ray is given."""
    with errors_as_exit_codes():
        settings = _settings(
            pool=pool or "inline",
            cache=cache,
            concurrency=concurrency,
            results=results,
            attempt_timeout_s=attempt_timeout,
            max_failed=max_failed,
            min_coverage=min_coverage,
        )
        job = single_suite_job(suite, presets or default_presets(), preset)
        _start(job, settings, actors, trials, ray_address, as_json, quiet)


@app.command()
def resume(
    job: Annotated[Path, typer.Argument(help="A job folder.")],
    pool: PoolOption = None,
    cache: CacheOption = None,
    actors: ActorsOption = None,
    concurrency: ConcurrencyOption = None,
    attempt_timeout: TimeoutOption = None,
    max_failed: MaxFailedOption = None,
    min_coverage: CoverageOption = None,
    ray_address: AddressOption = "local",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run what a stopped or killed job is missing."""
    with errors_as_exit_codes():
        manifest, plan = jobs.rebuild(job, pools_of)
        known = Settings.model_validate(manifest["settings"])
        settings = _override(
            known,
            pool=pool,
            cache=cache,
            concurrency=concurrency,
            attempt_timeout_s=attempt_timeout,
            max_failed=max_failed,
            min_coverage=min_coverage,
        )
        _execute(plan, job, settings, actors, ray_address, as_json, quiet)


def _settings(**flags: Any) -> Settings:
    return _override(load_settings(Path.cwd()), **flags)


def _override(settings: Settings, **flags: Any) -> Settings:
    """Flags come first; what no flag names stays."""
    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if value is not None
    }
    return Settings.model_validate({**settings.model_dump(), **given})


def _start(
    job: LoadedJob,
    settings: Settings,
    actors: list[str] | None,
    trials: int | None,
    ray_address: str,
    as_json: bool,
    quiet: bool,
) -> None:
    check_models(job)
    plan = Plan(job, pools_of, trials)
    limits_by_pool(plan, _execution(settings, actors, InlinePool))  # fits, or says so, first
    folder = jobs.create_folder(Path(settings.results), plan)
    manifest = jobs.manifest_of(job, plan, folder, settings.model_dump(mode="json"))
    write_json(folder / "manifest.json", manifest)
    _execute(plan, folder, settings, actors, ray_address, as_json, quiet)


def _execute(
    plan: Plan,
    folder: Path,
    settings: Settings,
    actors: list[str] | None,
    ray_address: str,
    as_json: bool,
    quiet: bool,
) -> None:
    if not quiet:
        say(f"job {folder}: {plan.n_units} units in {len(plan.groups)} group(s)")
        shown = settings.model_dump(mode="json", exclude={"version", "results"})
        say("settings: " + ", ".join(f"{name}={value}" for name, value in shown.items()))
    done = _count_done(folder, plan)
    with ExitStack() as stack:
        factory = _factory(settings.pool, ray_address, stack)
        progress = stack.enter_context(Progress(plan, done, quiet=quiet))
        execution = _execution(settings, actors, factory)
        events = Events(progress.on_record, progress.on_open)
        try:
            summary = asyncio.run(execute(plan, folder, execution, events))
        except KeyboardInterrupt:
            stopped: GnoDistError | None = Interrupted()
        except GnoDistError as exc:
            stopped = exc
        else:
            stopped = None
    if stopped is not None:
        summary = read_structured(folder / "summary.json")
    show_summary(summary, folder, as_json=as_json)
    if stopped is not None:
        why = str(stopped) or "interrupted"
        say(f"gno-dist: {why}\nresume with: gno-dist resume {folder}")
        raise typer.Exit(stopped.exit_code)
    code = exit_code(summary, settings.min_coverage)
    if code:
        raise typer.Exit(code)


def _count_done(folder: Path, plan: Plan) -> int:
    path = folder / "journal.jsonl"
    if not path.exists():
        return 0
    journal = Journal(path, plan.n_units)
    journal.close()
    if journal.torn_bytes:
        say(f"{path}: cut a torn last line of {journal.torn_bytes} bytes; a copy is kept beside it")
    return journal.n_done


def _execution(settings: Settings, actors: list[str] | None, factory: PoolFactory) -> Execution:
    return Execution(
        factory=factory,
        machine=this_machine(),
        cache_file=reply_cache_file() if settings.cache else None,
        limits=RunLimits(settings.concurrency, settings.max_failed),
        workers=_workers(actors or []),
        attempt_timeout_s=settings.attempt_timeout_s,
    )


def _workers(entries: list[str]) -> dict[str, int]:
    counts, problems = {}, []
    for entry in entries:
        role, _, number = entry.partition("=")
        if role not in {"search", "llm"} or not number.isdigit() or int(number) < 1:
            problems.append(f"{entry!r}; write search=N or llm=N")
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
