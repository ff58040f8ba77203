"""The command line as a user meets it: exit codes, streams, files, messages."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from gno_dist.backends.paths import reply_cache_file
from gno_dist.cli.main import app

from .conftest import SUITES, SWEEP, write_tiny

FINGERPRINT = re.compile(r"fingerprint [0-9a-f]{64}")


def gno(*args: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process; fails unless it ends with ``code``."""
    found = subprocess.run(
        [sys.executable, "-m", "gno_dist.cli.main", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == code, found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    return found


def sweep(path: Path, *flags: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return gno("sweep", path, "--pool", "inline", "--no-cache", *flags, cwd=path.parent, code=code)


def job_of(path: Path) -> Path:
    (folder,) = [p for p in (path.parent / "results").iterdir() if p.is_dir()]
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny job."""
    path = write_tiny(tmp_path_factory.mktemp("finished"))
    sweep(path)
    return job_of(path)


def copy_of(job: Path, folder: Path) -> Path:
    for path in job.iterdir():
        target = folder / "job" / path.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    return folder / "job"


def commands() -> list[list[str]]:
    import typer

    root: Any = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        found += [[name, sub] for sub in inner] if inner else [[name]]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 3


def test_a_sweep_prints_its_tables_and_ends_with_the_fingerprint(tiny_sweep: Path) -> None:
    found = sweep(tiny_sweep)
    lines = found.stdout.splitlines()
    assert FINGERPRINT.fullmatch(lines[-1])
    assert "What may be concluded" in lines
    assert "one depth=thorough" in found.stdout
    assert "\r" not in found.stderr
    assert "concurrency=5" in found.stderr
    folder = job_of(tiny_sweep)
    names = {path.name for path in folder.iterdir()}
    files = {"manifest.json", "journal.jsonl", "summary.json", "report.md"}
    assert names == files | {"status.json", "metrics.prom"}
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}-[0-9a-f]{4}", folder.name)
    for name in ("manifest.json", "summary.json"):
        assert orjson.loads((folder / name).read_bytes())["version"] == 1


def test_json_prints_one_document_and_nothing_else(tiny_sweep: Path) -> None:
    found = sweep(tiny_sweep, "--json", "--quiet")
    summary = json.loads(found.stdout)
    assert summary["units"]["done"] == 48
    assert found.stderr == ""


def test_run_takes_one_suite_at_one_preset(tiny_sweep: Path) -> None:
    found = gno(
        *("run", "query.yaml", "--preset", "one", "--presets", "presets.yaml", "--no-cache"),
        cwd=tiny_sweep.parent,
    )
    assert FINGERPRINT.fullmatch(found.stdout.splitlines()[-1])
    assert "4 of 4 units" in found.stdout


def test_a_failed_threshold_is_exit_1_and_shows_the_gap(tmp_path: Path) -> None:
    suite = SUITES["support"] + "thresholds: {tone: 2.0}\n"
    found = sweep(write_tiny(tmp_path, support=suite), code=1)
    assert "support | one: tone reached" in found.stdout
    assert "the threshold is 2.0" in found.stdout


def test_unscored_outcomes_are_exit_3_unless_less_coverage_is_enough(tmp_path: Path) -> None:
    suite = SUITES["ask"].replace(", relevant: [alpha/logs.md]", "")
    path = write_tiny(tmp_path, ask=suite)
    found = sweep(path, code=3)
    assert "no relevant documents" in found.stdout
    sweep(path, "--min-coverage", "0.9")


def test_failed_units_are_exit_3_and_named(tmp_path: Path) -> None:
    presets = (write_tiny(tmp_path).parent / "presets.yaml").read_text()
    path = write_tiny(tmp_path, presets=presets.replace('"two"', '"two;raise=Urlaub"'))
    found = sweep(path, code=3)
    assert "failed: stage expand failed: RuntimeError: fake fault at 'Urlaub'" in found.stdout


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"sweep": SWEEP + "colour: blue\n"}, "colour: unknown key"),
        ({"sweep": SWEEP.replace("[one, two]", "[one, three]")}, "presets[1]: 'three' is none of"),
        ({"queries": "[]\n"}, "queries.yaml: is empty"),
        ({"queries": "- {id: q1, query: x, judgments: [{docid: no.md, relevance: 1}]}\n"}, "no.md"),
        ({"presets": "version: 1\npresets: {one: {depth: deep}}\n"}, "depth"),
    ],
)
def test_a_users_mistake_is_exit_2_names_the_place_and_writes_nothing(
    tmp_path: Path, replaced: dict[str, str], message: str
) -> None:
    path = write_tiny(tmp_path, **replaced)
    found = sweep(path, code=2)
    assert message in found.stderr
    assert found.stdout == ""
    assert not (tmp_path / "results").exists()


def test_wrong_flags_and_missing_files_are_exit_2(tiny_sweep: Path, tmp_path: Path) -> None:
    ray = ("--actors", "search=none", "--pool", "ray")
    assert "write search=N" in sweep(tiny_sweep, *ray, code=2).stderr
    assert "--pool inline has one worker" in sweep(tiny_sweep, "--actors", "llm=2", code=2).stderr
    sweep(tiny_sweep, "--no-such-flag", code=2)
    assert "cannot be read" in sweep(tmp_path / "none.yaml", code=2).stderr
    assert "not a job folder" in gno("resume", tmp_path, cwd=tmp_path, code=2).stderr


def test_numbers_out_of_range_are_exit_2_and_name_the_flag(tiny_sweep: Path) -> None:
    found = sweep(tiny_sweep, "--attempt-timeout", "0", "--concurrency", "5000", code=2)
    assert "--attempt-timeout: " in found.stderr
    assert "--concurrency" in found.stderr


def test_a_cache_that_is_no_database_is_exit_2(tiny_sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / reply_cache_file().name).write_bytes(b"no database" * 99)
    found = subprocess.run(
        [sys.executable, "-m", "gno_dist.cli.main", "sweep", str(tiny_sweep), "--pool", "inline"],
        cwd=tiny_sweep.parent,
        env={**os.environ, "GNO_DIST_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert "file is not a database; `gno-dist cache clear`" in found.stderr
    assert "Traceback" not in found.stderr
    assert list((tiny_sweep.parent / "results").iterdir()) == []


def test_a_results_folder_that_cannot_be_made_is_exit_2(tiny_sweep: Path) -> None:
    (tiny_sweep.parent / "file").write_text("")
    found = sweep(tiny_sweep, "--results", "file/inside", code=2)
    assert "use --results FOLDER" in found.stderr


def test_verify_confirms_a_finished_job(finished: Path) -> None:
    found = gno("verify", finished, cwd=finished)
    assert found.stdout.splitlines()[0] == "48 of 48 units: no differences"
    assert FINGERPRINT.fullmatch(found.stdout.splitlines()[-1])


def test_verify_of_a_job_without_a_summary_checks_its_journal(
    finished: Path, tmp_path: Path
) -> None:
    job = copy_of(finished, tmp_path)
    (job / "summary.json").unlink()
    lines = (job / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (job / "journal.jsonl").write_bytes(b"".join(lines[:20]))
    found = gno("verify", job, cwd=job, code=3)
    assert found.stdout.splitlines()[0] == "20 of 48 units: no differences"
    assert "gno-dist resume" in found.stderr


def test_a_cluster_that_is_not_there_is_exit_2_and_leaves_nothing(tiny_sweep: Path) -> None:
    with socket.socket() as closed:  # bound and not listening: nobody answers
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for given, said in ((address, "refused"), ("foo", "HOST:PORT")):
            flags = ("--pool", "ray", "--no-cache", "--ray-address", given)
            found = gno("sweep", tiny_sweep, *flags, cwd=tiny_sweep.parent, code=2)
            assert said in found.stderr
            assert found.stdout == ""
    assert list((tiny_sweep.parent / "results").iterdir()) == []


def test_a_reader_that_has_seen_enough_ends_it_quietly_and_not_with_0(finished: Path) -> None:
    program = f"{sys.executable} -m gno_dist.cli.main report {finished} --cases | head -n 1"
    found = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program}"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (141, "")
    assert found.stdout.count("\n") == 1


def test_verify_finds_a_changed_outcome(finished: Path, tmp_path: Path) -> None:
    job = copy_of(finished, tmp_path)
    text = (job / "journal.jsonl").read_text()
    changed = re.sub(r'("Recall@5":\{"kind":"scored","value":)1\.0', r"\g<1>0.5", text, count=1)
    assert changed != text
    (job / "journal.jsonl").write_text(changed)
    found = gno("verify", job, cwd=job, code=1)
    assert "outcomes differ from its outputs" in found.stdout
    assert "fingerprint is not what the journal gives" in found.stdout


def test_verify_finds_a_changed_summary(finished: Path, tmp_path: Path) -> None:
    job = copy_of(finished, tmp_path)
    summary = orjson.loads((job / "summary.json").read_bytes())
    summary["cells"][0]["measures"]["Recall@5"]["mean"] = 0.123
    (job / "summary.json").write_bytes(orjson.dumps(summary))
    found = gno("verify", job, cwd=job, code=1)
    assert "summary.json: cells is not what the journal gives" in found.stdout


def test_resuming_a_finished_job_runs_nothing(finished: Path, tmp_path: Path) -> None:
    job = copy_of(finished, tmp_path)
    before = (job / "journal.jsonl").read_bytes()
    found = gno("resume", job, cwd=tmp_path)
    assert "0 run now" in found.stdout
    assert (job / "journal.jsonl").read_bytes() == before
    last = (finished / "summary.json").read_bytes()
    assert found.stdout.splitlines()[-1] == f"fingerprint {orjson.loads(last)['fingerprint']}"


def test_a_changed_corpus_is_not_resumed(tiny_sweep: Path) -> None:
    sweep(tiny_sweep)
    (tiny_sweep.parent / "corpus/alpha/keys.md").write_text("# Keys\n\nChanged.\n")
    found = gno("resume", job_of(tiny_sweep), cwd=tiny_sweep.parent, code=2)
    assert "the corpus has changed since the job was made" in found.stderr


def test_the_per_case_view_shows_the_worst_first(finished: Path) -> None:
    found = gno("report", finished, "--cases", "--worst", "2", cwd=finished)
    heads = [line for line in found.stdout.splitlines() if line and not line.startswith(" ")]
    assert len(heads) == 2
    assert "ranking (grade):" in found.stdout or "input:" in found.stdout


def test_report_writes_the_same_report_again(finished: Path, tmp_path: Path) -> None:
    job = copy_of(finished, tmp_path)
    before = (job / "report.md").read_bytes()
    (job / "report.md").unlink()
    gno("report", job, cwd=job)
    assert (job / "report.md").read_bytes() == before


def test_plan_shows_points_and_work_and_writes_nothing(tiny_sweep: Path) -> None:
    before = sorted(tiny_sweep.parent.rglob("*"))
    found = gno("plan", tiny_sweep, cwd=tiny_sweep.parent)
    assert "48 units" in found.stdout
    assert "saved by sharing" in found.stdout
    plan = json.loads(gno("plan", tiny_sweep, "--json", cwd=tiny_sweep.parent).stdout)
    assert plan["units"] == 48
    assert sorted(tiny_sweep.parent.rglob("*")) == before


def test_settings_file_is_read_and_flags_come_first(tiny_sweep: Path) -> None:
    (tiny_sweep.parent / "gno-dist.yaml").write_text("version: 1\nconcurrency: 2\npool: inline\n")
    found = gno("sweep", tiny_sweep, "--no-cache", cwd=tiny_sweep.parent)
    assert "concurrency=2" in found.stderr
    assert "cache=False" in found.stderr
    (tiny_sweep.parent / "gno-dist.yaml").write_text("version: 1\nconcurency: 2\n")
    found = gno("sweep", tiny_sweep, cwd=tiny_sweep.parent, code=2)
    assert "concurency: unknown key" in found.stderr


def test_trials_without_drawing_are_linted(tiny_sweep: Path) -> None:
    found = sweep(tiny_sweep, "--trials", "2")
    assert "lint: suite 'query' has 2 trials" in found.stderr
    assert "96 of 96 units" in found.stdout


def test_models_cache_and_schema_answer(tmp_path: Path) -> None:
    assert "embedded:gemma3-270m-q4" in gno("models", "list", cwd=tmp_path).stdout
    assert "stage results:" in gno("cache", "info", cwd=tmp_path).stdout
    assert "up to date" in gno("schema", "--check", cwd=tmp_path).stdout
    gno("schema", cwd=tmp_path, code=2)
    missing = gno("models", "path", "file:/no/such.gguf", cwd=tmp_path, code=2)
    assert "there is no such file" in missing.stderr


@pytest.mark.models
def test_doctor_checks_this_machine(tmp_path: Path) -> None:
    checks = json.loads(gno("doctor", "--json", cwd=tmp_path).stdout)
    assert {check["name"] for check in checks} == {
        *("python", "machine", "sqlite", "embedder", "llama.cpp", "ray", "models", "cache"),
    }
    assert all(check["ok"] for check in checks)
