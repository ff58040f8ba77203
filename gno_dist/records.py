"""The frozen values that travel between processes and are stored in the journal.

Failed, unscored and zero are three things: an ``Outcome`` is a tagged union with a finite float.
Everything under ``UnitRecord.observed`` may differ between two runs of one plan (times, hosts,
tokens from a cache); everything else must not, and is what the fingerprint hashes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue

RECORD_VERSION: Literal[1] = 1

StageName = Literal["expand", "search", "rerank", "answer", "judge"]
STAGES: tuple[StageName, ...] = ("expand", "search", "rerank", "answer", "judge")
StageState = Literal["ran", "timed_out", "failed"]


class Frozen(BaseModel):
    """Base of stored values: immutable, no unknown fields, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scored(Frozen):
    """A measure gave a number."""

    kind: Literal["scored"] = "scored"
    value: FiniteFloat


class Unscored(Frozen):
    """There was nothing to score, or the judge gave no usable answer; not a zero."""

    kind: Literal["unscored"] = "unscored"
    reason: str


class Failed(Frozen):
    """Something broke: a stage that was asked for did not run. Not a zero either."""

    kind: Literal["failed"] = "failed"
    error: str
    message: str


Outcome = Annotated[Scored | Unscored | Failed, Field(discriminator="kind")]


class ScoredDoc(NamedTuple):
    """A document in a ranking; a higher score is better."""

    docid: str
    score: float


class PassageHit(NamedTuple):
    """A passage in a retriever's list: chunk ``seq`` (0-based) of a document, and its score."""

    docid: str
    seq: int
    score: float


class StageReceipt(Frozen):
    """What became of one stage of one trial; a stage that was not asked for has none."""

    stage: StageName
    state: StageState
    reason: str | None = None
    """Why it failed, timed out or has nothing to show."""
    count: int | None = None
    """Length of the list it produced: variants, hits, candidates, tokens or judgements."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of model calls; a cached reply keeps what it cost when it was made.

    A plain dataclass: it is summed several times a record, and validated where a record is read.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: FiniteFloat = 0.0

    def __bool__(self) -> bool:
        return bool(self.input_tokens or self.output_tokens or self.cost_usd)

    def __add__(self, other: "Usage") -> "Usage":
        if not self:
            return other
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )


class Answer(Frozen):
    """A generated answer with the sources it was given and those it cites."""

    text: str
    sources: tuple[str, ...]
    """Docids in the order in which the prompt numbered them."""
    citations: tuple[str, ...]
    """Docids cited by ``[n]`` marks, in order of first use; a mark without a source stays."""
    truncated: bool
    """The token limit ended it."""


class Expansion(Frozen):
    """Structured query expansion, as validated against its schema."""

    lexical_queries: tuple[str, ...]
    vector_queries: tuple[str, ...]
    hyde: str | None = None
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What may differ between two runs of one plan; never hashed.

    A plain dataclass like ``Usage``: every record makes one.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    stage_ms: dict[str, FiniteFloat] = field(default_factory=dict)
    """Service milliseconds a stage: time inside the backend, without queueing and loading."""
    cached_calls: int = 0
    calls: int = 0
    judge_usage: Usage = Usage()
    system_usage: Usage = Usage()
    """Tokens and cost of the system under test (expansion, reranking, answers)."""
    details: tuple[str, ...] = ()
    """What else is known of a fault: the stack of a crash, a deadline."""

    @property
    def service_ms(self) -> float:
        """Sum of the stages' service times: a composed figure when stages were shared."""
        return sum(self.stage_ms.values())


class UnitRecord(Frozen):
    """One trial of one case at one point: the unit of record, one journal line."""

    version: Literal[1] = RECORD_VERSION
    unit_id: str
    index: int
    """Position in plan order, from 0."""
    suite: str
    point: str
    case_id: str
    trial: int
    ranking: tuple[ScoredDoc, ...] | None = None
    expansion: Expansion | None = None
    answer: Answer | None = None
    judgement: dict[str, JsonValue] | None = None
    """The judge's reply as validated: rubric id or quality name -> its fields."""
    receipts: tuple[StageReceipt, ...] = ()
    outcomes: dict[str, Outcome]
    """Measure name or rubric id -> outcome."""
    observed: Observed = Observed()

    @property
    def failed(self) -> bool:
        """True when any outcome failed."""
        return any(isinstance(outcome, Failed) for outcome in self.outcomes.values())


def canonical_part(
    record: Mapping[str, Any], observed_measures: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """What must be equal however the plan ran: the input of the fingerprint.

    Args:
        record: a ``UnitRecord`` in its plain JSON form, as the journal holds it.
        observed_measures: names of outcomes that are observations (latency, cost).
    """
    part = dict(record)
    part.pop("observed", None)
    if observed_measures:
        part["outcomes"] = {
            name: outcome
            for name, outcome in record["outcomes"].items()
            if name not in observed_measures
        }
    return part
