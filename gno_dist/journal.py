"""The journal: one JSON line a finished unit, append-only; the truth from which all else follows.

A line is whole or it is not there: a torn last line is cut when the file is opened again to write,
and the cut bytes are kept beside it. One process writes at a time. A unit that has a record gets
no second one, so a late answer changes nothing; where failed ones ran again, the last one counts.
"""

import fcntl
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from gno_dist.errors import ConfigError, JournalDamaged, StorageFailed
from gno_dist.records import UnitRecord
from gno_dist.redact import redactor

FSYNC_EVERY_S = 1.0
_MISSING = -1
_serialise = UnitRecord.__pydantic_serializer__.to_json


class Journal:
    """An open journal; holds 8 bytes a unit, never the records."""

    def __init__(
        self, path: Path, n_units: int, *, read_only: bool = False, forget_failed: bool = False
    ) -> None:
        """Open or create a journal.

        Args:
            path: the file.
            n_units: units of the plan.
            read_only: change nothing, beside a process that may be writing.
            forget_failed: count units whose record failed as not done, so that they run again.

        Raises:
            ConfigError: another process writes it.
            JournalDamaged: a line that is not the last cannot be read, by number.
            OSError: the file cannot be written.
        """
        self.path = path
        self._read_only = read_only
        self._forget_failed = forget_failed
        self._offsets = array("q", [_MISSING]) * n_units
        self.n_done = 0
        self.torn_bytes = 0
        if read_only and not path.exists():
            self._stream: Any = BytesIO()
            return
        # Unbuffered: after a failed write nothing half-written may wait for the next flush.
        self._stream = path.open("rb" if read_only else "ab", buffering=0)
        try:
            if not read_only:
                self._lock()
            self._recover()
        except BaseException:
            self._stream.close()
            raise
        self._synced = time.monotonic()

    def _lock(self) -> None:
        """Hold the file until it is closed or this process ends, however it ends."""
        try:
            fcntl.flock(self._stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                str(self.path), ["another process is running this job; wait for it or stop it"]
            ) from None

    def _recover(self) -> None:
        """Index the whole lines; cut a torn tail and keep a copy of it."""
        offset = 0
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    if not self._read_only:
                        self._cut(offset, line)
                    return
                if line.strip():
                    self._note(parse_line(line, self.path, number), offset, number)
                offset += len(line)

    def _note(self, record: UnitRecord, offset: int, number: int) -> None:
        if not 0 <= record.index < len(self._offsets):
            raise JournalDamaged(
                str(self.path), number, f"unit index {record.index} is not in this plan"
            )
        self.n_done -= self.done(record.index)
        kept = not (self._forget_failed and record.failed)
        self._offsets[record.index] = offset if kept else _MISSING
        self.n_done += kept

    def _cut(self, offset: int, tail: bytes) -> None:
        self.torn_bytes = len(tail)
        copy = self.path.with_name(f"{self.path.name}.torn-{offset}")
        copy.write_bytes(tail)
        with self.path.open("rb+") as stream:
            stream.truncate(offset)
            os.fsync(stream.fileno())

    def done(self, index: int) -> bool:
        """Whether the unit at a plan index has a record."""
        return self._offsets[index] != _MISSING

    def append(self, record: UnitRecord) -> bool:
        """Write a record; False (and nothing written) when its unit has one already."""
        return bool(self.append_all([record]))

    def append_all(self, records: Sequence[UnitRecord]) -> list[UnitRecord]:
        """Write the records whose units have none yet, in one go; returns those.

        Raises:
            StorageFailed: the disk is full or gone; what was written before stays whole.
        """
        new = {record.index: record for record in records if not self.done(record.index)}
        hide = redactor().json
        lines = [hide(_serialise(record)) + b"\n" for record in new.values()]
        offset = self._stream.seek(0, os.SEEK_END)
        data = memoryview(b"".join(lines))
        try:
            while data:
                data = data[self._stream.write(data) :]
        except OSError as exc:
            os.ftruncate(self._stream.fileno(), offset)
            raise StorageFailed(str(self.path), exc.strerror or str(exc)) from exc
        for index, line in zip(new, lines, strict=True):
            self._offsets[index] = offset
            offset += len(line)
        self.n_done += len(new)
        if time.monotonic() - self._synced >= FSYNC_EVERY_S:
            self.sync()
        return list(new.values())

    def sync(self) -> None:
        """Force everything written to the disk."""
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def in_plan_order(self) -> Iterator[UnitRecord]:
        """All records in plan order, read one at a time."""
        for line in self._lines():
            yield parse_line(line, self.path, 0)

    def plain(self) -> Iterator[dict[str, Any]]:
        """All records in plan order as plain JSON, not validated again: for digests."""
        return map(orjson.loads, self._lines())

    def _lines(self) -> Iterator[bytes]:
        if self.n_done == 0:
            return
        with (
            self.path.open("rb") as stream,
            mmap(stream.fileno(), 0, access=ACCESS_READ) as data,
        ):
            for offset in self._offsets:
                if offset != _MISSING:
                    yield data[offset : data.find(b"\n", offset)]

    def close(self) -> None:
        """Flush to the disk and close; a second close does nothing."""
        if not self._stream.closed:
            if not self._read_only:
                self.sync()
            self._stream.close()


def parse_line(line: bytes, path: Path, number: int) -> UnitRecord:
    """Read one journal line.

    Raises:
        JournalDamaged: it is not a valid record.
    """
    try:
        return UnitRecord.model_validate_json(line)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        detail = f"{where}: {first['msg']}" if where else first["msg"]
        raise JournalDamaged(
            str(path), number, f"not a unit record: {detail}; remove the line to run its unit again"
        ) from exc
