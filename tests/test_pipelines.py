"""Pipelines as pure generators: which calls they make, in which order, and how they end."""

from collections.abc import Sequence
from typing import Any

import pytest

from gno_dist.backends.resolve import pools_of
from gno_dist.calls import Fault, Reply
from gno_dist.cases import AskCase, Query, RubricCase
from gno_dist.pipelines import Ask, Setting, run
from gno_dist.plan import Plan, Unit
from gno_dist.records import STAGES, Usage
from gno_dist.sweep import LoadedJob
from gno_dist.trace import Trace
from gno_dist.trials import setting_of

USAGE = Usage(input_tokens=3, output_tokens=1, cost_usd=0.25)
EXPANSION = '{"lexicalQueries": ["spare"], "vectorQueries": ["where?"], "hyde": "On Mondays."}'


def unit_of(job: LoadedJob, case_id: str, label: str) -> Unit:
    plan = Plan(job, pools_of)
    return next(u for u in plan.units() if (u.case.id, u.point.label) == (case_id, label))


def reply_to(ask: Ask, texts: dict[str, str]) -> list[Reply]:
    """Plausible replies: two hits a list, falling scores, yes/no labels."""
    values: dict[str, Any] = {
        "lexical": [["alpha/keys.md", 0, 2.0], ["alpha/logs.md", 0, 1.0]],
        "vector": [["alpha/logs.md", 0, 0.9], ["beta/urlaub.md", 0, 0.8]],
    }
    replies = []
    for number, call in enumerate(ask.calls):
        if call.method == "generate":
            text = texts[call.stage]
            value: Any = {"text": text, "tokens": 5, "truncated": False}
        elif call.method == "loglik":
            value = {"logprobs": [-5.0 - number] * len(call.args["items"])}
        elif call.method == "labels":
            value = {"logprobs": [[-1.0] * len(q["labels"]) for q in call.args["questions"]]}
        else:
            value = values[call.method]
        replies.append(Reply(value, 2.0, USAGE))
    return replies


def drive(
    case: Query | AskCase | RubricCase,
    setting: Setting,
    texts: dict[str, str] | None = None,
    broken: str | None = None,
    fault: Fault | None = None,
) -> tuple[Trace, list[Ask]]:
    """Run a pipeline to its end; the calls of stage ``broken`` get ``fault``."""
    texts = {"expand": EXPANSION, "answer": "At the caretaker. [1]", **(texts or {})}
    trace, asks = Trace(), []
    pipeline = run(case, setting, trace)
    ask = next(pipeline, None)
    while ask is not None:
        asks.append(ask)
        replies: Sequence[Reply | Fault] = reply_to(ask, texts)
        if ask.stage == broken and fault is not None:
            replies = [*replies[:-1], fault]
        try:
            ask = pipeline.send(replies)
        except StopIteration:
            ask = None
    return trace, asks


def make(job: LoadedJob, case_id: str, label: str) -> tuple[Any, Setting]:
    unit = unit_of(job, case_id, label)
    return unit.case, setting_of(unit, lambda docid, seq: f"{docid} {seq}")


@pytest.mark.parametrize(
    ("depth", "stages"),
    [
        ("fast", ["search"]),
        ("vector", ["search"]),
        ("hybrid", ["search"]),
        ("balanced", ["search", "rerank"]),
        ("thorough", ["expand", "search", "rerank"]),
    ],
)
def test_a_depth_asks_for_its_stages_in_order(
    tiny_job: LoadedJob, depth: str, stages: list[str]
) -> None:
    trace, asks = drive(*make(tiny_job, "q4", f"one depth={depth}"))
    assert [ask.stage for ask in asks] == stages
    receipts = trace.all_receipts()
    assert [r.stage for r in receipts] == [stage for stage in STAGES if stage in stages]
    assert {r.state for r in receipts} == {"ran"}


def test_lists_of_an_expanded_query_originals_first(tiny_job: LoadedJob) -> None:
    _, asks = drive(*make(tiny_job, "q4", "one depth=thorough"))
    searched = [(call.method, call.args["text"]) for call in asks[1].calls]
    assert searched == [
        ("lexical", "spare keys"),
        ("vector", "spare keys"),
        ("lexical", "spare"),
        ("vector", "where?"),
        ("vector", "On Mondays."),
    ]


def test_an_unusable_expansion_ran_and_says_so(tiny_job: LoadedJob) -> None:
    trace, asks = drive(*make(tiny_job, "q4", "one depth=thorough"), texts={"expand": "no"})
    assert trace.expansion is None
    assert trace.receipts["expand"].state == "ran"
    assert "unusable output" in (trace.receipts["expand"].reason or "")
    assert len(asks[1].calls) == 2, "the original query alone"


def test_the_collection_travels_into_every_search(tiny_job: LoadedJob) -> None:
    _, asks = drive(*make(tiny_job, "q3", "one depth=hybrid"))
    assert {call.args["collection"] for call in asks[0].calls} == {"beta"}


def test_reranking_makes_one_call_a_candidate(tiny_job: LoadedJob) -> None:
    trace, asks = drive(*make(tiny_job, "q4", "one depth=balanced"))
    assert len(asks[1].calls) == 3
    assert all(len(call.args["items"]) == 1 for call in asks[1].calls)
    assert trace.ranking is not None
    assert trace.ranking[0].docid == "alpha/logs.md", "it has the best of both scores"


def test_an_answer_has_one_judge_call_and_its_citations(tiny_job: LoadedJob) -> None:
    trace, asks = drive(*make(tiny_job, "a1", "one"))
    assert [ask.stage for ask in asks] == ["expand", "search", "rerank", "answer", "judge"]
    assert len(asks[-1].calls) == 1
    assert trace.answer is not None
    assert trace.answer.citations == (trace.answer.sources[0],)
    assert trace.judge_usage == USAGE, "the judge's tokens are not the system's"


def test_an_empty_answer_is_not_judged(tiny_job: LoadedJob) -> None:
    trace, asks = drive(*make(tiny_job, "a1", "one"), texts={"answer": " [1]"})
    assert asks[-1].stage == "answer"
    assert trace.receipts["judge"].state == "ran"
    assert trace.receipts["judge"].count == 0


def test_all_rubrics_of_a_case_are_one_call(tiny_job: LoadedJob) -> None:
    trace, asks = drive(*make(tiny_job, "c1", "one"))
    assert [len(ask.calls) for ask in asks] == [1]
    assert trace.judgement is not None
    assert set(trace.judgement) == {"answers", "tone", "fault"}


@pytest.mark.parametrize("stage", ["expand", "search", "rerank", "answer", "judge"])
@pytest.mark.parametrize("timed_out", [False, True])
def test_a_fault_ends_the_pipeline_with_a_receipt(
    tiny_job: LoadedJob, stage: str, timed_out: bool
) -> None:
    fault = Fault("Boom", "it broke", timed_out)
    trace, asks = drive(*make(tiny_job, "a1", "one"), broken=stage, fault=fault)
    assert asks[-1].stage == stage, "nothing is asked after the fault"
    receipt = {r.stage: r for r in trace.all_receipts()}[asks[-1].stage]
    assert receipt.state == ("timed_out" if timed_out else "failed")
    assert receipt.reason == "Boom: it broke"


def test_the_seed_counts_only_where_something_is_drawn(tiny_job: LoadedJob) -> None:
    case, setting = make(tiny_job, "a1", "one")
    _, asks = drive(case, setting)
    assert "seed" not in asks[3].calls[0].args
    generator = setting.preset.generator
    assert generator is not None
    warm = generator.model_copy(update={"temperature": 0.5})
    drawn = setting._replace(preset=setting.preset.model_copy(update={"generator": warm}))
    _, asks = drive(case, drawn)
    assert asks[3].calls[0].args["seed"] == setting.seed_of()
