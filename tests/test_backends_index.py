"""Index parts over a real SQLite: both lexical backends, exact vectors, ties, filters, changes."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gno_dist.backends.fake import DIMENSIONS, FakeEmbedder
from gno_dist.backends.index import index_pool, open_index
from gno_dist.backends.lexical import Fts5, Hit, RankBm25, build_fts5, match_expression
from gno_dist.backends.passages import Passage, passages
from gno_dist.backends.paths import index_folder
from gno_dist.backends.sqlite import Connection, load_vector_extension
from gno_dist.backends.vectors import Vectors, build_vectors
from gno_dist.corpus import Corpus, CorpusRef, load_corpus
from gno_dist.errors import BackendError
from gno_dist.loading import Collector
from gno_dist.presets import Preset

from .conftest import write_tiny

FAKE = Preset.model_validate({"embedder": {"backend": "fake"}, "depth": "hybrid"})
ROWS = [
    Passage("a.md", 0, "one", "Keys", "spare keys at the desk"),
    Passage("b.md", 0, "one", "Desk", "the desk opens at nine"),
    Passage("c.md", 0, "two", "Clés", "les clés de réserve à l'accueil"),
    Passage("d.md", 0, "two", "Zeiten", "Öffnungszeiten am Montag"),
    Passage("e.md", 0, "two", "Other", "nothing of the kind"),
]


def fts5(rows: list[Passage], tokenizer: str = "unicode61", title_weight: float = 2.0) -> Fts5:
    connection = Connection("")
    build_fts5(connection, rows, tokenizer)
    return Fts5(connection, title_weight)


def rank_bm25(rows: list[Passage]) -> RankBm25:
    return RankBm25(rows, {"title_weight": 2.0})


def corpus_of(folder: Path) -> Corpus:
    corpus = load_corpus(folder, CorpusRef(path=str(folder)), Collector())
    assert corpus is not None
    return corpus


@pytest.mark.parametrize("make", [fts5, rank_bm25])
class TestLexicalContract:
    """What holds for every lexical backend."""

    def test_passages_that_share_a_word_best_first(self, make: Any) -> None:
        hits: list[Hit] = make(ROWS).search("spare keys", None, 10)
        assert [hit[0] for hit in hits] == ["a.md"]
        assert [hit[0] for hit in make(ROWS).search("desk", None, 10)] == ["b.md", "a.md"]

    def test_the_collection_is_filtered_before_the_cut(self, make: Any) -> None:
        rows = [Passage(f"x{n}.md", 0, "one", "T", "key key key") for n in range(20)]
        rows.append(Passage("z.md", 0, "two", "T", "key and many other words besides it"))
        assert [hit[0] for hit in make(rows).search("key", "two", 1)] == ["z.md"]

    def test_equal_scores_stand_by_docid_and_seq(self, make: Any) -> None:
        rows = [Passage(d, s, "one", "T", "key") for d, s in (("b", 0), ("a", 1), ("a", 0))]
        rows += [Passage(f"f{n}", 0, "one", "T", "filler") for n in range(9)]
        hits = make(rows).search("key", None, 2)
        assert [(hit[0], hit[1]) for hit in hits] == [("a", 0), ("a", 1)]

    @pytest.mark.parametrize("text", ["", "  ", "?!", '"', "*", "()"])
    def test_a_query_without_a_word_finds_nothing(self, make: Any, text: str) -> None:
        assert make(ROWS).search(text, None, 5) == []

    @pytest.mark.parametrize(
        "text", ['desk "open', "desk OR", "NEAR(desk", "desk*", "title:desk", "a-b desk"]
    )
    def test_query_syntax_is_only_words(self, make: Any, text: str) -> None:
        assert "b.md" in [hit[0] for hit in make(ROWS).search(text, None, 5)]

    def test_an_empty_index_finds_nothing(self, make: Any) -> None:
        assert make([]).search("desk", None, 5) == []
        assert make([Passage("a", 0, "one", "", "")]).search("desk", None, 5) == []


def test_fts5_folds_diacritics_and_case() -> None:
    assert [hit[0] for hit in fts5(ROWS).search("CLES reserve", None, 5)] == ["c.md"]
    assert [hit[0] for hit in fts5(ROWS).search("offnungszeiten", None, 5)] == ["d.md"]


def test_porter_stems_and_trigrams_find_parts() -> None:
    assert [hit[0] for hit in fts5(ROWS, "porter").search("opening", None, 5)] == ["b.md"]
    assert fts5(ROWS).search("opening", None, 5) == []
    assert [hit[0] for hit in fts5(ROWS, "trigram").search("nungszeit", None, 5)] == ["d.md"]


def test_the_titles_weight_reorders() -> None:
    rows = [
        Passage("title", 0, "one", "parking", "cars stand here all day and night"),
        Passage("body", 0, "one", "cars", "parking parking parking"),
        *(Passage(f"f{n}", 0, "one", "filler", "other words") for n in range(8)),
    ]
    assert fts5(rows, title_weight=50.0).search("parking", None, 2)[0][0] == "title"
    assert fts5(rows, title_weight=0.0).search("parking", None, 2)[0][0] == "body"


def test_the_score_is_sqlites_bm25_with_its_sign_turned() -> None:
    index = fts5(ROWS)
    (row,) = index._connection.execute(
        "SELECT bm25(passages, 2.0, 1.0) FROM passages WHERE passages MATCH 'spare'"
    )
    assert index.search("spare", None, 5) == [("a.md", 0, -row[0])]


def test_words_become_quoted_strings_once_each() -> None:
    assert match_expression("Spare SPARE keys?") == '"spare" OR "keys"'
    assert match_expression("…") is None


class TestVectors:
    def vectors(self, rows: list[Passage], table: dict[str, list[float]]) -> Vectors:
        def embed(text: str) -> NDArray[np.float32]:
            vector = np.array(table[text.split("\n")[0]], dtype=np.float32)
            return vector / np.linalg.norm(vector)

        connection = Connection("")
        load_vector_extension(connection)
        build_vectors(connection, rows, embed, 2)
        return Vectors(connection, embed)

    def test_scores_are_cosines(self) -> None:
        rows = [Passage(d, 0, "one", d, "") for d in ("same", "right", "half", "back")]
        table = {"same": [1, 0], "right": [0, 1], "half": [1, 1], "back": [-1, 0], "q": [2, 0]}
        hits = self.vectors(rows, table).search("q", None, 4)
        assert [hit[0] for hit in hits] == ["same", "half", "right", "back"]
        assert [hit[2] for hit in hits] == pytest.approx([1.0, 2**-0.5, 0.0, -1.0], abs=1e-6)

    @pytest.mark.parametrize("k", [1, 3, 17, 40])
    def test_ties_at_the_cut_are_broken_by_docid_not_by_insertion(self, k: int) -> None:
        names = [f"d{n:03d}" for n in range(100)][::-1]
        rows = [Passage(name, 0, "one", "same", "") for name in names]
        hits = self.vectors(rows, {"same": [1, 0], "q": [1, 0]}).search("q", None, k)
        assert [hit[0] for hit in hits] == sorted(names)[:k]

    def test_the_collection_is_filtered_before_the_cut(self) -> None:
        rows = [Passage(f"n{n:02d}", 0, "one", "near", "") for n in range(30)]
        rows.append(Passage("far", 0, "two", "far", ""))
        table = {"near": [1, 0], "far": [-1, 0.1], "q": [1, 0]}
        assert [h[0] for h in self.vectors(rows, table).search("q", "two", 1)] == ["far"]

    def test_agrees_with_a_plain_matrix_product(self) -> None:
        rng = np.random.Generator(np.random.PCG64(7))
        table = {f"d{n:03d}": list(rng.normal(size=2)) for n in range(200)}
        rows = [Passage(name, 0, "one", name, "") for name in table]
        query = list(rng.normal(size=2))
        hits = self.vectors(rows, {**table, "q": query}).search("q", None, 25)
        matrix = np.array([table[row.docid] for row in rows])
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        cosines = matrix @ (np.array(query) / np.linalg.norm(query))
        best = [rows[i].docid for i in np.argsort(-cosines)[:25]]
        assert [hit[0] for hit in hits] == best


class TestIndex:
    def test_depths_open_only_the_parts_they_read(self, tmp_path: Path) -> None:
        write_tiny(tmp_path / "t")
        corpus = corpus_of(tmp_path / "t" / "corpus")
        fast = index_pool(corpus, "t", FAKE.model_copy(update={"depth": "fast"}))
        index = open_index(fast.identity, fast.location, 1)
        assert index.handle("lexical", {"text": "keys", "collection": None, "k": 3}).value
        with pytest.raises(ValueError, match="not opened for 'vector'"):
            index.handle("vector", {"text": "keys", "collection": None, "k": 3})
        index.close()
        index.close()

    def test_a_second_opening_builds_nothing(self, tmp_path: Path) -> None:
        write_tiny(tmp_path / "t")
        (tmp_path / "t" / "corpus" / "new.md").write_text(f"# {tmp_path}\n", encoding="utf-8")
        spec = index_pool(corpus_of(tmp_path / "t" / "corpus"), "t", FAKE)
        first = open_index(spec.identity, spec.location, 1)
        second = open_index(spec.identity, spec.location, 1)
        assert first.info()["built_ms"] > 0
        assert second.info()["built_ms"] == 0

    def test_a_changed_corpus_is_refused(self, tmp_path: Path) -> None:
        write_tiny(tmp_path / "t")
        folder = tmp_path / "t" / "corpus"
        (folder / "extra.md").write_text(f"# {tmp_path}\n", encoding="utf-8")
        spec = index_pool(corpus_of(folder), "t", FAKE)
        (folder / "extra.md").write_text("# Other\n", encoding="utf-8")
        with pytest.raises(BackendError, match="its files changed since the plan was made"):
            open_index(spec.identity, spec.location, 1)

    def test_a_failed_build_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GNO_DIST_CACHE", str(tmp_path / "cache"))
        write_tiny(tmp_path / "t")
        spec = index_pool(corpus_of(tmp_path / "t" / "corpus"), "t", FAKE)
        monkeypatch.setattr(FakeEmbedder, "passage", lambda self, text: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            open_index(spec.identity, spec.location, 1)
        left = [path for path in index_folder().iterdir() if path.suffix != ".lock"]
        assert len(left) == 1, "the lexical part, which was whole before"
        assert left[0].suffix == ".sqlite"

    def test_processes_that_build_one_index_at_once_agree(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GNO_DIST_CACHE", str(tmp_path / "cache"))
        write_tiny(tmp_path / "t")
        folder = tmp_path / "t" / "corpus"
        context = multiprocessing.get_context("spawn")
        with context.Pool(3) as pool:
            found = pool.map(_search_once, [str(folder)] * 3)
        assert found[0]
        assert found[0] == found[1] == found[2]
        assert len(list(index_folder().glob("*.sqlite"))) == 2

    def test_every_document_has_a_passage(self, tmp_path: Path) -> None:
        folder = tmp_path / "c"
        folder.mkdir()
        (folder / "empty.md").write_text("", encoding="utf-8")
        (folder / "title.md").write_text("# Only a title\n", encoding="utf-8")
        rows = list(passages(corpus_of(folder), FAKE.chunking.model_dump()))
        assert [(row.docid, row.seq, row.text) for row in rows] == [
            ("empty.md", 0, "empty"),
            ("title.md", 0, "Only a title"),
        ]


def _search_once(folder: str) -> Any:
    spec = index_pool(corpus_of(Path(folder)), "t", FAKE)
    index = open_index(spec.identity, spec.location, 1)
    args = {"text": "how long are backups kept", "collection": None, "k": 5}
    found = [index.handle(method, args).value for method in ("lexical", "vector")]
    index.close()
    return found


def test_the_fake_embedder_depends_on_words_alone() -> None:
    embedder = FakeEmbedder()
    assert embedder.query("b a").shape == (DIMENSIONS,)
    assert np.allclose(embedder.query("b a"), embedder.passage("a b"), atol=1e-6)
