"""The cases a user writes: queries with judgments, questions to answer, outputs to judge.

Each says by ``identity`` what the stages read of it; what only the measures read (judgments,
notes) is left out, so that a corrected judgment never causes a run. Knows nothing of suites.
"""

from typing import Annotated, Any

from pydantic import AliasChoices, Field, JsonValue

from gno_dist.loading import UserModel
from gno_dist.measures import Judged, judged

NonEmpty = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Judgment(UserModel):
    """The graded relevance of one document for one query; 0 is judged not relevant."""

    docid: str
    relevance: float = Field(allow_inf_nan=False)


class Query(UserModel):
    """One information need with its judgments; Recall reads ``relevant``, nDCG the grades."""

    id: NonEmpty
    query: NonEmpty
    collection: str | None = None
    language: str | None = None
    relevant: list[str] | None = Field(
        default=None, validation_alias=AliasChoices("relevant", "relevantDocs")
    )
    judgments: list[Judgment]
    category: str | None = None
    note: str | None = None

    def judged(self) -> Judged:
        """The judgments in the form the measures take."""
        return judged(self.relevant, {item.docid: item.relevance for item in self.judgments})

    def identity(self) -> dict[str, Any]:
        """What the stages read of it; judgments are not part, they are applied afterwards."""
        return {"query": self.query, "collection": self.collection}


class AskCase(UserModel):
    """One question to be answered from the corpus."""

    id: NonEmpty
    question: NonEmpty
    collection: str | None = None
    language: str | None = None
    expected_topics: list[str] = []
    relevant: list[str] = []
    note: str | None = None

    def identity(self) -> dict[str, Any]:
        """What the stages read of it."""
        return {
            "question": self.question,
            "collection": self.collection,
            "expected_topics": self.expected_topics,
        }

    def judged(self) -> Judged:
        """The documents that hold the answer, in the form the measures take."""
        return judged(self.relevant, dict.fromkeys(self.relevant, 1.0))


class RubricCase(UserModel):
    """One output to be judged: what was asked, what was answered, what was expected."""

    id: NonEmpty
    input: JsonValue
    output: JsonValue
    expected: JsonValue = None
    metadata: dict[str, JsonValue] = {}

    def state(self) -> dict[str, Any]:
        """The judge's state: one case, never several."""
        state: dict[str, Any] = {"input": self.input, "output": self.output}
        return state if self.expected is None else {**state, "expected": self.expected}

    def identity(self) -> dict[str, Any]:
        """What the judge reads of it."""
        return self.state()


Case = Query | AskCase | RubricCase

CASE_MODELS: dict[str, type[Query] | type[AskCase] | type[RubricCase]] = {
    "retrieval": Query,
    "answer": AskCase,
    "rubric": RubricCase,
}
"""Kind of suite -> what its cases are."""
