"""From outputs to outcomes: every measure a suite can name, and what a broken stage does."""

import pytest

from gno_dist.cases import AskCase, Query, RubricCase
from gno_dist.records import Answer, Failed, Scored, ScoredDoc, StageReceipt, Unscored
from gno_dist.scoring import Outputs, broken_stage, parse_any, score

CASE = AskCase(id="a", question="why?", expected_topics=["cause"], relevant=["d1"])
QUERY = Query.model_validate(
    {"id": "q", "query": "x", "judgments": [{"docid": "d1", "relevance": 3}]}
)


def outputs(text: str | None = "So. [1]", cited: tuple[str, ...] = ("d1",)) -> Outputs:
    answer = None
    if text is not None:
        answer = Answer(text=text, sources=("d1", "d2"), citations=cited, truncated=False)
    return Outputs(
        ranking=[ScoredDoc("d2", 1.0), ScoredDoc("d1", 0.5)],
        answer=answer,
        judgement=None,
        judge_model=None,
        service_ms=150.0,
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Relevance", "relevance"),
        ("HAS_CITATIONS", "has_citations"),
        ("valid_citations", "valid_citations"),
        ("latency( budget_ms = 100 )", "latency(budget_ms=100)"),
        ("ndcg@10", "nDCG(gain=exp)@10"),
        ("mrr", "RR"),
    ],
)
def test_a_printed_name_parses_back_to_itself(text: str, printed: str) -> None:
    assert str(parse_any(text)) == printed
    assert parse_any(printed) == parse_any(text)


@pytest.mark.parametrize("text", ["quality", "latency", "latency(budget_ms=0)", "nDCG", ""])
def test_an_unknown_name_says_what_exists(text: str) -> None:
    with pytest.raises(ValueError, match=r"latency|budget"):
        parse_any(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RR", 0.5),
        ("Recall@1", 0.0),
        ("has_citations", 1.0),
        ("valid_citations", 1.0),
        ("latency(budget_ms=100)", 0.5),
    ],
)
def test_values_by_hand(name: str, value: float) -> None:
    assert score([parse_any(name)], CASE, outputs(), []) == {name: Scored(value=value)}


def test_an_empty_answer_was_measured_and_is_bad() -> None:
    found = score(
        [*map(parse_any, ["relevance", "completeness", "groundedness"])], CASE, outputs(" [1]"), []
    )
    assert found["relevance"] == Scored(value=0.0)
    assert found["completeness"] == Scored(value=0.0)
    assert isinstance(found["groundedness"], Unscored), "nothing was said, so nothing is unfounded"


def test_without_a_judgement_quality_is_unscored() -> None:
    assert isinstance(
        score([*map(parse_any, ["relevance"])], CASE, outputs(), [])["relevance"], Unscored
    )


def test_nothing_cited_leaves_validity_unscored() -> None:
    found = score(
        [*map(parse_any, ["has_citations", "valid_citations"])], CASE, outputs(cited=()), []
    )
    assert found["has_citations"] == Scored(value=0.0)
    assert isinstance(found["valid_citations"], Unscored)


def test_a_rubric_case_has_no_ranking() -> None:
    case = RubricCase(id="c", input="x", output="y")
    assert isinstance(score([*map(parse_any, ["RR"])], case, outputs(None), [])["RR"], Unscored)


@pytest.mark.parametrize("state", ["failed", "timed_out"])
def test_a_stage_that_did_not_run_fails_every_measure(state: str) -> None:
    receipts = [
        StageReceipt(stage="expand", state="ran", count=2),
        StageReceipt.model_validate({"stage": "rerank", "state": state, "reason": "gone"}),
    ]
    found = score(
        [*map(parse_any, ["RR", "nDCG@10", "latency(budget_ms=5)"])], QUERY, outputs(None), receipts
    )
    assert {type(outcome) for outcome in found.values()} == {Failed}
    assert broken_stage(receipts) == Failed(error=f"stage rerank {state}", message="gone")


def test_an_empty_list_breaks_nothing() -> None:
    assert broken_stage([StageReceipt(stage="search", state="ran", count=0)]) is None
