"""From a trial's outputs to outcomes: one name, one measure, for every kind of suite; pure.

Everything here is computed from what the journal holds, so measures can be added, and every
number checked, without running anything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from gno_dist import measures
from gno_dist.cases import AskCase, Case, Query
from gno_dist.judges import likelihood
from gno_dist.records import (
    Answer,
    Failed,
    Outcome,
    Scored,
    ScoredDoc,
    StageReceipt,
    Unscored,
)
from gno_dist.retrieval.context import without_citations
from gno_dist.scorers import has_citations, latency_score, valid_citations


class Outputs(NamedTuple):
    """What one trial produced, as far as measures read it."""

    ranking: Sequence[ScoredDoc] | None
    answer: Answer | None
    judgement: Mapping[str, Any] | None
    judge_model: str | None
    """sha256 of the judge's model."""
    service_ms: float


@dataclass(frozen=True)
class RankingMeasure:
    """An IR measure over the ranking; in answer suites over the sources' documents."""

    measure: measures.Measure
    canonical: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"retrieval", "answer"})

    def __str__(self) -> str:
        return str(self.measure)

    def outcome(self, case: Case, outputs: Outputs) -> Outcome:
        """The measure's value for the case."""
        if not isinstance(case, Query | AskCase) or outputs.ranking is None:
            return Unscored(reason="there is no ranking")
        return self.measure.outcome([doc.docid for doc in outputs.ranking], case.judged())


@dataclass(frozen=True)
class Quality:
    """Answer quality by the likelihood judge: relevance, groundedness or completeness."""

    name: str
    canonical: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"answer"})

    def __str__(self) -> str:
        return self.name

    def outcome(self, case: Case, outputs: Outputs) -> Outcome:
        """The judged quality of the case's answer.

        An empty answer was measured and is bad: it is not relevant and covers nothing. Whether it
        is grounded cannot be said.
        """
        if outputs.answer is not None and not without_citations(outputs.answer.text):
            if self.name == "groundedness":
                return Unscored(reason="the answer is empty")
            return Scored(value=0.0)
        if outputs.judgement is None or outputs.judge_model is None:
            return Unscored(reason="the answer was not judged")
        return likelihood.outcome(self.name, dict(outputs.judgement), outputs.judge_model)


@dataclass(frozen=True)
class Citations:
    """Whether the answer cites a source, or the share of cited sources that exist."""

    name: str
    canonical: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"answer"})

    def __str__(self) -> str:
        return self.name

    def outcome(self, case: Case, outputs: Outputs) -> Outcome:
        """1 or 0 for ``has_citations``; a share, or unscored without any, for the other."""
        if outputs.answer is None:
            return Unscored(reason="there is no answer")
        if self.name == "has_citations":
            return Scored(value=has_citations(outputs.answer.citations))
        share = valid_citations(outputs.answer.citations, outputs.answer.sources)
        return Unscored(reason="nothing is cited") if share is None else Scored(value=share)


@dataclass(frozen=True)
class Latency:
    """The soft latency budget over composed service time; an observation, never hashed."""

    budget_ms: float
    canonical: ClassVar[bool] = False
    kinds: ClassVar[frozenset[str]] = frozenset({"retrieval", "answer", "rubric"})

    def __str__(self) -> str:
        return f"latency(budget_ms={self.budget_ms:g})"

    def outcome(self, case: Case, outputs: Outputs) -> Outcome:
        """1 within the budget, falling to 0 at twice the budget."""
        return Scored(value=latency_score(outputs.service_ms, self.budget_ms))


AnyMeasure = RankingMeasure | Quality | Citations | Latency

_LATENCY = re.compile(r"latency\(\s*budget_ms\s*=\s*(\d+(?:\.\d+)?)\s*\)", re.IGNORECASE)
_CITATIONS = ("has_citations", "valid_citations")


def parse_any(text: str) -> AnyMeasure:
    """Parse a measure's name; the printed form of the result parses back to it.

    Raises:
        ValueError: naming the text and what exists.
    """
    name = text.strip()
    if name.lower() in likelihood.QUALITIES:
        return Quality(name.lower())
    if name.lower() in _CITATIONS:
        return Citations(name.lower())
    if match := _LATENCY.fullmatch(name):
        if float(match[1]) <= 0:
            raise ValueError(f"{text!r}: the budget must be greater than 0 milliseconds")
        return Latency(float(match[1]))
    try:
        return RankingMeasure(measures.parse_measure(name))
    except ValueError as exc:
        others = ", ".join([*likelihood.QUALITIES, *_CITATIONS, "latency(budget_ms=...)"])
        raise ValueError(f"{exc}; also: {others}") from None


def score(
    asked: Sequence[AnyMeasure],
    case: Case,
    outputs: Outputs,
    receipts: Sequence[StageReceipt],
) -> dict[str, Outcome]:
    """Outcomes of all measures of a trial, by printed name.

    A stage that was asked for and did not run fails every measure: a low score would lie.
    """
    broken = broken_stage(receipts)
    if broken is not None:
        return {str(measure): broken for measure in asked}
    return {str(measure): measure.outcome(case, outputs) for measure in asked}


def broken_stage(receipts: Sequence[StageReceipt]) -> Failed | None:
    """The first stage that was asked for and did not run, as a failure."""
    for receipt in receipts:
        if receipt.state in {"failed", "timed_out"}:
            return Failed(
                error=f"stage {receipt.stage} {receipt.state}", message=receipt.reason or ""
            )
    return None
