"""Whole jobs on fake models: one fingerprint however they ran, and nothing run twice."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from gno_dist import jobs
from gno_dist.backends.resolve import pools_of
from gno_dist.engine import Events, Execution, execute
from gno_dist.errors import BudgetExceeded, ConfigError, JournalDamaged
from gno_dist.journal import Journal
from gno_dist.manifest import manifest_of
from gno_dist.placement import Machine
from gno_dist.plan import Plan
from gno_dist.pool import InlinePool, Pool
from gno_dist.records import Failed, UnitRecord
from gno_dist.report.summary import exit_code
from gno_dist.runner import RunLimits
from gno_dist.sweep import LoadedJob, load_job
from workers.cluster import RayCluster

from .conftest import PRESETS, SWEEP, write_tiny

MACHINE = Machine(cores=2, memory_bytes=64 * 2**30)


def run(job: LoadedJob, folder: Path, factory: Any = InlinePool, **options: Any) -> dict[str, Any]:
    """Run a job in a new folder; ``options`` go to Execution, ``events`` to execute."""
    events = options.pop("events", Events())
    plan = Plan(job, pools_of)
    folder.mkdir(parents=True, exist_ok=True)
    execution = Execution(factory, MACHINE, options.pop("cache_file", None), **options)
    return asyncio.run(execute(plan, folder, execution, events))


def ray_pools(cluster: RayCluster) -> Any:
    from workers.pool import RayPools

    return RayPools(cluster)


def records(folder: Path, plan: Plan) -> list[UnitRecord]:
    journal = Journal(folder / "journal.jsonl", plan.n_units)
    try:
        return list(journal.in_plan_order())
    finally:
        journal.close()


def test_every_unit_has_one_record_and_every_measure_a_number(
    tiny_job: LoadedJob, tmp_path: Path
) -> None:
    summary = run(tiny_job, tmp_path / "job")
    plan = Plan(tiny_job, pools_of)
    found = records(tmp_path / "job", plan)
    assert [record.unit_id for record in found] == [unit.id for unit in plan.units()]
    # 4 queries at 5 depths, 2 questions, 2 rubric cases; each with 2 presets.
    assert summary["units"] == {"planned": 48, "done": 48, "failed": 0}
    assert summary["coverage"] == 1.0
    assert summary["complete"] is True
    assert all(
        measure["mean"] is not None
        for cell in summary["cells"]
        for measure in cell["measures"].values()
    )


@pytest.mark.ray
def test_one_fingerprint_however_it_ran(
    tiny_job: LoadedJob, tmp_path: Path, ray_cluster: RayCluster
) -> None:
    ways: dict[str, dict[str, Any]] = {
        "inline": {},
        "one lane": {"limits": RunLimits(lanes=1)},
        "many lanes": {"limits": RunLimits(lanes=9)},
        "ray": {"factory": ray_pools(ray_cluster)},
        "ray, two search actors": {
            "factory": ray_pools(ray_cluster),
            "workers": {"search": 2, "llm": 2},
        },
        "cached": {"cache_file": tmp_path / "replies.sqlite"},
        "cached again": {"cache_file": tmp_path / "replies.sqlite"},
    }
    found = {name: run(tiny_job, tmp_path / name, **way) for name, way in ways.items()}
    assert len({summary["fingerprint"] for summary in found.values()}) == 1
    assert found["cached"]["run"]["calls_made"] > 0
    assert found["cached again"]["run"]["calls_made"] == 0
    assert found["cached again"]["run"]["pools"] == []


def test_presets_that_share_a_stage_share_its_result(tiny_job: LoadedJob, tmp_path: Path) -> None:
    summary = run(tiny_job, tmp_path / "job")
    vector = [c for c in summary["cells"] if c["varied"].get("depth") == "vector"]
    # The journal counts what each point needed; the run made each different call once.
    assert [cell["calls"]["needed"] for cell in vector] == [4, 4]
    needed = sum(cell["calls"]["needed"] for cell in summary["cells"])
    assert summary["run"]["calls_made"] + summary["run"]["calls_shared"] == needed
    assert summary["run"]["calls_shared"] > needed / 3


class Stop(Exception):
    """Raised by a test's watcher to end a job early."""


def stop_after(n: int) -> Events:
    seen = []

    def on_record(record: UnitRecord) -> None:
        seen.append(record)
        if len(seen) == n:
            raise Stop

    return Events(on_record)


@pytest.mark.parametrize("n", [1, 7, 30, 38])
def test_a_stopped_job_resumes_to_the_same_fingerprint(
    tiny_job: LoadedJob, tmp_path: Path, n: int
) -> None:
    whole = run(tiny_job, tmp_path / "whole")
    with pytest.raises(Stop):
        run(tiny_job, tmp_path / "job", events=stop_after(n))
    partial = orjson.loads((tmp_path / "job" / "summary.json").read_bytes())
    assert partial["complete"] is False
    resumed = run(tiny_job, tmp_path / "job")
    assert resumed["fingerprint"] == whole["fingerprint"]
    assert resumed["run"]["units_run"] == 48 - partial["units"]["done"]
    assert partial["units"]["done"] >= n
    for name in ("cells", "gates", "coverage"):
        without_times(whole[name])
        without_times(resumed[name])
        assert resumed[name] == whole[name]


def without_times(cells: Any) -> None:
    """Drop what is observed: times, and which calls the cache answered."""
    if isinstance(cells, list):
        for cell in cells:
            for name in ("service_ms", "stage_ms", "calls"):
                cell.pop(name, None)
            for name in [n for n in cell.get("measures", {}) if n.startswith("latency")]:
                del cell["measures"][name]


def test_a_record_of_another_plan_is_refused(tiny_job: LoadedJob, tmp_path: Path) -> None:
    run(tiny_job, tmp_path / "job")
    path = tmp_path / "job" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    record = orjson.loads(lines[5])
    changed = orjson.dumps({**record, "unit_id": "0" * 64}) + b"\n"
    path.write_bytes(b"".join([*lines[:5], changed, *lines[6:]]))
    with pytest.raises(JournalDamaged, match=rf"unit {record['index']} has id 000000000000"):
        run(tiny_job, tmp_path / "job")


def test_a_finished_job_runs_nothing_again(tiny_job: LoadedJob, tmp_path: Path) -> None:
    first = run(tiny_job, tmp_path / "job")

    def no_pool(*args: Any) -> Pool:
        raise AssertionError("a finished job opened a pool")

    again = run(tiny_job, tmp_path / "job", factory=no_pool)
    assert again["fingerprint"] == first["fingerprint"]
    assert again["run"]["units_run"] == 0


@pytest.mark.ray
@pytest.mark.kills
def test_actors_killed_in_the_middle_cost_nothing(
    tiny_job: LoadedJob, tmp_path: Path, ray_cluster: RayCluster
) -> None:
    whole = run(tiny_job, tmp_path / "whole")
    pids: dict[str, list[int]] = {}
    killed: list[int] = []
    seen = 0

    def on_open(spec: Any, facts: list[dict[str, Any]]) -> None:
        pids[spec.label] = [fact["pid"] for fact in facts]

    def on_record(record: UnitRecord) -> None:
        nonlocal seen
        seen += 1
        if seen in {5, 12}:
            for label in [label for label in pids if pids[label]]:
                pid = pids[label].pop()
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    job = run(
        tiny_job,
        tmp_path / "job",
        factory=ray_pools(ray_cluster),
        events=Events(on_record, on_open),
        limits=RunLimits(lanes=2),
    )
    assert killed
    assert job["fingerprint"] == whole["fingerprint"]
    assert job["units"]["failed"] == 0


@pytest.mark.ray
@pytest.mark.kills
def test_a_poison_case_fails_alone(tmp_path: Path, ray_cluster: RayCluster) -> None:
    presets = PRESETS.replace('model: "two"', 'model: "two;die=logs"')
    job = load_job(write_tiny(tmp_path / "tiny", presets=presets))
    summary = run(job, tmp_path / "job", factory=ray_pools(ray_cluster))
    plan = Plan(job, pools_of)
    failed = {
        (record.suite, record.case_id)
        for record in records(tmp_path / "job", plan)
        if record.failed
    }
    # The generator `two` dies on calls that hold the word: expanding q2, and answering from a
    # passage about logs.
    assert ("query", "q2") in failed
    assert ("query", "q1") not in failed
    assert summary["units"]["done"] == plan.n_units
    lost = [
        outcome
        for record in records(tmp_path / "job", plan)
        for outcome in record.outcomes.values()
        if isinstance(outcome, Failed)
    ]
    assert lost
    assert all("WorkerLost (exit)" in outcome.message for outcome in lost)


def test_failed_units_run_again_when_their_cause_is_mended(tmp_path: Path) -> None:
    ask = SWEEP.replace("  - {suite: support.yaml}\n", "")  # its points use every role
    ask = "\n".join(line for line in ask.splitlines() if "query.yaml" not in line)
    presets = PRESETS.replace('"two"', '"two;raise=logs"')
    broken = load_job(write_tiny(tmp_path / "tiny", sweep=ask, presets=presets))
    first = run(broken, tmp_path / "job")
    assert first["units"]["failed"] > 0
    mended = load_job(write_tiny(tmp_path / "tiny", sweep=ask))
    kept = run(mended, tmp_path / "job")
    assert (kept["run"]["units_run"], kept["units"]["failed"]) == (0, first["units"]["failed"])
    again = run(mended, tmp_path / "job", retry_failed=True)
    assert again["run"]["units_run"] == first["units"]["failed"]
    assert again["fingerprint"] == run(mended, tmp_path / "whole")["fingerprint"]


def test_uniform_failures_stop_the_job_early(tmp_path: Path) -> None:
    presets = PRESETS.replace('"one"', '"one;raise=e"').replace('"two"', '"two;raise=e"')
    sweep = SWEEP.replace("depth: [fast, vector, hybrid, balanced, thorough]", "depth: [thorough]")
    queries = "".join(
        f"- {{id: q{n}, query: the spare keys {n}, judgments: []}}\n" for n in range(40)
    )
    path = write_tiny(tmp_path / "tiny", presets=presets, sweep=sweep, queries=queries)
    path.with_name("query.yaml").write_text(
        path.with_name("query.yaml").read_text().replace("subsets: {core: [q1, q3]}\n", "")
    )
    with pytest.raises(BudgetExceeded, match="all failed the same way"):
        run(load_job(path), tmp_path / "job")
    summary = orjson.loads((tmp_path / "job" / "summary.json").read_bytes())
    assert 10 <= summary["units"]["done"] < 84


def test_the_failure_budget_names_its_option(tmp_path: Path) -> None:
    presets = PRESETS.replace('model: "two"', 'model: "two;raise=e"')
    job = load_job(write_tiny(tmp_path / "tiny", presets=presets))
    with pytest.raises(BudgetExceeded, match="--max-failed"):
        run(job, tmp_path / "job", limits=RunLimits(lanes=1, max_failed=2))


def test_a_plan_from_a_manifest_is_the_same_plan(tiny_job: LoadedJob, tmp_path: Path) -> None:
    plan = Plan(tiny_job, pools_of)
    folder = jobs.create_folder(tmp_path / "results", plan)
    manifest = manifest_of(tiny_job, plan, folder, {})
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest))
    _, stored = jobs.stored_plan(folder)
    _, rebuilt = jobs.rebuild(folder, pools_of)
    ids = [unit.id for unit in plan.units()]
    assert [unit.id for unit in stored.units()] == ids
    assert [unit.id for unit in rebuilt.units()] == ids


SUPPORT_ONLY = """
version: 1
name: judges
presets_file: presets.yaml
presets: [one, two]
suites: [{suite: support.yaml}]
"""
TWO_JUDGES = PRESETS.replace(
    'judge: {backend: fake, model: "one"}', 'judge: {backend: fake, model: "two"}'
)


def test_a_group_that_does_not_fit_is_skipped_with_its_reason_and_run_elsewhere(
    tmp_path: Path,
) -> None:
    job = load_job(write_tiny(tmp_path / "tiny", sweep=SUPPORT_ONLY, presets=TWO_JUDGES))
    plan = Plan(job, pools_of)
    (huge,) = [key for key, spec in plan.pools.items() if spec.label == "fake two"]
    sizes = tmp_path / "workers.json"
    sizes.write_bytes(orjson.dumps({huge: 100 * 2**30}))
    partial = run(job, tmp_path / "job", measured_file=sizes)
    assert partial["complete"] is False
    assert partial["units"] == {"planned": 4, "done": 2, "failed": 0}
    (skipped,) = partial["run"]["skipped"]
    assert skipped["pools"] == ["fake two"]
    assert skipped["units"] == 2
    assert "need about 100.0 GiB together and 64.0 GiB are free" in skipped["reason"]
    assert exit_code(partial) == 3
    with pytest.raises(ConfigError, match=r"fake two need about 100\.0 GiB"):
        run(job, tmp_path / "strict", measured_file=sizes, strict=True)
    assert not (tmp_path / "strict" / "journal.jsonl").exists()
    # A machine with room runs the rest.
    whole = run(job, tmp_path / "job")
    assert whole["run"]["units_run"] == 2
    assert whole["fingerprint"] == run(job, tmp_path / "whole")["fingerprint"]


def test_a_job_of_which_nothing_fits_is_refused(tiny_job: LoadedJob, tmp_path: Path) -> None:
    plan = Plan(tiny_job, pools_of)
    sizes = tmp_path / "workers.json"
    sizes.write_bytes(orjson.dumps(dict.fromkeys(plan.pools, 100 * 2**30)))
    with pytest.raises(ConfigError, match="GiB are free"):
        run(tiny_job, tmp_path / "job", measured_file=sizes)
    assert list((tmp_path / "job").iterdir()) == []


def test_a_new_preset_runs_only_what_is_new(tmp_path: Path) -> None:
    only_one = SUPPORT_ONLY.replace("[one, two]", "[one]")
    cache = tmp_path / "replies.sqlite"
    first = run(
        load_job(write_tiny(tmp_path / "a", sweep=only_one, presets=TWO_JUDGES)),
        tmp_path / "first",
        cache_file=cache,
    )
    both = load_job(write_tiny(tmp_path / "a", sweep=SUPPORT_ONLY, presets=TWO_JUDGES))
    second = run(both, tmp_path / "second", cache_file=cache)
    assert first["run"]["calls_made"] == 2
    assert second["run"]["calls_made"] == 2, "two cases of the new preset, none of the old one"
    assert [pool["label"] for pool in second["run"]["pools"]] == ["fake two"]


@pytest.mark.ray
def test_memory_of_workers_is_measured_for_the_next_plan(
    tiny_job: LoadedJob, tmp_path: Path, ray_cluster: RayCluster
) -> None:
    sizes = tmp_path / "workers.json"
    run(tiny_job, tmp_path / "job", factory=ray_pools(ray_cluster), measured_file=sizes)
    known = orjson.loads(sizes.read_bytes())
    assert known.keys() == Plan(tiny_job, pools_of).pools.keys()
    assert all(20 * 2**20 < size < 4 * 2**30 for size in known.values())
