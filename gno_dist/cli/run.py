"""``sweep``, ``run`` and ``resume``: everything that runs units."""

from pathlib import Path
from typing import Annotated

import typer

from gno_dist import jobs
from gno_dist.backends.resolve import pools_of
from gno_dist.cli.console import app, errors_as_exit_codes
from gno_dist.cli.execute import Invocation, carry_out, override, settings_from, start
from gno_dist.cli.options import (
    ActorsOption,
    AddressOption,
    CacheOption,
    ConcurrencyOption,
    CoverageOption,
    JsonOption,
    LogJsonOption,
    MaxFailedOption,
    PoolOption,
    QuietOption,
    ResultsOption,
    StrictOption,
    TimeoutOption,
    TrialsOption,
    default_presets,
    default_sweep,
    progress_kind,
)
from gno_dist.settings import Settings
from gno_dist.sweep import load_job, single_suite_job


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
    strict: StrictOption = False,
    quiet: QuietOption = False,
    log_json: LogJsonOption = False,
) -> None:
    """Run a sweep: suites x presets x axes x trials, in a new job folder."""
    with errors_as_exit_codes():
        settings = settings_from(
            pool=pool,
            cache=cache,
            concurrency=concurrency,
            results=results,
            attempt_timeout_s=attempt_timeout,
            max_failed=max_failed,
            min_coverage=min_coverage,
        )
        job = load_job(file or default_sweep())
        start(
            job,
            settings,
            Invocation(
                actors or (),
                ray_address,
                as_json,
                progress_kind(quiet=quiet, log_json=log_json),
                strict=strict,
            ),
            trials,
        )


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
    strict: StrictOption = False,
    quiet: QuietOption = False,
    log_json: LogJsonOption = False,
) -> None:
    """Run one suite at one preset; in this process unless --pool ray is given."""
    with errors_as_exit_codes():
        settings = settings_from(
            pool=pool or "inline",
            cache=cache,
            concurrency=concurrency,
            results=results,
            attempt_timeout_s=attempt_timeout,
            max_failed=max_failed,
            min_coverage=min_coverage,
        )
        job = single_suite_job(suite, presets or default_presets(), preset)
        start(
            job,
            settings,
            Invocation(
                actors or (),
                ray_address,
                as_json,
                progress_kind(quiet=quiet, log_json=log_json),
                strict=strict,
            ),
            trials,
        )


@app.command()
def resume(
    job: Annotated[Path, typer.Argument(help="A job folder.")],
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed units again, too.")
    ] = False,
    pool: PoolOption = None,
    cache: CacheOption = None,
    actors: ActorsOption = None,
    concurrency: ConcurrencyOption = None,
    attempt_timeout: TimeoutOption = None,
    max_failed: MaxFailedOption = None,
    min_coverage: CoverageOption = None,
    ray_address: AddressOption = "local",
    as_json: JsonOption = False,
    strict: StrictOption = False,
    quiet: QuietOption = False,
    log_json: LogJsonOption = False,
) -> None:
    """Run what a stopped or killed job is missing."""
    with errors_as_exit_codes():
        manifest, plan = jobs.rebuild(job, pools_of)
        known = Settings.model_validate(manifest["settings"])
        settings = override(
            known,
            pool=pool,
            cache=cache,
            concurrency=concurrency,
            attempt_timeout_s=attempt_timeout,
            max_failed=max_failed,
            min_coverage=min_coverage,
        )
        kind = progress_kind(quiet=quiet, log_json=log_json)
        invocation = Invocation(actors or (), ray_address, as_json, kind, retry_failed, strict)
        carry_out(plan, job, settings, invocation)
