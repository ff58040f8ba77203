"""The journal: whole lines or none, whatever happens to the file or the disk."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gno_dist.errors import ConfigError, JournalDamaged
from gno_dist.journal import Journal
from gno_dist.records import Failed, Scored, ScoredDoc, UnitRecord

N = 4


def record(index: int, value: float = 0.5) -> UnitRecord:
    return UnitRecord(
        unit_id=f"{index:064x}",
        index=index,
        suite="s",
        point="p",
        case_id=f"ä{index}",
        trial=0,
        ranking=(ScoredDoc("d", value),),
        outcomes={"m": Scored(value=value)},
    )


def written(path: Path, *indices: int) -> bytes:
    journal = Journal(path, N)
    for index in indices:
        assert journal.append(record(index))
    journal.close()
    return path.read_bytes()


def test_records_come_back_in_plan_order(tmp_path: Path) -> None:
    written(tmp_path / "j", 2, 0, 3)
    journal = Journal(tmp_path / "j", N)
    assert [r.index for r in journal.in_plan_order()] == [0, 2, 3]
    assert [journal.done(i) for i in range(N)] == [True, False, True, True]
    assert journal.n_done == 3
    journal.close()


def test_a_file_cut_at_any_byte_keeps_its_whole_records(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", 0, 1, 2)
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(ends[0], len(whole) + 1):
        path = tmp_path / f"cut-{length}"
        path.write_bytes(whole[:length])
        kept = sum(end <= length for end in ends)
        journal = Journal(path, N)
        assert [r.index for r in journal.in_plan_order()] == list(range(kept))
        torn = length - ends[kept - 1]
        assert journal.torn_bytes == torn
        copies = list(tmp_path.glob(f"cut-{length}.torn-*"))
        assert [copy.read_bytes() for copy in copies] == (
            [whole[length - torn : length]] * bool(torn)
        )
        assert journal.append(record(3))
        journal.close()
        again = Journal(path, N)
        assert [r.index for r in again.in_plan_order()] == [*range(kept), 3]
        again.close()


def test_a_bad_line_elsewhere_is_named_by_number(tmp_path: Path) -> None:
    lines = written(tmp_path / "j", 0, 1, 2).splitlines(keepends=True)
    (tmp_path / "j").write_bytes(lines[0] + b"garbage\n" + lines[2])
    with pytest.raises(JournalDamaged) as damaged:
        Journal(tmp_path / "j", N)
    assert damaged.value.line == 2


def test_a_unit_that_has_a_record_gets_no_second_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", N)
    assert journal.append(record(1, 0.25))
    assert not journal.append(record(1, 0.75))
    journal.close()
    assert (tmp_path / "j").read_bytes().count(b"\n") == 1


def test_failed_units_may_run_again_and_their_last_record_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", N)
    failed = record(1, 0.0).model_copy(update={"outcomes": {"m": Failed(error="e", message="")}})
    journal.append(failed)
    journal.append(record(2, 0.5))
    journal.close()
    again = Journal(tmp_path / "j", N, forget_failed=True)
    assert (again.n_done, again.done(1), again.done(2)) == (1, False, True)
    assert again.append(record(1, 0.75))
    again.close()
    last = Journal(tmp_path / "j", N, read_only=True)
    assert [r.outcomes["m"] for r in last.in_plan_order()] == [
        Scored(value=0.75),
        Scored(value=0.5),
    ]
    assert last.n_done == 2
    last.close()


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path / "j", N)
    first.append(record(1, 0.25))
    with pytest.raises(ConfigError, match="another process is running this job"):
        Journal(tmp_path / "j", N)
    first.close()
    Journal(tmp_path / "j", N).close()


def test_a_reader_changes_nothing_beside_a_writer(tmp_path: Path) -> None:
    writer = Journal(tmp_path / "j", N)
    writer.append(record(1, 0.25))
    half = b'{"version":1,"unit'
    with (tmp_path / "j").open("ab") as stream:
        stream.write(half)
    reader = Journal(tmp_path / "j", N, read_only=True)
    assert reader.n_done == 1
    reader.close()
    writer.close()
    assert (tmp_path / "j").read_bytes().endswith(half)
    assert [path.name for path in tmp_path.iterdir()] == ["j"]


def test_a_job_without_a_journal_reads_as_empty(tmp_path: Path) -> None:
    reader = Journal(tmp_path / "none", N, read_only=True)
    assert (reader.n_done, list(reader.in_plan_order())) == (0, [])
    reader.close()
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_plan_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "j", 3)
    with pytest.raises(JournalDamaged, match="unit index 3 is not in this plan"):
        Journal(tmp_path / "j", 3)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from gno_dist.errors import StorageFailed
from tests.test_journal import Journal, N, record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
journal = Journal(path, N)
journal.append(record(0))
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
try:
    journal.append(record(1))
except StorageFailed as exc:
    print("refused", exc.detail)
print(path.stat().st_size == size, journal.done(1))
"""


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    assert hasattr(resource, "RLIMIT_FSIZE")
    assert hasattr(signal, "SIGXFSZ")
    root = Path(__file__).resolve().parents[1]
    found = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "j")],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout == "refused File too large\nTrue False\n"
    journal = Journal(tmp_path / "j", N)
    assert [r.index for r in journal.in_plan_order()] == [0]
    journal.close()
