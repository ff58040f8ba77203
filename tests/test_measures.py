import itertools
import json
import math
import pickle
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist.measures import (
    FAMILIES,
    NO_RELEVANTS,
    Measure,
    duplicate_docids,
    judged,
    parse_measure,
    rank_docs,
)
from gno_dist.records import Scored, ScoredDoc, Unscored

# Values of ir_measures 0.4.3 (pytrec_eval-terrier 0.5.11), computed once outside this project:
# 14 queries of random.Random(20240229) over 30 docids, grades -1..3, rankings of 0 to 30 docids
# without repeats. Qrel("q", docid, grade) and ScoredDoc("q", docid, -position) went through
# iter_calc with Recall@k, P@k, Success@k, RR@k, AP@k, RR, AP, nDCG@k as gain=linear, and
# nDCG(gains={1: 1, 2: 3, 3: 7})@k as gain=exp, which is 2^grade - 1 written out.
GOLDEN = json.loads((Path(__file__).parent / "golden/measures.json").read_text("utf-8"))

repeatable = settings(deadline=None, derandomize=True, max_examples=200)
docids = st.sampled_from("abcdef")
rankings = st.lists(docids, max_size=9)
judgments = st.dictionaries(docids, st.sampled_from([-1, 0, 0.5, 1, 2, 3]), max_size=6)
names = st.builds(
    lambda family, k, policy, gain: Measure(
        family, k, gain if FAMILIES[family].gains else None, policy
    ),
    st.sampled_from(list(FAMILIES)),
    st.integers(1, 12),
    st.sampled_from(list(NO_RELEVANTS)),
    st.sampled_from(["exp", "linear"]),
)


def value(name, ranking, grades, relevant=None):
    outcome = parse_measure(name).outcome(ranking, judged(relevant, grades))
    assert isinstance(outcome, Scored), outcome
    return outcome.value


@pytest.mark.parametrize(
    ("name", "ranking", "grades", "expected"),
    [
        # 2 of the 3 relevant stand in the first 3: ranks 1 and 3.
        ("Recall@3", "axbyc", {"a": 1, "b": 2, "c": 1}, 2 / 3),
        ("P@3", "axbyc", {"a": 1, "b": 2, "c": 1}, 2 / 3),
        ("P@10", "axbyc", {"a": 1, "b": 2, "c": 1}, 3 / 10),
        ("Success@1", "xa", {"a": 1}, 0.0),
        ("Success@2", "xa", {"a": 1}, 1.0),
        ("RR", "xya", {"a": 1}, 1 / 3),
        ("RR@2", "xya", {"a": 1}, 0.0),
        # (1/1 + 2/3 + 3/5) / 3 = 0.7556; at 3 the last term is missing: (1 + 2/3) / 3.
        ("AP", "axbyc", {"a": 1, "b": 2, "c": 1}, (1 + 2 / 3 + 3 / 5) / 3),
        ("AP@3", "axbyc", {"a": 1, "b": 2, "c": 1}, (1 + 2 / 3) / 3),
        ("AP@1", "ab", {"a": 1, "b": 1}, 1 / 2),
        # DCG = 2/log2(2) + 3/log2(3) + 1/log2(4) = 2 + 1.89279 + 0.5 = 4.39279
        # IDCG = 3 + 2/1.58496 + 0.5 = 4.76186; ratio 0.92250.
        ("nDCG(gain=linear)@3", "bac", {"a": 3, "b": 2, "c": 1}, 4.39279 / 4.76186),
        # DCG = 3 + 7/1.58496 + 0.5 = 7.91651; IDCG = 7 + 3/1.58496 + 0.5 = 9.39279; 0.84283.
        ("nDCG@3", "bac", {"a": 3, "b": 2, "c": 1}, 7.91651 / 9.39279),
        # 1 of 5 found: the ideal is not shrunk to what came back.
        # 1 / (1 + 0.63093 + 0.5 + 0.43068 + 0.38685) = 1 / 2.94846 = 0.33916.
        ("nDCG@5", "a", dict.fromkeys("abcde", 1), 0.33916),
        # An unjudged document at rank 1 gains 0 and pushes the rest down: 1/log2(3).
        ("nDCG@5", "xa", {"a": 1}, 0.63093),
        ("RR@5", "xa", {"a": 1}, 1 / 2),
        # Repeats count at their first place only, and the places close up.
        ("nDCG@10", "aa", {"a": 3}, 1.0),
        ("nDCG@10", "aab", {"a": 3, "b": 1}, 1.0),
        ("Recall@2", "aab", {"a": 1, "b": 1}, 1.0),
        ("P@2", "aa", {"a": 1}, 1 / 2),
        ("RR", "xxa", {"a": 1}, 1 / 2),
        ("nDCG@10", "aaz", {"z": 1}, 0.63093),
        # Grades 3, 2, 1, 0, -1 in reverse: d and e gain 0 and are no part of the ideal.
        # DCG = 1/log2(4) + 3/log2(5) + 7/log2(6) = 0.5 + 1.29203 + 2.70797 = 4.5;
        # IDCG = 9.39279; 0.47909.
        ("nDCG@5", "edcba", {"a": 3, "b": 2, "c": 1, "d": 0, "e": -1}, 4.5 / 9.39279),
        ("nDCG(gain=linear)@1", "e", {"a": 3, "e": -1}, 0.0),
        ("nDCG@10", "a", {"a": 1, "b": -1}, 1.0),
        # A grade of a half: gains sqrt(2)-1 = 0.41421 and 1. (0.41421 + 0.63093) /
        # (1 + 0.41421 * 0.63093) = 1.04514 / 1.26134; linear: (0.5 + 0.63093) / (1 + 0.31546).
        ("nDCG@2", "ba", {"a": 1, "b": 0.5}, 1.04514 / 1.26134),
        ("nDCG(gain=linear)@2", "ba", {"a": 1, "b": 0.5}, 1.13093 / 1.31546),
        ("Recall@2", "b", {"a": 1, "b": 0.5}, 0.0),
        # Three results under a cut-off of 100.
        ("P@100", "abx", {"a": 1, "b": 1}, 2 / 100),
        ("Recall@100", "abx", {"a": 1, "b": 1, "c": 1, "d": 1}, 2 / 4),
        ("nDCG@100", "abx", {"a": 1, "b": 1, "c": 1}, 1.63093 / 2.13093),
        # The ideal is cut at k as well: one place, and it holds one of the best.
        ("nDCG@1", "b", {"a": 1, "b": 1, "c": 1}, 1.0),
    ],
)
def test_worked_by_hand(name, ranking, grades, expected):
    assert value(name, list(ranking), grades) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["Recall@1", "P@1", "Success@1", "RR", "AP", "nDCG@1"])
class TestEmpty:
    def test_nothing_relevant(self, name):
        for grades in ({}, {"a": 0}, {"a": -1}):
            assert parse_measure(name).outcome(["x"], judged(None, grades)) == Unscored(
                reason="no relevant documents"
            )

    @pytest.mark.parametrize(("policy", "expected"), [("zero", 0.0), ("one", 1.0)])
    def test_nothing_relevant_by_policy(self, name, policy, expected):
        family, _, k = name.partition("@")
        named = f"{family}(no_relevants={policy})" + (f"@{k}" if k else "")
        assert value(named, ["x"], {"a": 0}) == expected
        # The policy is for empty judgments only: a miss stays a miss.
        assert value(named, ["x"], {"a": 1}) == 0.0

    def test_empty_ranking(self, name):
        assert value(name, [], {"a": 1}) == 0.0

    @pytest.mark.parametrize("near", ["ä", "A\u0308", "Ä ", "Ä\r", "ä\u200b"])
    def test_docids_compare_exactly(self, name, near):
        assert value(name, ["Ä"], {"Ä": 1}) == 1.0
        assert value(name, [near], {"Ä": 1}) == 0.0


def test_relevant_list_and_grades_are_read_apart():
    grades = {"a": 3, "b": 1}
    assert value("Recall@2", ["b"], grades, relevant=["a"]) == 0.0
    assert value("nDCG@1", ["a"], grades, relevant=["b"]) == 1.0
    assert value("Recall@1", ["a"], {}, relevant=["a", "a", "b"]) == 1 / 2  # a set, not a list
    assert isinstance(parse_measure("nDCG@5").outcome(["a"], judged(["a"], {})), Unscored)
    assert isinstance(parse_measure("AP").outcome(["a"], judged([], grades)), Unscored)


def test_judged_keeps_its_own_copy_and_rejects_nan():
    grades = {"a": 1.0}
    kept = judged(None, grades)
    grades["a"] = 0.0
    assert kept.relevant == {"a"}
    assert kept.grades == {"a": 1.0}
    assert pickle.loads(pickle.dumps(kept)) == kept
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="grade of 'b'"):
            judged(["a"], {"b": bad})


def test_grades_beyond_the_range_of_the_gain():
    # 2^5000 is no float; the ratio is: gains 1 and 2^-1 of the best, (.5 + .63093) / 1.31546.
    assert value("nDCG@2", ["b", "a"], {"a": 5000, "b": 4999}) == pytest.approx(0.85972, abs=1e-5)
    assert value("nDCG(gain=linear)@2", ["a", "b"], {"a": 1.7e308, "b": 1.7e308}) == 1.0


@pytest.mark.parametrize("case", GOLDEN, ids=range(len(GOLDEN)))
def test_equals_ir_measures(case):
    found = {name: value(name, case["ranking"], case["judgments"]) for name in case["values"]}
    assert found == pytest.approx(case["values"], abs=1e-12)


def oracle(measure, ranking, judgments):
    """The definitions word for word; the ideal by trying every order of the judged documents."""
    unique = [d for i, d in enumerate(ranking) if d not in ranking[:i]]
    rank = {docid: place for place, docid in enumerate(unique, 1)}
    k = measure.k or len(unique)
    if measure.family == "nDCG":

        def dcg(order):
            total = 0.0
            for place, docid in enumerate(order[:k], 1):
                grade = max(judgments.get(docid, 0), 0)
                total += (grade if measure.gain == "linear" else 2**grade - 1) / math.log2(
                    place + 1
                )
            return total

        best = max(dcg(order) for order in itertools.permutations(judgments))
        return dcg(unique) / best if best else None
    relevant = [d for d, grade in judgments.items() if grade >= 1]
    if not relevant:
        return None
    found = sorted(rank[d] for d in relevant if rank.get(d, k + 1) <= k)
    return {
        "Recall": lambda: Fraction(len(found), len(relevant)),
        "P": lambda: Fraction(len(found), k),
        "Success": lambda: int(bool(found)),
        "RR": lambda: Fraction(1, found[0]) if found else 0,
        "AP": lambda: (
            sum(Fraction(sum(other <= place for other in found), place) for place in found)
            / Fraction(len(relevant))
        ),
    }[measure.family]()


@given(names, rankings, judgments)
@repeatable
def test_equals_the_brute_force_oracle(measure, ranking, grades):
    expected = oracle(measure, ranking, grades)
    outcome = measure.outcome(ranking, judged(None, grades))
    if expected is None:
        expected = {"skip": None, "zero": 0, "one": 1}[measure.no_relevants]
    assert getattr(outcome, "value", None) == (
        None if expected is None else pytest.approx(float(expected), abs=1e-12)
    )


@given(names, rankings, st.dictionaries(docids, st.floats(-2, 4), max_size=6))
@repeatable
def test_values_stay_in_range_and_repeats_are_blind(measure, ranking, grades):
    outcome = measure.outcome(ranking, judged(None, grades))
    assert isinstance(outcome, Unscored) or 0 <= outcome.value <= 1
    assert outcome == measure.outcome(list(dict.fromkeys(ranking)), judged(None, grades))


@given(names, st.dictionaries(docids, st.floats(1, 4), min_size=1), rankings)
@repeatable
def test_ideal_order_gives_one(measure, grades, tail):
    ideal = sorted(grades, key=lambda docid: -grades[docid])
    best = measure.outcome([*ideal, *tail], judged(None, grades)).value
    if measure.family in {"nDCG", "Success", "RR"} or (measure.k or 99) >= len(grades) != 0:
        assert best == (1.0 if measure.family != "P" else len(grades) / measure.k)
    assert best >= measure.outcome(tail, judged(None, grades)).value


@given(rankings, judgments.filter(lambda grades: max(grades.values(), default=0) >= 1))
@repeatable
def test_recall_success_rr_and_ap_grow_with_k(ranking, grades):
    for family in ("Recall", "Success", "RR", "AP"):
        values = [value(f"{family}@{k}", ranking, grades) for k in range(1, 10)]
        assert values == sorted(values)


@given(names)
@repeatable
def test_printed_name_parses_back(measure):
    assert parse_measure(str(measure)) == measure
    assert pickle.loads(pickle.dumps(measure)) == measure
    assert measure.canonical is True
    assert measure.description.endswith(".")
    assert "{" not in measure.description
    assert "None" not in measure.description


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Recall@5", "Recall@5"),
        ("recall@5", "Recall@5"),
        ("P@5", "P@5"),
        ("RR", "RR"),
        ("MRR@10", "RR@10"),
        ("mrr", "RR"),
        ("AP@10", "AP@10"),
        ("SUCCESS@1", "Success@1"),
        ("nDCG@10", "nDCG(gain=exp)@10"),
        ("ndcg(gain=linear)@10", "nDCG(gain=linear)@10"),
        ('nDCG(gain="exp")@10', "nDCG(gain=exp)@10"),
        ("  NDCG ( gain = 'linear' ) @ 10 ", "nDCG(gain=linear)@10"),
        ("Recall(no_relevants=skip)@5", "Recall@5"),
        ("RR(no_relevants=one)", "RR(no_relevants=one)"),
        ("nDCG(no_relevants=zero, gain=linear)@3", "nDCG(gain=linear,no_relevants=zero)@3"),
    ],
)
def test_canonical_names(text, printed):
    assert str(parse_measure(text)) == printed


@pytest.mark.parametrize(
    "text",
    ["", "@5", "Recall", "P", "Success", "nDCG", "nDCG(gain=exp)", "Recall@0", "Recall@-1"]
    + ["Recall@5.0", "Recall@five", "Recall@\u0665", "Hit@5", "Recall@5@5", "P(gain=exp)@5"]
    + ["nDCG(gain=log)@5", "nDCG(gain=\"exp')@5", "nDCG()@5", "nDCG(gain=exp,gain=exp)@5"]
    + ["RR(rel=2)", "RR(no_relevants=two)", "nDCG(gain=exp@5", "Recall 5", "Recall@5000000000"],
)
def test_bad_names_are_quoted_and_the_families_listed(text):
    with pytest.raises(ValueError, match="measures: Recall@k, ") as caught:
        parse_measure(text)
    assert repr(text) in str(caught.value)
    assert all(family in str(caught.value) for family in FAMILIES)


class TestRankDocs:
    def test_ties_are_ordered_by_docid_whatever_the_input_order(self):
        expected = [("a", 1.0), ("b", 1.0), ("c", 1.0)]
        for order in itertools.permutations(expected):
            assert rank_docs(order) == rank_docs(dict(order)) == expected
            assert value("RR", [doc.docid for doc in rank_docs(order)], {"a": 1}) == 1.0

    @given(st.lists(st.tuples(docids, st.floats(-1, 1)), max_size=12), st.randoms())
    @repeatable
    def test_input_order_never_shows(self, pairs, random):
        shuffled = random.sample(pairs, len(pairs))
        ranked = rank_docs(pairs)
        assert repr(rank_docs(shuffled)) == repr(ranked)  # repr tells -0.0 from 0.0
        assert [rank_docs(pairs, k) for k in range(9)] == [ranked[:k] for k in range(9)]
        assert {doc.docid: doc.score for doc in ranked} == {
            docid: max(s for d, s in pairs if d == docid) for docid, _ in pairs
        }

    def test_scores_keep_double_precision_and_type(self):
        # In single precision these two tie, and docid order would put "a" first.
        ranked = rank_docs({"a": 1.00000001, "b": 1.00000002})
        assert ranked == [ScoredDoc("b", 1.00000002), ScoredDoc("a", 1.00000001)]
        assert all(type(doc) is ScoredDoc for doc in ranked)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_scores_must_be_finite(self, bad):
        with pytest.raises(ValueError, match="score of 'b'"):
            rank_docs([("a", 1.0), ("b", bad)])

    def test_limit_must_not_be_negative(self):
        with pytest.raises(ValueError, match="-1"):
            rank_docs({"a": 1.0}, -1)


def test_duplicate_docids():
    assert duplicate_docids(["b", "a", "b", "c", "a", "b"]) == ("b", "a")
    assert duplicate_docids([]) == duplicate_docids(["a", "A", "a "]) == ()
