"""A run meets what machines do: full disks, folders that cannot be written, impatient users."""

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
from .test_kills import SLOW, command, running_sweep, whole_run

pytestmark = pytest.mark.kills


def gno(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of so many KiB, mounted on ``folder``."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    whole = whole_run(write_tiny(tmp_path / "whole"))
    path = write_tiny(tmp_path / "job")
    with small_disk(tmp_path / "results", 92) as results:
        found = gno(
            "sweep", path, "--pool", "inline", "--no-cache", "--results", results, cwd=tmp_path
        )
        assert found.returncode == 3
        assert "No space left on device" in found.stderr
        assert "Traceback" not in found.stderr
        assert "resume" in found.stderr
        (job,) = results.iterdir()
        lines = (job / "journal.jsonl").read_bytes()
        assert lines.endswith(b"\n"), "no half-written line stays"
        n_lines = lines.count(b"\n")
        assert 0 < n_lines < 48
        subprocess.run(["mount", "-o", "remount,size=4m", str(results)], check=True)
        resumed = gno("resume", job, "--pool", "inline", cwd=tmp_path)
        assert resumed.stdout.splitlines()[-1] == whole
        assert f"{48 - n_lines} run now" in resumed.stdout
        assert (job / "journal.jsonl").read_bytes().startswith(lines)


def test_a_read_only_results_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "job")
    with small_disk(tmp_path / "results", 512) as results:
        subprocess.run(["mount", "-o", "remount,ro", str(results)], check=True)
        found = gno("sweep", path, "--pool", "inline", "--results", results, cwd=tmp_path)
        assert found.returncode == 2
        assert "Read-only file system; use --results FOLDER" in found.stderr
        assert list(results.iterdir()) == []


def test_a_second_ctrl_c_ends_everything_at_once(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "slow", presets=SLOW)
    with running_sweep(path, lines=3, pool="ray") as (process, job):
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
    assert process.returncode == 130
    assert len(children) >= 3
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert (job / "journal.jsonl").read_bytes().count(b"\n") >= 3


def test_termination_is_an_orderly_stop(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "slow", presets=SLOW)
    with running_sweep(path, lines=3) as (process, job):
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=60)
        took = time.monotonic() - started
    assert process.returncode == 130
    assert "PARTIAL" in stdout
    assert "resume with" in stderr
    assert orjson.loads((job / "summary.json").read_bytes())["complete"] is False
    assert took < 30  # a bound on hanging, not a measurement


def test_status_is_read_beside_a_run_and_after_its_death(tmp_path: Path) -> None:
    hanging = PRESETS.replace('"two"', '"two;hang=spare keys"')
    path = write_tiny(tmp_path / "slow", presets=hanging)
    with running_sweep(path, lines=9) as (process, job):
        running = orjson.loads(gno("status", job, "--json", cwd=tmp_path).stdout)
        said = gno("status", job, cwd=tmp_path).stdout
        process.kill()
        process.wait()
    assert running["running"] is True
    assert running["units"]["planned"] == 48
    assert running["pid"] == process.pid
    assert f"running, process {process.pid}" in said
    lines = (job / "journal.jsonl").read_bytes().count(b"\n")
    killed = gno("status", job, cwd=tmp_path).stdout
    assert f"killed: no process runs it; go on with: gno-dist resume {job}" in killed
    assert f"{lines} of 48 units" in killed
    (job / "status.json").unlink()  # as if it had died before it could say anything
    assert f"{lines} of 48 units are in the journal" in gno("status", job, cwd=tmp_path).stdout
    gno("resume", job, "--pool", "ray", "--attempt-timeout", "1", cwd=tmp_path)
    finished = gno("status", job, cwd=tmp_path).stdout
    assert "tiny: finished" in finished
    assert "48 of 48 units (100.0 %)" in finished


def test_metrics_are_in_prometheus_format(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    path = write_tiny(tmp_path / "job")
    gno("sweep", path, "--pool", "inline", "--no-cache", cwd=tmp_path)
    (job,) = (tmp_path / "results").iterdir()
    text = (job / "metrics.prom").read_text("utf-8")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["gno_dist_units", "planned"] == 48
    assert samples["gno_dist_units", "done"] == 48
    assert samples["gno_dist_calls_total", "made"] > 0
    assert samples["gno_dist_worker_seconds_total", "fake one", "working"] > 0


def test_progress_as_json_lines(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "job", presets=PRESETS.replace('"two"', '"two;die=logs"'))
    found = gno("sweep", path, "--pool", "ray", "--no-cache", "--log-json", "--json", cwd=tmp_path)
    events = [orjson.loads(line) for line in found.stderr.splitlines() if line.startswith("{")]
    kinds = {event["event"] for event in events}
    assert {"opened", "progress", "worker lost"} <= kinds
    lost = next(event for event in events if event["event"] == "worker lost")
    assert lost["reason"] == "exit"
    assert "exited with code 66" in lost["detail"]
    last = events[-1]
    assert (last["event"], last["done"], last["planned"]) == ("progress", 48, 48)
    summary = orjson.loads(found.stdout)
    assert summary["run"]["lost"]["exit"] >= 2


def test_what_hangs_is_named(tmp_path: Path) -> None:
    """The deadline ends a hang; until then a notice says who waits for what."""
    code = """
import sys
from gno_dist import engine, runner
from gno_dist.cli import execute
execute.RunLimits = lambda lanes, max_failed: runner.RunLimits(
    lanes, max_failed, stall_warn_s=0.5, stall_end_s=2.0)
sys.argv = ["gno-dist", "sweep", sys.argv[1], "--pool", "inline", "--no-cache"]
from gno_dist.cli.main import main
main()
"""
    path = write_tiny(tmp_path / "job", presets=PRESETS.replace('"two"', '"two;hang=keys"'))
    found = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 3
    assert "query/q4 @ two depth=thorough" in found.stderr
    assert "stalled: no reply for" in found.stderr
    assert "PARTIAL" in found.stdout
