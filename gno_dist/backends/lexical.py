"""Lexical retrieval over passages: SQLite FTS5, and rank_bm25 as a second opinion.

Both list the passages that share a word with the query, best first by (-score, docid, seq), after
the collection filter; a query without a word gives an empty list.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gno_dist.backends.passages import Passage
from gno_dist.backends.sqlite import Connection

Hit = tuple[str, int, float]

_WORD = re.compile(r"\w+")
TOKENIZERS = {
    "unicode61": "unicode61 remove_diacritics 2",
    "porter": "porter unicode61 remove_diacritics 2",
    "trigram": "trigram",
}


def build_fts5(connection: Connection, rows: Iterable[Passage], tokenizer: str) -> None:
    """Fill an FTS5 table with passages."""
    connection.execute(
        "CREATE VIRTUAL TABLE passages USING fts5(title, body, docid UNINDEXED, seq UNINDEXED,"
        f" collection UNINDEXED, tokenize = '{TOKENIZERS[tokenizer]}')"
    )
    connection.executemany(
        "INSERT INTO passages (title, body, docid, seq, collection) VALUES (?, ?, ?, ?, ?)",
        ((row.title, row.body, row.docid, row.seq, row.collection) for row in rows),
    )
    connection.execute("INSERT INTO passages (passages) VALUES ('optimize')")


def match_expression(text: str) -> str | None:
    """The query's words as an FTS5 expression, each a quoted string, joined by OR; None if none."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return " OR ".join(f'"{word}"' for word in words) or None


class Fts5:
    """An open FTS5 part."""

    def __init__(self, connection: Connection, title_weight: float) -> None:
        self._connection = connection
        self._title_weight = title_weight

    def search(self, text: str, collection: str | None, k: int) -> list[Hit]:
        """The best ``k`` passages; the score is minus SQLite's bm25(), so higher is better."""
        expression = match_expression(text)
        if expression is None:
            return []
        rows = self._connection.execute(
            "SELECT docid, seq, -bm25(passages, ?1, 1.0) AS score FROM passages"
            " WHERE passages MATCH ?2 AND (?3 IS NULL OR collection = ?3)"
            " ORDER BY score DESC, docid, seq LIMIT ?4",
            (self._title_weight, expression, collection, k),
        )
        return [(str(docid), int(seq), float(score)) for docid, seq, score in rows]


class RankBm25:
    """rank_bm25's Okapi BM25 over passages, in memory."""

    def __init__(self, rows: Iterable[Passage], settings: Mapping[str, Any]) -> None:
        from rank_bm25 import BM25Okapi

        repeats = round(settings["title_weight"])
        self._rows = list(rows)
        words = [_words(f"{f'{row.title} ' * repeats}{row.body}") for row in self._rows]
        # The library divides by the number of words of the corpus: without any there is nothing.
        self._sets = [frozenset(document) for document in words]
        self._model = BM25Okapi(words) if any(words) else None

    def search(self, text: str, collection: str | None, k: int) -> list[Hit]:
        """The best ``k`` passages that share a word with the query.

        A word in half of the passages has weight 0 in this library, so a passage that shares a
        word is listed even when its score is 0.
        """
        words = _words(text)
        if self._model is None or not words:
            return []
        wanted = frozenset(words)
        scores = self._model.get_scores(words)
        hits = [
            (row.docid, row.seq, float(score))
            for row, score, own in zip(self._rows, scores, self._sets, strict=True)
            if collection in {None, row.collection} and own & wanted
        ]
        return sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1]))[:k]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
