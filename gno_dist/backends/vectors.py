"""Vector retrieval over passages with sqlite-vec: exact nearest neighbours by cosine.

The library breaks ties at the cut arbitrarily, so more than ``k`` rows are fetched until the cut
does not fall between equals, and the order is made by (-score, docid, seq).
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gno_dist.backends.lexical import Hit
from gno_dist.backends.passages import Passage
from gno_dist.backends.sqlite import Connection

MAX_K = 4096
"""sqlite-vec refuses a larger k."""


def build_vectors(
    connection: Connection,
    rows: Iterable[Passage],
    embed: Callable[[str], NDArray[np.float32]],
    dimensions: int,
) -> None:
    """Embed passages and fill a vec0 table; the connection has the extension loaded."""
    connection.execute(
        "CREATE TABLE passages (id INTEGER PRIMARY KEY, docid TEXT, seq INTEGER, collection TEXT)"
    )
    connection.execute(
        "CREATE VIRTUAL TABLE vectors USING vec0(id INTEGER PRIMARY KEY, collection TEXT,"
        f" embedding float[{dimensions}] distance_metric=cosine)"
    )
    for number, row in enumerate(rows):
        connection.execute(
            "INSERT INTO passages VALUES (?, ?, ?, ?)",
            (number, row.docid, row.seq, row.collection),
        )
        connection.execute(
            "INSERT INTO vectors (id, collection, embedding) VALUES (?, ?, ?)",
            (number, row.collection, embed(row.text).astype(np.float32).tobytes()),
        )


class Vectors:
    """An open vector part."""

    def __init__(
        self, connection: Connection, embed_query: Callable[[str], NDArray[np.float32]]
    ) -> None:
        self._connection = connection
        self._embed_query = embed_query

    def search(self, text: str, collection: str | None, k: int) -> list[Hit]:
        """The ``k`` nearest passages of the collection; score = 1 - cosine distance."""
        vector = self._embed_query(text).astype(np.float32).tobytes()
        fetch = min(k + 16, MAX_K)
        while True:
            rows = self._nearest(vector, collection, fetch)
            cut_is_clear = len(rows) < fetch or rows[k - 1][2] != rows[-1][2]
            if cut_is_clear or fetch == MAX_K:
                break
            fetch = min(2 * fetch, MAX_K)
        hits = [(str(docid), int(seq), 1.0 - float(distance)) for docid, seq, distance in rows]
        return sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1]))[:k]

    def _nearest(self, vector: bytes, collection: str | None, k: int) -> list[Any]:
        where = "" if collection is None else " AND v.collection = ?3"
        bindings = (vector, k) if collection is None else (vector, k, collection)
        return list(
            self._connection.execute(
                "SELECT p.docid, p.seq, v.distance FROM vectors v JOIN passages p ON p.id = v.id"
                f" WHERE v.embedding MATCH ?1 AND v.k = ?2{where} ORDER BY v.distance",
                bindings,
            )
        )
