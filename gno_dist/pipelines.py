"""What one trial does, stage by stage, as generators: they yield calls and receive replies; pure.

A pipeline reads from top to bottom and never waits: ``flow`` drives many of them in step, so that
equal calls of different points are made once. A pipeline never raises for a bad case; what broke
stands in its receipts.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from gno_dist.calls import Call, Fault, PoolSpec, Reply, make_call
from gno_dist.cases import AskCase, Query, RubricCase
from gno_dist.judges import labels, likelihood
from gno_dist.presets import Generator as GeneratorSettings
from gno_dist.presets import Preset
from gno_dist.records import (
    Answer,
    Expansion,
    PassageHit,
    ScoredDoc,
    StageName,
)
from gno_dist.retrieval import context, expand, fuse
from gno_dist.trace import StageBroke, Trace


class Ask(NamedTuple):
    """One stage's calls; the pipeline continues with their replies in the same order."""

    stage: StageName
    calls: Sequence[Call]


Pipeline = Generator[Ask, Sequence[Reply | Fault], None]


class Bound(NamedTuple):
    """A pool with its key computed once."""

    key: str
    spec: PoolSpec

    def call(self, stage: StageName, method: str, args: Mapping[str, Any]) -> Call:
        """A call of this pool."""
        return make_call(stage, self.spec, self.key, method, args)


class Setting(NamedTuple):
    """Everything a pipeline needs beside its case: settings, pools by role, passages."""

    preset: Preset
    pools: Mapping[str, Bound]
    """Role (index, reranker, generator, judge) -> pool."""
    passage: Callable[[str, int], str]
    """(docid, chunk seq) -> the passage's text with its title."""
    questionnaire: labels.Questionnaire
    seed_of: Callable[[], int]
    """The trial's seed; few trials draw anything."""


def run(case: Query | AskCase | RubricCase, setting: Setting, trace: Trace) -> Pipeline:
    """The pipeline of a case; ends early, with the receipt written, when a stage broke."""
    try:
        if isinstance(case, RubricCase):
            yield from _judge_rubrics(case, setting, trace)
        elif isinstance(case, AskCase):
            yield from _ask(case, setting, trace)
        else:
            hits = yield from _retrieve(case.query, case.collection, setting, trace)
            trace.ranking = tuple(hits.ranking[: setting.preset.search.limit])
    except StageBroke:
        return


class Retrieved(NamedTuple):
    """A document ranking and, for each document, the passage that stands for it."""

    ranking: list[ScoredDoc]
    passages: Mapping[str, tuple[str, int]]


def _step(
    trace: Trace, stage: StageName, calls: Sequence[Call]
) -> Generator[Ask, Sequence[Reply | Fault], list[Any]]:
    replies = yield Ask(stage, calls)
    return trace.absorb(stage, replies)


def _retrieve(
    query: str, collection: str | None, setting: Setting, trace: Trace
) -> Generator[Ask, Sequence[Reply | Fault], Retrieved]:
    stages, search = setting.preset.stages, setting.preset.search
    if stages.expand:
        yield from _expand(query, setting, trace)
    wanted = _wanted_lists(query, trace.expansion, setting)
    index = setting.pools["index"]
    calls = [
        index.call("search", method, {"text": text, "collection": collection, "k": search.fetch})
        for method, text, _ in wanted
    ]
    found = yield from _step(trace, "search", calls)
    lists = [
        fuse.RankedList(weight, [PassageHit(*hit) for hit in hits])
        for (_, _, weight), hits in zip(wanted, found, strict=True)
    ]
    for (method, text, _), ranked in zip(wanted, lists, strict=True):
        if method == "vector" and not ranked.hits:
            raise trace.broke("search", f"empty vector list for {text!r}")
    trace.ran("search", sum(len(ranked.hits) for ranked in lists))
    fused = fuse.reciprocal_rank_fusion(lists, k=search.rrf_k)
    passages = fuse.best_passages(lists)
    if stages.rerank:
        fused = yield from _rerank(query, fused, passages, setting, trace)
    return Retrieved(fused, passages)


def _expand(
    query: str, setting: Setting, trace: Trace
) -> Generator[Ask, Sequence[Reply | Fault], None]:
    generator = setting.preset.generator
    if generator is None:  # the loader refuses this; kept for callers that build plans themselves
        raise trace.broke("expand", "no generator in this preset")
    args = {
        "prefix": expand.prompt(query),
        "max_tokens": generator.expansion_max_tokens,
        "stop": "\n",
        "grammar": expand.GRAMMAR if generator.expansion_format == "grammar" else None,
        **_sampling(generator, setting),
    }
    call = setting.pools["generator"].call("expand", "generate", args)
    [value] = yield from _step(trace, "expand", [call])
    trace.expansion, fault = expand.parse(value["text"])
    variants = trace.expansion
    count = len(variants.lexical_queries) + len(variants.vector_queries) if variants else 0
    trace.ran("expand", count, fault and f"unusable output: {fault}")


def _sampling(generator: GeneratorSettings, setting: Setting) -> dict[str, Any]:
    """Sampling settings of a call; the seed counts only where something is drawn."""
    if generator.temperature == 0:
        return {"temperature": 0.0}
    return {"temperature": generator.temperature, "seed": setting.seed_of()}


def _wanted_lists(
    query: str, expansion: Expansion | None, setting: Setting
) -> list[tuple[str, str, float]]:
    """(retriever, text, weight) of every list to fetch; originals first."""
    stages, search = setting.preset.stages, setting.preset.search
    wanted: dict[tuple[str, str], float] = {}
    if stages.lexical:
        wanted["lexical", query] = search.original_weight
    if stages.vector:
        wanted["vector", query] = search.original_weight
    if expansion is not None:
        for text in expansion.lexical_queries if stages.lexical else ():
            wanted.setdefault(("lexical", text), search.variant_weight)
        for text in expansion.vector_queries if stages.vector else ():
            wanted.setdefault(("vector", text), search.variant_weight)
        if expansion.hyde and stages.vector:
            wanted.setdefault(("vector", expansion.hyde), search.hyde_weight)
    return [(method, text, weight) for (method, text), weight in wanted.items()]


def _rerank(
    query: str,
    fused: list[ScoredDoc],
    passages: Mapping[str, tuple[str, int]],
    setting: Setting,
    trace: Trace,
) -> Generator[Ask, Sequence[Reply | Fault], list[ScoredDoc]]:
    candidates = [doc.docid for doc in fused[: setting.preset.search.candidates]]
    reranker = setting.pools["reranker"]
    calls = []
    for docid in candidates:
        text = setting.passage(*passages[docid])
        item = {"prefix": [f"Text: {' '.join(text.split())}\n"], "continuation": f"Query: {query}"}
        calls.append(reranker.call("rerank", "loglik", {"items": [item]}))
    values = yield from _step(trace, "rerank", calls)
    scores = {docid: value["logprobs"][0] for docid, value in zip(candidates, values, strict=True)}
    trace.ran("rerank", len(scores))
    return fuse.blend(fused, scores, rerank_weight=setting.preset.search.rerank_weight)


def _ask(
    case: AskCase, setting: Setting, trace: Trace
) -> Generator[Ask, Sequence[Reply | Fault], None]:
    hits = yield from _retrieve(case.question, case.collection, setting, trace)
    trace.ranking = tuple(hits.ranking[: setting.preset.search.limit])
    generator = setting.preset.generator
    if generator is None:
        raise trace.broke("answer", "no generator in this preset")
    used = [doc.docid for doc in hits.ranking[: generator.sources]]
    if not used:
        raise trace.broke("answer", "retrieval found no source")
    texts = [setting.passage(*hits.passages[docid]) for docid in used]
    args = {
        "prefix": context.prompt(case.question, texts),
        "max_tokens": generator.max_tokens,
        "stop": "\n",
        "grammar": None,
        **_sampling(generator, setting),
    }
    [value] = yield from _step(
        trace, "answer", [setting.pools["generator"].call("answer", "generate", args)]
    )
    text = value["text"].strip()
    trace.answer = Answer(
        text=text,
        sources=tuple(used),
        citations=context.citations(text, used),
        truncated=value["truncated"],
    )
    trace.ran("answer", value["tokens"])
    yield from _judge_answer(case, texts, setting, trace)


def _judge_answer(
    case: AskCase, texts: Sequence[str], setting: Setting, trace: Trace
) -> Generator[Ask, Sequence[Reply | Fault], None]:
    answer = trace.answer.text if trace.answer else ""
    if not context.without_citations(answer):
        trace.ran("judge", 0, "the answer is empty: there is nothing to judge")
        return
    asked = likelihood.items(case.question, texts, answer, case.expected_topics)
    call = setting.pools["judge"].call("judge", "loglik", {"items": asked})
    [value] = yield from _step(trace, "judge", [call])
    trace.judgement = likelihood.ratios(value["logprobs"])
    trace.ran("judge", len(asked))


def _judge_rubrics(
    case: RubricCase, setting: Setting, trace: Trace
) -> Generator[Ask, Sequence[Reply | Fault], None]:
    questionnaire = setting.questionnaire
    args = {
        "prefix": labels.state_segments(case.state()),
        "questions": questionnaire.embedded,
    }
    call = setting.pools["judge"].call("judge", "labels", args)
    [value] = yield from _step(trace, "judge", [call])
    trace.judgement = labels.answers(questionnaire.rubrics, questionnaire.asked, value["logprobs"])
    trace.ran("judge", len(questionnaire.rubrics))
