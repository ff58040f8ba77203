"""Answer quality from conditional likelihoods, for base models that follow no instructions; pure.

relevance    = log p(answer | sources, question) - log p(answer | sources)
groundedness = log p(answer | sources, question) - log p(answer | question)
completeness = mean over topics of log p(topic | answer) - log p(topic | an empty answer)

Each ratio is in nats, summed over tokens, and mapped to 0..1 by a logistic fitted per judge model
on labelled data (``calibration.json``). Without a calibration for the model nothing is scored.
"""

import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from gno_dist.records import Outcome, Scored, Unscored
from gno_dist.retrieval import context

QUALITIES = ("relevance", "groundedness", "completeness")

_WITHOUT_QUESTION = (
    "Sources:\n"
    "[1] Cycle store: The cycle store in the north yard is open from six in the morning.\n"
    "[2] Canteen: Lunch is served from noon until two; vegetarian dishes cost 5.40 euros.\n"
    "Answer: A vegetarian lunch costs 5.40 euros.\n\n"
    "Sources:\n"
    "[1] Schlüssel: Ersatzschlüssel gibt die Hausverwaltung montags gegen Unterschrift aus.\n"
    "Answer: Ersatzschlüssel gibt die Hausverwaltung gegen Unterschrift aus.\n\n"
)
_WITHOUT_SOURCES = (
    "Question: What does a vegetarian lunch cost?\n"
    "Answer: A vegetarian lunch costs 5.40 euros.\n\n"
    "Question: Wer gibt Ersatzschlüssel aus?\n"
    "Answer: Ersatzschlüssel gibt die Hausverwaltung gegen Unterschrift aus.\n\n"
)
_TOPICS = (
    "Answer: A vegetarian lunch costs 5.40 euros.\nTopic: vegetarian lunch\n\n"
    "Answer: Ersatzschlüssel gibt die Hausverwaltung gegen Unterschrift aus.\n"
    "Topic: Hausverwaltung\n\n"
)


def items(
    question: str, passages: Sequence[str], answer: str, topics: Sequence[str]
) -> list[dict[str, Any]]:
    """The likelihoods to ask for, as (prefix segments, continuation): one judge call a case.

    Order: answer with sources and question, with sources, with question; then for each topic with
    the answer and without it.
    """
    text = " " + " ".join(context.without_citations(answer).split())
    sources = context.sources_block(passages)
    asked = context.question_block(question)
    wanted = [
        (context.prompt(question, passages), text),
        ([_WITHOUT_QUESTION, sources, "Answer:"], text),
        ([_WITHOUT_SOURCES, asked], text),
    ]
    for topic in topics:
        wanted.append(([_TOPICS, f"Answer:{text}\nTopic:"], f" {topic}"))
        wanted.append(([_TOPICS, "Answer:\nTopic:"], f" {topic}"))
    return [{"prefix": prefix, "continuation": tail} for prefix, tail in wanted]


def ratios(logprobs: Sequence[float]) -> dict[str, Any]:
    """Log likelihood ratios in nats, from the values in the order of ``items``."""
    full, without_question, without_sources, *topics = logprobs
    return {
        "relevance": full - without_question,
        "groundedness": full - without_sources,
        "completeness": [topics[i] - topics[i + 1] for i in range(0, len(topics), 2)],
    }


def outcome(quality: str, judgement: dict[str, Any], model: str) -> Outcome:
    """One quality as a number in [0, 1], or why there is none.

    Args:
        quality: one of ``QUALITIES``.
        judgement: what ``ratios`` gave.
        model: sha256 of the judge's model file.
    """
    fitted = calibration().get(model, {}).get(quality)
    if fitted is None:
        return Unscored(reason=f"no calibration of {quality!r} for judge model {model[:12]}")
    raw = judgement[quality]
    values = raw if isinstance(raw, list) else [raw]
    if not values:
        return Unscored(reason="the case names no expected topics")
    scaled = [_logistic(fitted["intercept"] + fitted["slope"] * value) for value in values]
    return Scored(value=math.fsum(scaled) / len(scaled))


@cache
def calibration() -> dict[str, dict[str, dict[str, float]]]:
    """Judge model sha256 -> quality -> fitted logistic, with where it was fitted."""
    data = files(__package__).joinpath("calibration.json").read_bytes()
    models: dict[str, dict[str, dict[str, float]]] = orjson.loads(data)["models"]
    return models


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
