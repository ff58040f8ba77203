"""Real kills of the whole command: nothing finished is lost, nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psutil
import pytest

from .conftest import PRESETS, write_tiny

pytestmark = pytest.mark.kills

SLOW = PRESETS.replace('"one"', '"one;slow=e"').replace('"two"', '"two;slow=e"')


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "gno_dist.cli.main", *map(str, args)]


def whole_run(path: Path) -> str:
    """The fingerprint line of an uninterrupted run of the same plan."""
    found = subprocess.run(
        command("sweep", path, "--pool", "inline", "--no-cache", "--quiet"),
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return found.stdout.splitlines()[-1]


def _hear_ctrl_c() -> None:
    """A background job of a shell ignores SIGINT, and hands that on to all it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running_sweep(
    path: Path, lines: int, pool: str = "inline"
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A sweep whose journal has at least ``lines`` lines; the process and its job folder."""
    process = subprocess.Popen(
        command("sweep", path, "--pool", pool, "--no-cache"),
        cwd=path.parent,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            journals = list((path.parent / "results").glob("*/journal.jsonl"))
            if journals and journals[0].read_bytes().count(b"\n") >= lines:
                break
            assert process.poll() is None, "the sweep ended before it could be stopped"
            time.sleep(0.02)
        else:
            pytest.fail("the journal did not grow within a minute")
        yield process, journals[0].parent
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def slow_sweep(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "slow", presets=SLOW)


def test_a_killed_driver_resumes_to_the_fingerprint_of_a_whole_run(
    slow_sweep: Path, tmp_path: Path
) -> None:
    whole = whole_run(write_tiny(tmp_path / "whole", presets=SLOW))
    with running_sweep(slow_sweep, lines=9) as (process, job):
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = (job / "journal.jsonl").read_bytes()
    finished = before[: before.rindex(b"\n") + 1]
    assert 9 <= finished.count(b"\n") < 48
    found = subprocess.run(
        command("resume", job), capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.splitlines()[-1] == whole
    assert (job / "journal.jsonl").read_bytes().startswith(finished)
    rest = 48 - finished.count(b"\n")
    assert f"{rest} run now" in found.stdout


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    slow_sweep: Path, tmp_path: Path
) -> None:
    whole = whole_run(write_tiny(tmp_path / "whole", presets=SLOW))
    with running_sweep(slow_sweep, lines=9, pool="ray") as (process, job):
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert f"resume with: gno-dist resume {job.relative_to(slow_sweep.parent)}" in stderr
    assert "PARTIAL" in stdout
    summary = orjson.loads((job / "summary.json").read_bytes())
    assert summary["complete"] is False
    assert 9 <= summary["units"]["done"] < 48
    assert len(children) >= 3, "Ray's own processes and the workers"
    assert psutil.wait_procs(children, timeout=30)[1] == []
    found = subprocess.run(
        command("resume", job), capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.splitlines()[-1] == whole


def test_two_sweeps_in_one_results_folder_do_not_meet(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    both = [
        subprocess.Popen(
            command("sweep", path, "--pool", "inline", "--quiet"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GNO_DIST_CACHE": str(tmp_path / "cache")},
        )
        for _ in range(2)
    ]
    last = [process.communicate(timeout=120)[0].splitlines()[-1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert last[0] == last[1]
    assert len(list((tmp_path / "results").iterdir())) == 2
