"""What the journal holds: field sets are pinned, numbers finite, observations apart."""

import math
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from gno_dist import records
from gno_dist.canonical import canonical_json
from gno_dist.records import (
    STAGES,
    Answer,
    Expansion,
    Failed,
    Observed,
    Outcome,
    Scored,
    ScoredDoc,
    StageReceipt,
    UnitRecord,
    Unscored,
    Usage,
    canonical_part,
)

repeatable = settings(deadline=None, derandomize=True, max_examples=100)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
_name = attrgetter("name")
NOT_FINITE = [math.nan, math.inf, -math.inf]


def record(**fields: Any) -> UnitRecord:
    given: dict[str, Any] = {
        "unit_id": "u",
        "index": 3,
        "suite": "query",
        "point": "p",
        "case_id": "q1",
        "trial": 0,
        "outcomes": {"RR@10": Scored(value=0.5)},
    }
    return UnitRecord(**(given | fields))


def canonical(item: UnitRecord, observed: frozenset[str] = frozenset()) -> dict[str, Any]:
    return canonical_part(item.model_dump(mode="json"), observed)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Scored, "kind value"),
        (Unscored, "kind reason"),
        (Failed, "kind error message"),
        (StageReceipt, "stage state reason count"),
        (Usage, "input_tokens output_tokens cost_usd"),
        (Answer, "text sources citations truncated"),
        (Expansion, "lexical_queries vector_queries hyde notes"),
        (Observed, "stage_ms cached_calls calls judge_usage system_usage details"),
        (
            UnitRecord,
            "version unit_id index suite point case_id trial ranking expansion answer judgement"
            " receipts outcomes observed",
        ),
    ],
)
def test_the_fields_of_version_1_are_these(model: type[Any], fields: str) -> None:
    """A change here needs a new RECORD_VERSION: journals of earlier jobs are read strictly."""
    assert records.RECORD_VERSION == 1
    names = (
        model.model_fields if issubclass(model, BaseModel) else map(_name, dataclass_fields(model))
    )
    assert " ".join(names) == fields


def test_every_stored_model_is_pinned_above() -> None:
    stored = {
        found
        for found in vars(records).values()
        if isinstance(found, type) and (issubclass(found, records.Frozen) or is_dataclass(found))
    } - {records.Frozen}
    assert {model.__name__ for model in stored} == {
        *("Answer", "Expansion", "Failed", "Observed", "Scored", "StageReceipt"),
        *("UnitRecord", "Unscored", "Usage"),
    }
    assert ScoredDoc._fields == ("docid", "score")
    assert STAGES == ("expand", "search", "rerank", "answer", "judge")


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize(
    "fields",
    [
        lambda x: {"ranking": (ScoredDoc("a", x),)},
        lambda x: {"ranking": [["a", x]]},
        lambda x: {"outcomes": {"RR": {"kind": "scored", "value": x}}},
        lambda x: {"judgement": {"tone": {"score": x}}},
        lambda x: {"judgement": {"tone": {"probabilities": [0.5, x]}}},
        lambda x: {"observed": {"stage_ms": {"search": x}}},
        lambda x: {"observed": {"judge_usage": {"cost_usd": x}}},
    ],
)
def test_no_number_is_nan_or_infinite(fields: Any, number: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        record(**fields(number))


@pytest.mark.parametrize(
    "fields",
    [
        {"colour": "blue"},
        {"version": 2},
        {"outcomes": {"RR": {"kind": "zero"}}},
        {"outcomes": {"RR": {"kind": "scored", "value": 1, "reason": "both"}}},
        {"outcomes": {"RR": {"kind": "scored"}}},
        {"outcomes": {"RR": {"kind": "unscored", "value": 0}}},
        {"receipts": [{"stage": "fuse", "state": "ran"}]},
        {"receipts": [{"stage": "search", "state": "fine"}]},
        {"answer": {"text": "x", "sources": [], "citations": []}},
    ],
)
def test_a_record_of_another_shape_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        record(**fields)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        record().trial = 1


def test_failed_unscored_and_zero_are_three_things() -> None:
    zero, unscored, failed = Scored(value=0.0), Unscored(reason="x"), Failed(error="E", message="x")
    assert len({zero, unscored, failed}) == 3
    read: TypeAdapter[Any] = TypeAdapter(Outcome)
    for outcome in (zero, unscored, failed):
        assert read.validate_json(outcome.model_dump_json()) == outcome
    assert not record(outcomes={"a": zero, "b": unscored}).failed
    assert record(outcomes={"a": zero, "b": failed}).failed
    assert not record(outcomes={}).failed


OUTCOMES = st.one_of(
    FINITE.map(lambda value: Scored(value=value)),
    st.text().map(lambda reason: Unscored(reason=reason)),
    st.tuples(st.text(), st.text()).map(lambda two: Failed(error=two[0], message=two[1])),
)
RECORDS = st.builds(
    record,
    index=st.integers(0, 10**9),
    case_id=st.text(),
    trial=st.integers(0, 1000),
    ranking=st.none() | st.lists(st.builds(ScoredDoc, st.text(), FINITE), max_size=3).map(tuple),
    answer=st.none()
    | st.builds(
        Answer,
        text=st.text(),
        sources=st.tuples(st.text()),
        citations=st.just(()),
        truncated=st.booleans(),
    ),
    judgement=st.none() | st.dictionaries(st.text(), FINITE, max_size=2),
    outcomes=st.dictionaries(st.text(), OUTCOMES, max_size=3),
    observed=st.builds(Observed, stage_ms=st.dictionaries(st.sampled_from(STAGES), FINITE)),
)


@given(RECORDS)
@repeatable
def test_a_journal_line_reads_back_as_the_same_record(item: UnitRecord) -> None:
    again = UnitRecord.model_validate_json(item.model_dump_json(), strict=True)
    assert again == item
    assert canonical_json(canonical(again)) == canonical_json(canonical(item))


@given(RECORDS, st.dictionaries(st.sampled_from(STAGES), FINITE), st.integers(0, 99))
@repeatable
def test_observations_are_not_canonical(
    item: UnitRecord, stage_ms: dict[str, float], calls: int
) -> None:
    other = item.model_copy(
        update={"observed": Observed(stage_ms=stage_ms, calls=calls, cached_calls=calls)}
    )
    assert canonical(other) == canonical(item)
    assert canonical(item).keys() == UnitRecord.model_fields.keys() - {"observed"}


def test_observed_measures_are_left_out_by_name_and_nothing_else() -> None:
    item = record(outcomes={"RR@10": Scored(value=0.5), "latency(budget_ms=9)": Scored(value=1)})
    assert canonical(item, frozenset({"latency(budget_ms=9)"}))["outcomes"] == {
        "RR@10": {"kind": "scored", "value": 0.5}
    }
    assert canonical(item)["outcomes"].keys() == {"RR@10", "latency(budget_ms=9)"}


@pytest.mark.parametrize(
    "fields",
    [
        {"unit_id": "other"},
        {"case_id": "q2"},
        {"trial": 1},
        {"ranking": (ScoredDoc("a", 0.5),)},
        {"judgement": {"tone": {"score": 1.0}}},
        {"receipts": (StageReceipt(stage="search", state="ran", count=1),)},
        {"outcomes": {"RR@10": Scored(value=0.25)}},
        {"outcomes": {"RR@10": Unscored(reason="no relevant documents")}},
    ],
)
def test_everything_else_is_canonical(fields: dict[str, Any]) -> None:
    assert canonical(record(**fields)) != canonical(record())


def test_times_and_tokens_add_up() -> None:
    # 12.5 + 0.25 = 12.75 milliseconds over two stages.
    assert Observed(stage_ms={"search": 12.5, "judge": 0.25}).service_ms == 12.75
    assert Observed().service_ms == 0
    # 3 + 4 in, 1 + 0 out, 0.5 + 0.25 dollars.
    one = Usage(input_tokens=3, output_tokens=1, cost_usd=0.5)
    other = Usage(input_tokens=4, cost_usd=0.25)
    assert one + other == Usage(input_tokens=7, output_tokens=1, cost_usd=0.75)
