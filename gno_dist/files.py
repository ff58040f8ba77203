"""The only file I/O of the package: UTF-8 text, strict JSON, JSONL and YAML in, atomic files out.

Accepts a byte order mark, CRLF and blank lines, refuses everything that is not UTF-8, and names
file and place of what it refuses. Knows formats, not what the documents mean.
"""

import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from gno_dist.errors import ConfigError
from gno_dist.redact import redactor

_SURROGATE = re.compile("[\ud800-\udfff]")


def read_text(path: Path) -> str:
    """Read UTF-8 text without its byte order mark, newlines folded to LF.

    Raises:
        ConfigError: the file is missing, unreadable or not UTF-8 (with line and byte offset).
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(str(path), [f"cannot be read: {exc.strerror or exc}"]) from exc
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(
            str(path),
            [
                f"line {line}: byte {exc.start} ({data[exc.start]:#04x}) is not UTF-8;"
                " save the file as UTF-8"
            ],
        ) from exc
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, source: str) -> Any:
    """Parse strict JSON (no NaN, no comments).

    Raises:
        ConfigError: with line and column of the first fault.
    """
    try:
        return orjson.loads(text.encode("utf-8", "surrogatepass"))
    except orjson.JSONDecodeError as exc:
        raise ConfigError(source, [f"line {exc.lineno}, column {exc.colno}: {exc.msg}"]) from exc


def read_structured(path: Path) -> Any:
    """Read a ``.yaml``/``.yml``, ``.json`` or ``.jsonl`` file; JSONL gives the list of its lines.

    Raises:
        ConfigError: unreadable, not UTF-8, unknown ending, or a syntax fault with its place.
    """
    suffix = path.suffix.lower()
    if suffix == ".json":
        return parse_json(read_text(path), str(path))
    if suffix == ".jsonl":
        return [value for _, value in read_jsonl(path)]
    if suffix in {".yaml", ".yml"}:
        return _parse_yaml(read_text(path), str(path))
    raise ConfigError(str(path), [f"unknown file type {suffix!r}; use .yaml, .json or .jsonl"])


def read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield ``(line number, value)`` for every line that is not blank; line numbers start at 1.

    Raises:
        ConfigError: the first line that is not JSON, by number.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, orjson.loads(line)
        except orjson.JSONDecodeError as exc:
            raise ConfigError(str(path), [f"line {number}, column {exc.colno}: {exc.msg}"]) from exc


def _parse_yaml(text: str, source: str) -> Any:
    import yaml  # 30 ms; most commands that read no YAML should not pay for it

    class JsonLoader(yaml.SafeLoader):
        """Safe YAML with JSON's values: no key twice, no NaN, and dates stay the text they are."""

        yaml_implicit_resolvers = {
            first: [item for item in items if item[0] != "tag:yaml.org,2002:timestamp"]
            for first, items in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} appears twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

        def construct_finite(self, node: yaml.ScalarNode) -> float:
            value = self.construct_yaml_float(node)
            if not math.isfinite(value):
                raise yaml.constructor.ConstructorError(
                    None, None, f"{node.value} is not a finite number", node.start_mark
                )
            return value

    JsonLoader.add_constructor("tag:yaml.org,2002:float", JsonLoader.construct_finite)
    try:
        return yaml.load(text, Loader=JsonLoader)
    except RecursionError as exc:
        raise ConfigError(source, ["nested too deeply"]) from exc
    except ValueError as exc:  # an explicit tag that does not fit, such as !!int x
        raise ConfigError(source, [str(exc)]) from exc
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(
            source, [place + (getattr(exc, "problem", None) or " ".join(str(exc).split()))]
        ) from exc


def printable(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def json_bytes(value: Any, *, indent: bool = False) -> bytes:
    """Encode as strict UTF-8 JSON with a final newline.

    Raises:
        TypeError: a value JSON does not have, or a lone surrogate.
    """
    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(value, option=options)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: a temporary sibling, fsync, then an atomic replace.

    ``data`` is UTF-8 text; values of secrets in it are replaced.

    Raises:
        OSError: as from the system; the temporary file is removed.
    """
    data = redactor().json(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented strict JSON, atomically."""
    write_atomic(path, json_bytes(value, indent=True))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with LF newlines, atomically."""
    write_atomic(path, printable(text).encode("utf-8"))


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, 64 hex digits.

    Raises:
        OSError: the file cannot be read.
    """
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
