"""``status``: how far a job is, from its files alone; works beside the process that runs it."""

import fcntl
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gno_dist import files
from gno_dist.cli.console import app, errors_as_exit_codes, show, show_json
from gno_dist.cli.options import JsonOption
from gno_dist.errors import ConfigError
from gno_dist.jobs import load_manifest
from gno_dist.report.text import dollars, seconds
from gno_dist.status import STATUS_FILE, worker_rows

_CHUNK = 2**22


@app.command()
def status(
    job: Annotated[Path, typer.Argument(help="A job folder.")], as_json: JsonOption = False
) -> None:
    """Show how far a job is, and whether anything runs it; reads files only."""
    with errors_as_exit_codes():
        found = look(job)
        if as_json:
            show_json(found)
            return
        for line in lines(found, job):
            show(line)


def look(job: Path) -> dict[str, Any]:
    """The job's status, with what only the files tell: ``running`` and ``lines``.

    Raises:
        ConfigError: no job lies there.
    """
    path = job / STATUS_FILE
    if path.is_file():
        known = files.read_structured(path)
        if not isinstance(known, dict):
            raise ConfigError(str(path), ["not a status"])
    else:  # killed within its first seconds
        manifest = load_manifest(job)
        known = {"name": manifest["name"], "state": "running", "units": None}
        known["planned"] = manifest["n_units"]
    journal = job / "journal.jsonl"
    return {**known, "running": _is_written(journal), "lines": _lines(journal)}


def _is_written(journal: Path) -> bool:
    """Whether a process holds the journal open for writing, by its lock."""
    try:
        with journal.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lines(journal: Path) -> int:
    """Whole lines of the journal: finished units, and failed ones that were run again."""
    try:
        with journal.open("rb") as stream:
            return sum(part.count(b"\n") for part in iter(lambda: stream.read(_CHUNK), b""))
    except FileNotFoundError:
        return 0


def lines(found: dict[str, Any], job: Path) -> list[str]:
    """The status for people."""
    shown = [f"{found['name']}: {_state(found, job)}"]
    units = found["units"]
    if units is None:
        return [*shown, f"{found['lines']} of {found['planned']} units are in the journal"]
    done = units["done"] if found["running"] or found["state"] != "running" else found["lines"]
    share = 100.0 * done / units["planned"] if units["planned"] else 100.0
    shown.append(f"{done} of {units['planned']} units ({share:.1f} %), {units['failed']} failed")
    if found["running"] and units["run_now"]:
        rate = units["run_now"] / found["wall_s"]
        left = seconds((units["planned"] - done) / rate)
        shown.append(f"{rate:.2f} units/s; {left} left at this rate")
    for label, shares in worker_rows(found["worker_s"]):
        split = ", ".join(f"{state} {100 * value:.0f} %" for state, value in shares.items())
        shown.append(f"workers of {label}: {split}")
    if found["lost"]:
        lost = ", ".join(f"{n} {reason}" for reason, n in sorted(found["lost"].items()))
        shown.append(f"workers lost and replaced: {lost}")
    if found["running"]:
        shown += [f"in flight: {item}" for item in found["in_flight"]]
    usage = found["usage"]
    shown.append(
        f"{usage['input_tokens'] + usage['output_tokens']:,} tokens,"
        f" {dollars(usage['cost_usd'])}; peak memory {found['peak_rss_bytes'] / 2**20:,.0f} MiB"
    )
    return shown


def _state(found: dict[str, Any], job: Path) -> str:
    if found["running"]:
        if "updated" not in found:
            return "running"
        age = (datetime.now(UTC) - datetime.fromisoformat(found["updated"])).total_seconds()
        return f"running, process {found['pid']} on {found['host']} (said {seconds(age)} ago)"
    if found["state"] == "finished":
        return "finished"
    how = "stopped" if found["state"] == "stopped" else "killed: no process runs it"
    return f"{how}; go on with: gno-dist resume {job}"
