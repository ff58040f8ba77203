"""Stage results by content: a call that was answered once is not made again.

Keys are call ids, which hold everything that decides a reply. Only replies are kept, never faults.
The file may be deleted at any time; several processes may use it at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import apsw
from filelock import FileLock

from gno_dist.backends.host import decode_reply, encode_reply
from gno_dist.calls import Fault, Reply
from gno_dist.errors import BackendError

_CHUNK = 500


class ReplyCache:
    """Cached replies in one SQLite file, or in a private temporary one that ends with the job."""

    def __init__(self, path: Path | None) -> None:
        """Open or create the cache.

        Args:
            path: the file; None keeps replies for this job only, on disk, deleted on close.

        Raises:
            BackendError: the file is not a database or cannot be written.
        """
        self._path = path
        with self._named_errors():
            self._open(path)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as exc:
            hint = "; `gno-dist cache clear` removes it" if self._path is not None else ""
            raise BackendError(f"cache {self._path or '(temporary)'}", f"{exc}{hint}") from exc

    def _open(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = apsw.Connection(str(path) if path is not None else "")
        self._connection.set_busy_timeout(30_000)
        if path is None:  # nobody else reads it, and nobody will after a crash
            self._connection.execute("PRAGMA journal_mode=OFF")
            self._connection.execute("PRAGMA synchronous=OFF")
        else:
            # Processes that turn one new file to WAL at once get "locked" without the wait.
            with FileLock(f"{path}.lock"):
                self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS replies (id TEXT PRIMARY KEY, data BLOB)"
        )

    def get_many(self, ids: Sequence[str]) -> dict[str, Reply]:
        """The known replies among ``ids``, marked as cached."""
        found: dict[str, Reply] = {}
        with self._named_errors():
            for start in range(0, len(ids), _CHUNK):
                part = ids[start : start + _CHUNK]
                marks = ",".join("?" * len(part))
                query = f"SELECT id, data FROM replies WHERE id IN ({marks})"
                for key, data in self._connection.execute(query, tuple(part)):
                    reply = decode_reply(bytes(data))
                    if not isinstance(reply, Fault):
                        found[str(key)] = reply._replace(cached=True)
        return found

    def put_many(self, replies: Iterable[tuple[str, Reply]]) -> None:
        """Keep replies; one that is there already stays."""
        rows = [(key, reply.encoded or encode_reply(reply)) for key, reply in replies]
        with self._named_errors(), self._connection:
            for start in range(0, len(rows), _CHUNK):
                part = rows[start : start + _CHUNK]
                # One statement: each one gives other threads a turn, which then last long.
                marks = ",".join(["(?,?)"] * len(part))
                values = tuple(chain.from_iterable(part))
                self._connection.execute(f"INSERT OR IGNORE INTO replies VALUES {marks}", values)

    def count(self) -> int:
        """Number of replies."""
        return int(next(iter(self._connection.execute("SELECT count(*) FROM replies")))[0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
