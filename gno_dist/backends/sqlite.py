"""Opening SQLite through apsw, and building index files once, whole or not at all.

apsw carries its own SQLite with FTS5 and loadable extensions, which the interpreter's often lacks.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
from filelock import FileLock

from gno_dist import files
from gno_dist.errors import BackendError

Connection = apsw.Connection


def open_read_only(path: Path) -> Connection:
    """Open an index file that no one will change.

    Raises:
        BackendError: it cannot be opened.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        return Connection(f"file:{quote(str(path))}?mode=ro&immutable=1", flags=flags)
    except apsw.Error as exc:
        raise BackendError("sqlite", f"{path} cannot be opened: {exc}") from exc


def load_vector_extension(connection: Connection) -> None:
    """Load sqlite-vec into a connection.

    Raises:
        BackendError: the extension cannot be loaded.
    """
    import sqlite_vec

    try:
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        connection.enable_load_extension(False)
    except apsw.Error as exc:
        raise BackendError("sqlite-vec", f"cannot be loaded: {exc}") from exc


def ensure_file(
    folder: Path, digest: str, identity: dict[str, Any], build: Callable[[Connection], None]
) -> Path:
    """The file of an index part, built under a lock if it is not there.

    Args:
        folder: where index files are kept.
        digest: the part's digest, which names the file.
        identity: what was hashed, kept inside the file for people.
        build: fills an empty database; a temporary file takes its place only when it is whole.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / f"{digest}.sqlite"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{digest}.lock"):
        if path.exists():
            return path
        handle, name = tempfile.mkstemp(prefix=f".{digest[:12]}.", suffix=".part", dir=folder)
        os.close(handle)
        part = Path(name)
        try:
            connection = Connection(str(part))
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA synchronous=OFF")
            with connection:
                connection.execute("CREATE TABLE meta (identity TEXT)")
                text = files.json_bytes(identity).decode("utf-8")
                connection.execute("INSERT INTO meta VALUES (?)", (text,))
                build(connection)
            connection.close()
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path
