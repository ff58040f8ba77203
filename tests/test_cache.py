"""The reply cache: what went in comes out to the last bit, for several processes; no faults."""

import math
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gno_dist.backends.base import KINDS, Handled
from gno_dist.backends.host import Host, decode_reply, encode_call, encode_reply
from gno_dist.cache import ReplyCache
from gno_dist.calls import Fault, PoolSpec, Reply, make_call
from gno_dist.errors import BackendError
from gno_dist.records import Usage

ROOT = Path(__file__).resolve().parents[1]
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    FINITE
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.none()
    | st.text("aäβ\n\0\U0001f600"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("aä", max_size=3), inner),
    max_leaves=12,
)


def reply(value: object, ms: float = 1.5) -> Reply:
    return Reply(value, ms, Usage(input_tokens=7, output_tokens=2, cost_usd=0.1))


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@given(value=VALUES, ms=FINITE)
def test_a_reply_comes_back_as_it_was(value: object, ms: float) -> None:
    cache = ReplyCache(None)
    try:
        cache.put_many([("id", reply(value, ms))])
        found = cache.get_many(["id"])
    finally:
        cache.close()
    # repr tells -0.0 from 0.0, 1 from 1.0 and True.
    read = found["id"]._replace(encoded=b"")
    assert repr(read) == repr(reply(value, ms)._replace(cached=True))


@given(st.lists(FINITE))
def test_floats_are_exact_to_the_bit(numbers: list[float]) -> None:
    cache = ReplyCache(None)
    try:
        cache.put_many([("id", reply({"logprobs": numbers}))])
        found = cache.get_many(["id"])["id"].value["logprobs"]
    finally:
        cache.close()
    assert [bits(number) for number in found] == [bits(number) for number in numbers]


def test_a_file_keeps_replies_and_only_the_asked_ones_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "replies.sqlite"
    first = ReplyCache(path)
    first.put_many((f"id{n}", reply(n)) for n in range(1203))
    first.close()
    again = ReplyCache(path)
    assert again.count() == 1203
    # More ids than one query takes, and some that are not there.
    wanted = [f"id{n}" for n in range(0, 2000)]
    assert {key: r.value for key, r in again.get_many(wanted).items()} == {
        f"id{n}": n for n in range(1203)
    }
    assert again.get_many(["id5", "other"]).keys() == {"id5"}
    assert again.get_many([]) == {}
    again.close()


def test_the_first_reply_of_an_id_stays(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    cache.put_many([("id", reply(1))])
    cache.put_many([("id", reply(2)), ("other", reply(3))])
    assert {key: r.value for key, r in cache.get_many(["id", "other"]).items()} == {
        "id": 1,
        "other": 3,
    }
    cache.close()


def test_two_connections_see_each_other(tmp_path: Path) -> None:
    one, two = ReplyCache(tmp_path / "r.sqlite"), ReplyCache(tmp_path / "r.sqlite")
    one.put_many([("a", reply(1))])
    two.put_many([("a", reply(9)), ("b", reply(2))])
    for cache in (one, two):
        assert {key: r.value for key, r in cache.get_many(["a", "b"]).items()} == {"a": 1, "b": 2}
    one.close()
    assert two.count() == 2
    two.close()


WRITER = """
import sys
from pathlib import Path
from gno_dist.cache import ReplyCache
from gno_dist.calls import Reply
from gno_dist.records import Usage
name = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
cache = ReplyCache(Path(sys.argv[1]))
for n in range(60):
    cache.put_many([(f"{name}-{n}", Reply(n, 1.0, Usage())), (f"both-{n}", Reply(n, 1.0, Usage()))])
    assert len(cache.get_many([f"{name}-{n}", f"both-{n}"])) == 2
cache.close()
"""


def test_processes_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("x", "y", "z")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:  # all open the file that does not exist yet at the same moment
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    errors = [writer.communicate(timeout=60)[1] for writer in writers]
    assert errors == ["", "", ""]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    cache = ReplyCache(path)
    assert cache.count() == 4 * 60
    cache.close()


TEMPORARY = """
import os
from gno_dist.cache import ReplyCache
from gno_dist.calls import Reply
from gno_dist.records import Usage
cache = ReplyCache(None)
for n in range(40):
    cache.put_many([(f"{n}", Reply("x" * 500_000, 1.0, Usage()))])
assert cache.count() == 40
links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
targets = [os.readlink(link) for link in links if os.path.islink(link)]
folder = os.environ["SQLITE_TMPDIR"]
print(sum(target.startswith(folder) for target in targets), len(os.listdir(folder)))
cache.close()
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at open files in /proc")
def test_a_temporary_cache_leaves_no_file(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", TEMPORARY],
        cwd=tmp_path,
        env={**os.environ, "SQLITE_TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # 20 MB lie on disk in one file that has no name any more: not even a kill can leave it there.
    assert found.stdout == "1 0\n"
    assert list(tmp_path.iterdir()) == []


def test_faults_are_never_kept_nor_given_out(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    cache = ReplyCache(path)
    fault: object = Fault("ValueError", "bad")
    with pytest.raises(AttributeError):
        cache.put_many([("good", reply(1)), ("bad", fault)])  # type: ignore[list-item]
    assert cache.count() == 0
    other = apsw.Connection(str(path))
    other.execute("INSERT INTO replies VALUES ('bad', ?)", (b'{"error": "E", "message": "m"}',))
    other.close()
    assert cache.get_many(["bad"]) == {}
    cache.close()


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"not a database at all\n" * 100)
    with pytest.raises(BackendError, match="file is not a database; `gno-dist cache clear`"):
        ReplyCache(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_refused_wherever_it_stands(value: float) -> None:
    """orjson writes null for it, which a later stage would read as a reply without numbers."""
    for nested in (value, [1.0, value], {"logprobs": [[0.5, value]]}):
        with pytest.raises(ValueError, match="not finite"):
            encode_reply(reply(nested))


class Overflowing:
    """A backend of which some calls have no finite answer."""

    def handle(self, method: str, args: Mapping[str, Any]) -> Handled:
        return Handled({"logprobs": [args["number"] * 1e308]})

    def info(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def open_overflowing(identity: Any, location: Any, threads: int) -> Overflowing:
    return Overflowing()


def test_a_reply_that_is_not_finite_is_a_fault_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "overflowing", f"{__name__}:open_overflowing")
    spec = PoolSpec("overflowing", "overflowing", {}, {})
    host = Host(spec, 1)
    host.start()
    calls = [make_call("rerank", spec, spec.key, "m", {"number": number}) for number in (1, 10)]
    good, bad = (decode_reply(data) for data in host.run([encode_call(call) for call in calls]))
    assert isinstance(good, Reply)
    assert good.value == {"logprobs": [1e308]}
    assert bad == Fault("ValueError", "a number in the reply is not finite: inf")
