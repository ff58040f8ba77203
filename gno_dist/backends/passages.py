"""The passages of a corpus, as every index part and every prompt sees them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gno_dist.corpus import Corpus
from gno_dist.retrieval.chunk import chunk


class Passage(NamedTuple):
    """Chunk ``seq`` (0-based) of a document; ``body`` does not repeat the title line."""

    docid: str
    seq: int
    collection: str
    title: str
    body: str

    @property
    def text(self) -> str:
        """Title and body, the form in which models read a passage."""
        return f"{self.title}\n{self.body}" if self.body else self.title


def passages(corpus: Corpus, chunking: Mapping[str, Any]) -> Iterator[Passage]:
    """All passages in docid order; ``chunking`` has ``max_words`` and ``overlap_words``."""
    for doc in corpus.docs:
        heading = f"# {doc.title}"
        body = doc.text.removeprefix(heading) if doc.text.startswith(heading) else doc.text
        pieces = chunk(
            body.strip(),
            max_words=chunking["max_words"],
            overlap_words=chunking["overlap_words"],
        )
        for seq, piece in enumerate(pieces):
            yield Passage(doc.docid, seq, doc.collection, doc.title, piece)


class PassageTexts:
    """Passage texts by (docid, seq), for prompts; chunks a document when it is first asked for."""

    def __init__(self, corpus: Corpus, chunking: Mapping[str, Any]) -> None:
        self._docs = {doc.docid: doc for doc in corpus.docs}
        self._corpus = corpus
        self._chunking = dict(chunking)
        self._texts: dict[str, list[str]] = {}

    def __call__(self, docid: str, seq: int) -> str:
        """The text of a passage.

        Raises:
            KeyError: the corpus has no such document.
            IndexError: the document has no such passage.
        """
        if docid not in self._texts:
            one = self._corpus._replace(docs=(self._docs[docid],))
            self._texts[docid] = [passage.text for passage in passages(one, self._chunking)]
        return self._texts[docid][seq]
