"""A corpus: documents in a folder, their ids, collections and one digest.

Knows how files become documents. Knows nothing of chunks, indexes or queries.
"""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gno_dist import canonical, files
from gno_dist.errors import ConfigError
from gno_dist.loading import Collector, UserModel

SUFFIXES = {".md", ".txt"}


class CorpusRef(UserModel):
    """Where a suite's corpus lies and how its collections are named."""

    path: str
    """Folder, relative to the suite file."""
    collection: str | None = None
    """One collection for all documents; without it the first folder level names them."""


class Doc(NamedTuple):
    """One document: ``docid`` is its path below the corpus folder, with forward slashes."""

    docid: str
    collection: str
    title: str
    text: str


class Corpus(NamedTuple):
    """All documents in docid order; ``digest`` covers ids, collections and bytes."""

    path: Path
    ref: CorpusRef
    docs: Sequence[Doc]
    digest: str

    @property
    def collections(self) -> frozenset[str]:
        """Names of all collections."""
        return frozenset(doc.collection for doc in self.docs)


def load_corpus(folder: Path, ref: CorpusRef, problems: Collector) -> Corpus | None:
    """Read every ``.md`` and ``.txt`` file below ``folder``; None when problems were noted.

    Two ids that are equal after Unicode NFC are a problem: no judgment could tell them apart on
    every file system.
    """
    before = len(problems.problems)
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        problems.add(folder, "", f"no {' or '.join(sorted(SUFFIXES))} file in this corpus folder")
        return None
    docs, content = [], []
    seen: dict[str, str] = {}
    for path in paths:
        docid = path.relative_to(folder).as_posix()
        twin = seen.setdefault(unicodedata.normalize("NFC", docid), docid)
        if twin != docid:
            problems.add(path, "", f"document id equals {twin!r} after Unicode NFC")
        try:
            text = files.read_text(path)
        except ConfigError as exc:
            for problem in exc.problems:
                problems.add(path, "", problem)
            continue
        collection = ref.collection or (docid.split("/")[0] if "/" in docid else "default")
        docs.append(Doc(docid, collection, _title(text, path), text))
        content.append([docid, collection, canonical.digest_bytes(text.encode("utf-8"))])
    if len(problems.problems) > before:
        return None
    return Corpus(folder, ref, tuple(docs), canonical.digest({"v": 1, "docs": content}))


def _title(text: str, path: Path) -> str:
    for line in text.split("\n"):
        if line.startswith("# "):
            return line[2:].strip()
    return path.stem
