"""Files in: harmless spellings accepted, every fault placed. Files out: whole or not at all."""

import hashlib
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist import files
from gno_dist.errors import ConfigError

repeatable = settings(deadline=None, derandomize=True, max_examples=100)


def written(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    return path


def problem(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        files.read_structured(path)
    assert caught.value.source == str(path)
    (found,) = caught.value.problems
    assert "\n" not in found
    return found


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_text_is_read_alike_however_an_editor_saved_it(
    tmp_path: Path, mark: bytes, newline: bytes
) -> None:
    path = written(
        tmp_path, "a.md", mark + "# Kündigung\n\nfünf\n".encode().replace(b"\n", newline)
    )
    assert files.read_text(path) == "# Kündigung\n\nfünf\n"


def test_bytes_that_are_not_utf8_are_named_by_line_and_offset(tmp_path: Path) -> None:
    # Latin-1: "ok\n" is bytes 0-2, "K" is 3, the u umlaut is byte 4, in line 2.
    path = written(tmp_path, "a.yaml", "ok\nKündigung\n".encode("latin-1"))
    assert problem(path).startswith("line 2: byte 4 (0xfc) is not UTF-8")


def test_missing_files_folders_and_unknown_endings_are_named(tmp_path: Path) -> None:
    assert problem(tmp_path / "none.yaml") == "cannot be read: No such file or directory"
    (tmp_path / "folder.json").mkdir()
    assert problem(tmp_path / "folder.json") == "cannot be read: Is a directory"
    assert problem(written(tmp_path, "a.toml", "")) == (
        "unknown file type '.toml'; use .yaml, .json or .jsonl"
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", ' {"a": [1, 2.5, null]} \n', {"a": [1, 2.5, None]}),
        ("a.JSON", "[]", []),
        ("a.jsonl", '{"a": 1}\r\n\n   \n{"a": 2}', [{"a": 1}, {"a": 2}]),
        ("a.jsonl", '"line\u2028separator"\n', ["line\u2028separator"]),
        ("a.jsonl", "", []),
        ("a.yaml", "a: [1, x]\n", {"a": [1, "x"]}),
        ("a.yml", "", None),
        (
            "a.yaml",
            "base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\n",
            {"base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}},
        ),
        # JSON has no dates: they stay the text they are, also where no calendar has the day.
        ("a.yaml", "[2026-11-30, 2026-13-45 1:00]", ["2026-11-30", "2026-13-45 1:00"]),
    ],
)
def test_every_format_gives_plain_values(
    tmp_path: Path, name: str, text: str, expected: Any
) -> None:
    assert files.read_structured(written(tmp_path, name, text)) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", '{"a": 1,\n "b": }', "line 2, column 7: "),
        ("a.json", "[NaN]", "line 1, column 2: "),
        ("a.json", "[1] // comment", "line 1, column 5: "),
        ("a.json", '["\\ud800"]', "line 1, column "),
        ("a.json", "", "line 1, column 1: "),
        ("a.jsonl", '{}\n\n{"a": }\n', "line 3, column 7: "),
        ("a.yaml", "a: 1\nb: [1\n", "line 3, column 1: "),
        ("a.yaml", "a: 1\nb: 2\na: 3\n", "line 3, column 1: key 'a' appears twice"),
        ("a.yaml", "x: {b: 1, b: 1}\n", "line 1, column 11: key 'b' appears twice"),
        ("a.yaml", "- {1: x, 1: y}\n", "line 1, column 10: key '1' appears twice"),
        ("a.yaml", "{[1]: 2}", "line 1, column 2: found unhashable key"),
        ("a.yaml", "a: 1\n--- \nb: 2\n", "line 2, column 1: "),
        ("a.yaml", "a: .nan\n", "line 1, column 4: .nan is not a finite number"),
        ("a.yaml", "a: [-.inf]\n", "line 1, column 5: -.inf is not a finite number"),
        ("a.yaml", "a: 1.0e+999\n", "line 1, column 4: 1.0e+999 is not a finite number"),
        ("a.yaml", "!!python/object/apply:os.getcwd []", "line 1, column 1: could not determine"),
        ("a.yaml", "a: !!int x", "invalid literal for int() with base 10: 'x'"),
        ("a.yaml", "a: \x00", "unacceptable character #x0000"),
        ("a.yaml", "[" * 5000, "nested too deeply"),
    ],
)
def test_a_fault_has_its_place(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert problem(written(tmp_path, name, text)).startswith(expected)


def test_an_equal_key_in_another_mapping_is_fine(tmp_path: Path) -> None:
    path = written(tmp_path, "a.yaml", "a: {a: {a: 1}}\nb: [{a: 1}, {a: 2}]\n'1': x\n1: y\n")
    assert files.read_structured(path) == {
        "a": {"a": {"a": 1}},
        "b": [{"a": 1}, {"a": 2}],
        "1": "x",
        1: "y",
    }


@given(st.text(st.characters(exclude_categories=[])))
@repeatable
def test_printable_text_can_always_be_written(text: str) -> None:
    shown = files.printable(text)
    shown.encode("utf-8")
    assert len(shown) == len(text)
    pairs = zip(shown, text, strict=True)
    assert all(a == b or (a == "\ufffd" and "\ud800" <= b <= "\udfff") for a, b in pairs)


def test_json_ends_with_a_newline_and_refuses_what_json_lacks() -> None:
    assert files.json_bytes({"ä": 1}) == '{"ä":1}\n'.encode()
    assert files.json_bytes([1], indent=True) == b"[\n  1\n]\n"
    for value in ({1: 2}, {1, 2}, "\ud800", 2**64):
        with pytest.raises(TypeError):
            files.json_bytes(value)


def test_writing_replaces_a_whole_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    files.write_json(path, {"a": 1})
    files.write_json(path, {"a": 2})
    assert path.read_bytes() == b'{\n  "a": 2\n}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    files.write_text(path, "a\nlone \ud800\n")
    assert path.read_bytes() == "a\nlone \ufffd\n".encode()
    assert [item.name for item in path.parent.iterdir()] == ["a.json"]


def test_a_failed_write_keeps_the_old_file_and_removes_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    (tmp_path / "a.json" / "inside").write_text("old", encoding="utf-8")
    with pytest.raises(OSError, match="directory"):
        files.write_atomic(tmp_path / "a.json", b"new")
    assert [item.name for item in tmp_path.rglob("*")] == ["a.json", "inside"]


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbfa\r\n" * 100_000
    path = written(tmp_path, "a.bin", data)
    assert files.sha256_file(path) == hashlib.sha256(data).hexdigest()
