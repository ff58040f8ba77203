"""Rubrics: questions a judge answers about one case, and what their answers mean as numbers.

A rubric is boolean (the probability of yes), score (fractional, 0..levels-1) or choice (one of N).
Knows the rules of valid answers; knows nothing of the judge that gave them. Nothing is rounded.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gno_dist.records import Outcome, Scored, Unscored

EPSILON = 1e-9
"""Slack of every threshold comparison: the mean of three 0.7 is 0.6999999999999998."""


class _Rubric(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BooleanCriteria(_Rubric):
    """What speaks for yes and for no."""

    true: str | None = None
    false: str | None = None


class BooleanRubric(_Rubric):
    """A yes/no question; its value is P(yes) in [0, 1]."""

    type: Literal["boolean"]
    instructions: str = Field(min_length=1)
    criteria: BooleanCriteria | None = None


class ScoreRubric(_Rubric):
    """An ordered scale, lowest level first; its value lies in [0, levels-1] and is fractional."""

    type: Literal["score"]
    instructions: str = Field(min_length=1)
    criteria: tuple[str, ...] = Field(min_length=2, max_length=10)


class ChoiceRubric(_Rubric):
    """One of N named options; its value is the option's position over N-1 (0 for one option)."""

    type: Literal["choice"]
    instructions: str = Field(min_length=1)
    criteria: dict[str, str | None] = Field(min_length=1, max_length=26)


Rubric = Annotated[BooleanRubric | ScoreRubric | ChoiceRubric, Field(discriminator="type")]


def scale(rubric: Rubric) -> tuple[float, float]:
    """The range ``(low, high)`` of a rubric's numeric value."""
    return (0.0, len(rubric.criteria) - 1.0) if isinstance(rubric, ScoreRubric) else (0.0, 1.0)


def outcome(rubric: Rubric, answer: Mapping[str, Any] | None) -> Outcome:
    """Validate a judge's answer and turn it into a number.

    Args:
        rubric: the question that was asked.
        answer: ``{"probability"}``, ``{"score"}`` or ``{"choice"}``, with optional
            ``probabilities``; None when the judge gave none.

    Returns:
        ``Scored`` with the fractional value, or ``Unscored`` with the fault: an answer outside
        the offered range is never clamped, and none is never a zero.
    """
    if answer is None:
        return Unscored(reason="the judge gave no answer")
    if isinstance(rubric, ChoiceRubric):
        return _choice(rubric, answer)
    field = "probability" if isinstance(rubric, BooleanRubric) else "score"
    low, high = scale(rubric)
    value = answer.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return Unscored(reason=f"{field} is {value!r}, not a finite number")
    if not low - EPSILON <= value <= high + EPSILON:
        return Unscored(reason=f"{field} {value!r} lies outside [{low:g}, {high:g}]")
    return Scored(value=min(high, max(low, float(value))))


def _choice(rubric: ChoiceRubric, answer: Mapping[str, Any]) -> Outcome:
    options = list(rubric.criteria)
    chosen = answer.get("choice")
    if chosen not in options:
        return Unscored(reason=f"choice {chosen!r} is none of {options}")
    position = options.index(chosen)
    return Scored(value=position / (len(options) - 1) if len(options) > 1 else 0.0)


def threshold_problem(rubric: Rubric, threshold: float) -> str | None:
    """Why a threshold cannot gate the mean of this rubric, or None when it can."""
    if isinstance(rubric, ChoiceRubric):
        return "a choice has no mean to gate; ask a boolean question about it"
    low, high = scale(rubric)
    if not low <= threshold <= high:
        return f"{threshold!r} lies outside [{low:g}, {high:g}]"
    return None
