"""Workers, threads and memory of the pools of a group, on machines of any size."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist.calls import PoolSpec
from gno_dist.machine import cores, gpus, memory, this_machine
from gno_dist.measured import keep_measured, read_measured
from gno_dist.placement import DoesNotFit, Machine, memory_of, place, role_of

repeatable = settings(deadline=None, derandomize=True, max_examples=200)
MIB, GIB = 2**20, 2**30
INDEX = PoolSpec("index", "index handbook", {}, {})
SMALL = PoolSpec("llama", "llama small", {"n": 1}, {"bytes": 240 * MIB})
LARGE = PoolSpec("llama", "llama large", {"n": 2}, {"bytes": 2500 * MIB})
FAKE = PoolSpec("fake", "fake one", {}, {})


def keyed(*specs: PoolSpec) -> dict[str, PoolSpec]:
    return {spec.label: spec for spec in specs}


@pytest.mark.parametrize(
    ("cores", "workers", "expected"),
    [
        # (workers, threads, cpus) of the index and of the model.
        # One core for two workers of one thread each: half a core each.
        (1, {}, [(1, 1, 0.5), (1, 1, 0.5)]),
        (2, {}, [(1, 1, 1.0), (1, 1, 1.0)]),
        # The index has one thread, the model the other seven.
        (8, {}, [(1, 1, 1.0), (1, 7, 7.0)]),
        # 8 - 2 = 6 cores over 2 models: 3 threads each.
        (8, {"search": 2, "llm": 2}, [(2, 1, 1.0), (2, 3, 3.0)]),
        # 8 - 1 = 7 over 2: 3 threads each, one core is left.
        (8, {"llm": 2}, [(1, 1, 1.0), (2, 3, 3.0)]),
        # 4 + 4 workers on 2 cores: 2 / 8 of a core each.
        (2, {"search": 4, "llm": 4}, [(4, 1, 0.25), (4, 1, 0.25)]),
        # 3 workers on 2 cores: 2 / 3, cut after three digits so that the sum stays below 2.
        (2, {"llm": 2}, [(1, 1, 0.666), (2, 1, 0.666)]),
    ],
)
def test_cores_are_shared(
    cores: int, workers: dict[str, int], expected: list[tuple[int, int, float]]
) -> None:
    limits = place(keyed(INDEX, SMALL), Machine(cores, 64 * GIB), workers=workers)
    assert [(one.workers, one.threads, one.cpus) for one in limits.values()] == expected


def test_an_index_alone_has_one_thread_and_a_model_alone_has_all_cores() -> None:
    machine = Machine(8, 64 * GIB)
    assert place(keyed(INDEX), machine)[INDEX.label].threads == 1
    assert place(keyed(SMALL), machine)[SMALL.label].threads == 8
    assert place({}, machine) == {}


def test_two_models_share_what_the_index_leaves() -> None:
    # (8 - 1) // 2 = 3 threads each.
    limits = place(keyed(INDEX, SMALL, LARGE), Machine(8, 64 * GIB))
    assert [one.threads for one in limits.values()] == [1, 3, 3]


@given(
    st.integers(1, 256),
    st.lists(st.sampled_from([INDEX, SMALL, LARGE, FAKE]), unique_by=lambda spec: spec.label),
    st.dictionaries(st.sampled_from(["search", "llm"]), st.integers(1, 64)),
)
@repeatable
def test_a_group_never_asks_for_more_than_the_machine_has(
    cores: int, specs: list[PoolSpec], workers: dict[str, int]
) -> None:
    limits = place(keyed(*specs), Machine(cores, 10**15), workers=workers)
    assert limits.keys() == keyed(*specs).keys()
    assert sum(one.workers * one.cpus for one in limits.values()) <= cores
    n_workers = sum(one.workers for one in limits.values())
    assert sum(one.workers * one.threads for one in limits.values()) <= max(cores, n_workers)
    for spec in specs:
        one = limits[spec.label]
        assert one.workers == workers.get(role_of(spec), 1)
        assert one.threads >= 1
        assert one.threads == 1 or spec.kind != "index"


def test_memory_is_the_model_once_and_a_context_a_worker() -> None:
    # 240 for the file, which its workers map together; 150 + 700 a worker.
    assert memory_of(SMALL, 1) == (240 + 850) * MIB
    assert memory_of(SMALL, 3) == (240 + 3 * 850) * MIB
    # 150 + 250 a worker.
    assert memory_of(INDEX, 2) == 2 * 400 * MIB


def test_what_does_not_fit_is_refused_with_names_and_numbers() -> None:
    # 400 + 1090 + 3350 = 4840 MiB = 4.73 GiB.
    group = keyed(LARGE, INDEX, SMALL)
    place(group, Machine(8, 4840 * MIB))
    with pytest.raises(DoesNotFit):
        place(group, Machine(8, 4840 * MIB - 1))
    with pytest.raises(DoesNotFit) as caught:
        place(group, Machine(8, 4 * GIB))
    assert str(caught.value) == (
        "index handbook, llama large, llama small need about 4.7 GiB together and 4.0 GiB are free;"
        " lower --actors or the sweep"
    )


def test_roles_and_deadlines() -> None:
    assert [role_of(spec) for spec in (INDEX, SMALL, FAKE)] == ["search", "llm", "llm"]
    limits = place(keyed(INDEX), Machine(1, GIB), attempt_timeout_s=7.5)
    assert limits[INDEX.label].attempt_timeout_s == 7.5


def test_this_machine_has_cores_and_memory() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory_bytes > 0


ON_GPU = PoolSpec("llama", "llama gpu", {"n": 3, "gpu_layers": 99}, {"bytes": 240 * MIB})


def test_a_model_on_a_gpu_needs_one_and_its_workers_share_it() -> None:
    with pytest.raises(DoesNotFit, match=r"llama gpu want a GPU .* there is none"):
        place(keyed(INDEX, ON_GPU), Machine(8, 64 * GIB))
    limits = place(keyed(INDEX, ON_GPU), Machine(8, 64 * GIB, gpus=1), workers={"llm": 3})
    assert limits[ON_GPU.label].gpus == 0.333
    assert limits[INDEX.label].gpus == 0
    assert place(keyed(ON_GPU), Machine(8, 64 * GIB, gpus=4))[ON_GPU.label].gpus == 1.0


def test_a_measured_size_replaces_the_estimate() -> None:
    # 500 MiB resident, of which 240 are the weights: 240 + 2 * 260.
    assert memory_of(SMALL, 2, 500 * MIB) == 760 * MIB
    # No process is smaller than Python with its libraries: 240 + 150.
    assert memory_of(SMALL, 1, 241 * MIB) == 390 * MIB
    assert memory_of(INDEX, 3, 200 * MIB) == 600 * MIB
    place(keyed(SMALL), Machine(1, 800 * MIB), measured={SMALL.label: 500 * MIB})
    with pytest.raises(DoesNotFit):
        place(keyed(SMALL), Machine(1, 800 * MIB))


def test_sizes_are_kept_for_the_next_plan(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "workers.json"
    assert read_measured(path) == {}
    keep_measured(path, {"a": 5, "b": 7})
    keep_measured(path, {"a": 3, "c": 1})
    assert read_measured(path) == {"a": 5, "b": 7, "c": 1}
    path.write_text("{broken", encoding="utf-8")
    assert read_measured(path) == {}
    keep_measured(None, {"a": 1})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_quota_of_the_control_group_counts(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert cores(tmp_path) == (expected or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ],
)
def test_a_memory_limit_of_the_control_group_counts(tmp_path: Path, limit: str, used: str) -> None:
    free = memory(tmp_path)
    for name, text in ((limit, "5000000"), (used, "2000000")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert free > memory(tmp_path) == 3_000_000
    (tmp_path / limit).write_text("max\n", encoding="ascii")
    assert memory(tmp_path) > 3_000_000


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert gpus() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus() == 0
