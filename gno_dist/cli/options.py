"""Options and default files that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gno_dist.cli.progress import ProgressKind
from gno_dist.data import data_folder

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
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse a job that does not fit instead of running a part.")
]
LogJsonOption = Annotated[
    bool, typer.Option("--log-json", help="Progress on stderr as JSON lines.")
]
AddressOption = Annotated[
    str, typer.Option("--ray-address", help="'local' for a private cluster, or HOST:PORT.")
]
TrialsOption = Annotated[
    int | None,
    typer.Option("--trials", min=1, help="Trials of every case, instead of the suites'."),
]


def progress_kind(*, quiet: bool, log_json: bool) -> ProgressKind:
    """How progress is shown; quiet wins."""
    if quiet:
        return "none"
    return "json" if log_json else "text"


def default_sweep() -> Path:
    """The sweep that runs without arguments."""
    return data_folder("fixtures") / "sweeps" / "default.yaml"


def default_presets() -> Path:
    """The shipped presets."""
    return data_folder("fixtures") / "presets.yaml"
