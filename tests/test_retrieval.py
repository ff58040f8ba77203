"""The pure steps of retrieval: chunking, fusion, blending, expansion and answer prompts."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gno_dist.records import PassageHit, ScoredDoc
from gno_dist.retrieval import chunk, context, expand, fuse
from gno_dist.retrieval.fuse import RankedList


def hits(*docids: str) -> list[PassageHit]:
    return [PassageHit(docid, 0, 1.0 / rank) for rank, docid in enumerate(docids, start=1)]


class TestChunk:
    def test_words_are_counted_by_hand(self) -> None:
        assert chunk.count_words("two words") == 2
        assert chunk.count_words("検索 engine") == 3, "a CJK character is a word"
        assert chunk.count_words("a" * 8) == 1
        assert chunk.count_words("a" * 9) == 2, "each 8 characters begun are a word"

    def test_paragraphs_are_packed_whole(self) -> None:
        text = "one two three\n\nfour five\n\nsix seven eight nine"
        assert chunk.chunk(text, max_words=5, overlap_words=1) == [
            "one two three\n\nfour five",
            "six seven eight nine",
        ]

    def test_a_long_paragraph_is_cut_into_overlapping_windows(self) -> None:
        assert chunk.chunk("a b c d e f g", max_words=4, overlap_words=2) == [
            "a b c d",
            "c d e f",
            "e f g",
        ]

    def test_a_text_without_words_is_one_passage(self) -> None:
        assert chunk.chunk(" \n\n ", max_words=5, overlap_words=1) == [""]

    def test_overlap_must_be_smaller(self) -> None:
        with pytest.raises(ValueError, match="overlap of 5 words"):
            chunk.chunk("a", max_words=5, overlap_words=5)

    @given(
        st.text(alphabet="ab \n検索é", max_size=300),
        st.integers(min_value=3, max_value=12),
        st.integers(min_value=0, max_value=2),
    )
    def test_no_word_is_lost_and_no_passage_is_too_long(
        self, text: str, limit: int, overlap: int
    ) -> None:
        passages = chunk.chunk(text, max_words=limit, overlap_words=overlap)
        letters = Counter(char for char in text if not char.isspace())
        held = Counter(char for passage in passages for char in passage if not char.isspace())
        assert held >= letters
        assert all(chunk.count_words(passage) <= max(limit, 5) for passage in passages)


class TestFusion:
    def test_hand_worked(self) -> None:
        lists = [RankedList(2.0, hits("a", "b")), RankedList(0.5, hits("b", "c"))]
        assert fuse.reciprocal_rank_fusion(lists, k=60) == [
            ScoredDoc("b", 2.0 / 62 + 0.5 / 61),
            ScoredDoc("a", 2.0 / 61),
            ScoredDoc("c", 0.5 / 62),
        ]

    def test_ranks_count_documents_not_passages(self) -> None:
        twice = [PassageHit("a", 0, 3.0), PassageHit("a", 1, 2.0), PassageHit("b", 0, 1.0)]
        fused = fuse.reciprocal_rank_fusion([RankedList(1.0, twice)], k=60)
        assert fused == [ScoredDoc("a", 1 / 61), ScoredDoc("b", 1 / 62)]

    def test_equal_scores_stand_in_docid_order(self) -> None:
        lists = [RankedList(1.0, hits("z", "a")), RankedList(1.0, hits("a", "z"))]
        assert [doc.docid for doc in fuse.reciprocal_rank_fusion(lists, k=60)] == ["a", "z"]

    def test_the_passage_that_stands_highest_in_any_list_stands_for_a_document(self) -> None:
        first = RankedList(1.0, [PassageHit("x", 0, 9.0), PassageHit("a", 4, 8.0)])
        second = RankedList(1.0, [PassageHit("a", 7, 0.9), PassageHit("x", 3, 0.8)])
        assert fuse.best_passages([first, second]) == {"x": ("x", 0), "a": ("a", 7)}

    def test_earlier_lists_win_ties(self) -> None:
        first, second = (
            RankedList(1.0, [PassageHit("a", 1, 1.0)]),
            RankedList(1.0, [PassageHit("a", 2, 5.0)]),
        )
        assert fuse.best_passages([first, second]) == {"a": ("a", 1)}

    def test_nothing_fuses_to_nothing(self) -> None:
        assert fuse.reciprocal_rank_fusion([RankedList(1.0, [])], k=60) == []


class TestBlend:
    FUSED = (ScoredDoc("a", 0.4), ScoredDoc("b", 0.3), ScoredDoc("c", 0.2), ScoredDoc("d", 0.1))

    def test_hand_worked(self) -> None:
        blended = fuse.blend(self.FUSED, {"a": -9.0, "b": -5.0, "c": -7.0}, rerank_weight=0.5)
        # scaled fused: a 1, b .5, c 0; scaled rerank: a 0, b 1, c .5; tail d: .5 * .1 / .4
        assert [(doc.docid, round(doc.score, 12)) for doc in blended] == [
            ("b", 1.75),
            ("a", 1.5),
            ("c", 1.25),
            ("d", 0.125),
        ]

    @pytest.mark.parametrize(("weight", "order"), [(0.0, "abcd"), (1.0, "bcad")])
    def test_weight_0_keeps_and_weight_1_replaces_the_order(
        self, weight: float, order: str
    ) -> None:
        blended = fuse.blend(self.FUSED, {"a": -9.0, "b": -5.0, "c": -7.0}, rerank_weight=weight)
        assert "".join(doc.docid for doc in blended) == order

    @given(
        st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.001, 1.0), min_size=1),
        st.integers(min_value=1, max_value=8),
        st.floats(0, 1),
    )
    def test_the_head_stays_before_the_tail_and_nothing_is_lost(
        self, scores: dict[str, float], n_head: int, weight: float
    ) -> None:
        fused = sorted((ScoredDoc(*item) for item in scores.items()), key=lambda d: -d.score)
        head = {doc.docid: math.sin(doc.score * 99) for doc in fused[:n_head]}
        blended = fuse.blend(fused, head, rerank_weight=weight)
        assert {doc.docid for doc in blended[: len(head)]} == set(head)
        assert sorted(doc.docid for doc in blended) == sorted(scores)

    def test_equal_scores_scale_to_one(self) -> None:
        assert fuse.min_max({"a": 3.0, "b": 3.0}) == {"a": 1.0, "b": 1.0}
        assert fuse.min_max({}) == {}


class TestExpansion:
    def test_a_valid_output(self) -> None:
        text = (
            'Sure: {"lexicalQueries": ["a", " a ", ""], "vectorQueries": ["why a?"],'
            ' "hyde": "A is so.", "notes": "n"} done'
        )
        expansion, fault = expand.parse(text)
        assert fault is None
        assert expansion is not None
        assert expansion.lexical_queries == ("a",), "trimmed, blank and repeated ones dropped"
        assert expansion.vector_queries == ("why a?",)
        assert (expansion.hyde, expansion.notes) == ("A is so.", "n")

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("no object", "no JSON object"),
            ('{"lexicalQueries": ["a"], "vectorQueries"', "no JSON object"),
            ('{"lexicalQueries": ["a"]}', "vectorQueries: Field required"),
            ('{"lexicalQueries": [], "vectorQueries": [], "more": 1}', "more: Extra inputs"),
            ('{"lexicalQueries": [1], "vectorQueries": []}', "lexicalQueries.0"),
            (
                '{"lexicalQueries": ["a","b","c","d","e","f"], "vectorQueries": []}',
                "lexicalQueries: List should have at most 5",
            ),
            ("{not json}", "JSON: Invalid JSON"),
        ],
    )
    def test_an_unusable_output_is_named(self, text: str, fault: str) -> None:
        expansion, found = expand.parse(text)
        assert expansion is None
        assert found is not None
        assert fault in found

    def test_the_query_stands_last_in_its_own_segment(self) -> None:
        assert expand.prompt("x y")[-1] == "Query: x y\nJSON:"
        assert expand.prompt("x y")[0] == expand.prompt("other")[0], "the examples are shared"


class TestAnswerPrompt:
    def test_sources_are_numbered_from_one_on_one_line_each(self) -> None:
        assert context.sources_block(["T\nbody\n\nmore", "U"]) == (
            "Sources:\n[1] T body more\n[2] U\n"
        )

    def test_citations_in_order_of_first_use(self) -> None:
        assert context.citations("B [2], A [1] and [2].", ["a", "b"]) == ("b", "a")

    def test_a_citation_without_a_source_is_kept_as_its_mark(self) -> None:
        """An invented source must lower the share of valid citations, not vanish."""
        assert context.citations("A [1], lost [4] [0].", ["a"]) == ("a", "[4]", "[0]")

    def test_text_without_marks(self) -> None:
        assert context.without_citations("It is so. [1] [2]") == "It is so."
        assert context.without_citations(" [1]") == ""
