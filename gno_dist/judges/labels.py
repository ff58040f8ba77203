"""Rubrics through label probabilities: every rubric of a case in one call; pure.

The case is the shared prefix, each question a suffix that ends where the label stands. Boolean
questions are asked in both label orders, choices in every cyclic shift; an ordinal scale keeps its
order. Label probabilities are renormalised over the labels; the mass the labels had is kept, since
a low mass says that the model did not answer the question.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gno_dist.canonical import canonical_json, embed
from gno_dist.records import Outcome, Unscored
from gno_dist.rubric import BooleanRubric, ChoiceRubric, Rubric, ScoreRubric, outcome

INTRODUCTION = "A case is shown first. Then a question about it is answered with one word.\n\n"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def state_segments(state: Mapping[str, Any]) -> list[str]:
    """The case as prompt segments, fields in their given order."""
    lines = [f"{name.capitalize()}: {_text(value)}\n" for name, value in state.items()]
    return [INTRODUCTION + "".join(lines)]


def questions(rubrics: Mapping[str, Rubric]) -> list[dict[str, Any]]:
    """All rubrics of a case as questions, sorted by id: one entry a label order.

    Returns:
        ``{"id", "suffix", "labels"}``; ``labels`` in the rubric's own order (true, false; levels;
        options), however the suffix presents them.
    """
    asked: list[dict[str, Any]] = []
    for name in sorted(rubrics):
        asked.extend({"id": name, **form} for form in _forms(rubrics[name]))
    return asked


class Questionnaire:
    """A suite's rubrics as they are asked about every case, prepared once."""

    def __init__(self, rubrics: Mapping[str, Rubric]) -> None:
        self.rubrics = rubrics
        self.asked = questions(rubrics)
        self.embedded = embed([{"suffix": q["suffix"], "labels": q["labels"]} for q in self.asked])
        """What goes into a call."""


def _forms(rubric: Rubric) -> list[dict[str, Any]]:
    head = f"\nQuestion: {rubric.instructions}\n"
    if isinstance(rubric, BooleanRubric):
        if rubric.criteria is not None:
            head += f"Yes: {rubric.criteria.true or ''}\nNo: {rubric.criteria.false or ''}\n"
        return [
            {"suffix": f"{head}Answer ({order}):", "labels": [" yes", " no"]}
            for order in ("yes or no", "no or yes")
        ]
    if isinstance(rubric, ScoreRubric):
        marks = LETTERS[: len(rubric.criteria)]  # a digit after a space is two tokens for some
        levels = "".join(f"{m}: {text}\n" for m, text in zip(marks, rubric.criteria, strict=True))
        return [{"suffix": f"{head}{levels}Letter:", "labels": [f" {mark}" for mark in marks]}]
    return _choice_forms(rubric, head)


def _choice_forms(rubric: ChoiceRubric, head: str) -> list[dict[str, Any]]:
    options = list(rubric.criteria.items())
    forms = []
    for shift in range(len(options)):
        letter = {(i + shift) % len(options): LETTERS[i] for i in range(len(options))}
        shown = sorted(range(len(options)), key=letter.__getitem__)
        lines = "".join(
            f"{letter[i]}: {options[i][0]}{f' - {options[i][1]}' if options[i][1] else ''}\n"
            for i in shown
        )
        labels = [f" {letter[i]}" for i in range(len(options))]
        forms.append({"suffix": f"{head}{lines}Letter:", "labels": labels})
    return forms


def answers(
    rubrics: Mapping[str, Rubric], asked: Sequence[Mapping[str, Any]], replies: Sequence[Any]
) -> dict[str, dict[str, Any]]:
    """Answers by rubric id, from log probabilities in the order of ``questions``.

    Args:
        rubrics: the questions asked.
        asked: what ``questions`` gave.
        replies: parallel to it, log probabilities of the labels over the whole vocabulary.

    Returns:
        ``{"type", "probability" | "score" | "choice", "probabilities", "label_mass"}`` a rubric;
        ``label_mass`` is the least over its label orders.
    """
    by_id: dict[str, list[Sequence[float]]] = {}
    for question, logprobs in zip(asked, replies, strict=True):
        by_id.setdefault(question["id"], []).append(logprobs)
    return {name: _answer(rubrics[name], orders) for name, orders in by_id.items()}


def _answer(rubric: Rubric, orders: Sequence[Sequence[float]]) -> dict[str, Any]:
    mass = min([math.fsum([math.exp(value) for value in order]) for order in orders])
    probabilities = _log_mean([_normalised(order) for order in orders])
    result: dict[str, Any] = {"type": rubric.type, "label_mass": min(1.0, mass)}
    if isinstance(rubric, BooleanRubric):
        return {**result, "probability": probabilities[0]}
    if isinstance(rubric, ScoreRubric):
        expected = math.fsum(level * p for level, p in enumerate(probabilities))
        expected = min(expected, len(probabilities) - 1.0)  # they sum to 1 only but for rounding
        named = {str(level): p for level, p in enumerate(probabilities)}
        return {**result, "score": expected, "probabilities": named}
    options = list(rubric.criteria)
    best = max(range(len(options)), key=lambda i: (probabilities[i], -i))
    named = dict(zip(options, probabilities, strict=True))
    return {**result, "choice": options[best], "probabilities": named}


def _normalised(logprobs: Sequence[float]) -> list[float]:
    top = max(logprobs)
    total = top + math.log(math.fsum([math.exp(value - top) for value in logprobs]))
    return [value - total for value in logprobs]


def _log_mean(orders: Sequence[Sequence[float]]) -> list[float]:
    if len(orders) == 1:
        return [math.exp(value) for value in orders[0]]
    means = [math.fsum(column) / len(orders) for column in zip(*orders, strict=True)]
    return [math.exp(value) for value in _normalised(means)]


def outcomes(
    rubrics: Mapping[str, Rubric], judgement: Mapping[str, Any] | None
) -> dict[str, Outcome]:
    """One outcome a rubric, in the suite's order; a missing answer is unscored."""
    if judgement is None:
        return {name: Unscored(reason="the judge gave no answer") for name in rubrics}
    return {name: outcome(rubric, judgement.get(name)) for name, rubric in rubrics.items()}


def _text(value: Any) -> str:
    """Text as it is, else canonical JSON: equal cases must make equal prompts."""
    return value if isinstance(value, str) else canonical_json(value).decode("utf-8")
