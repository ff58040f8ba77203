"""Prompts of the answer stage, and the reading of its citations; pure."""

import re
from collections.abc import Sequence

EXAMPLES = (
    "Answer each question in one sentence from its sources and cite the source in brackets.\n\n"
    "Sources:\n"
    "[1] Cycle store: The cycle store in the north yard is open from six in the morning.\n"
    "[2] Canteen: Lunch is served from noon until two; vegetarian dishes cost 5.40 euros.\n"
    "Question: What does a vegetarian lunch cost?\n"
    "Answer: A vegetarian lunch costs 5.40 euros. [2]\n\n"
    "Sources:\n"
    "[1] Schlüssel: Ersatzschlüssel gibt die Hausverwaltung montags gegen Unterschrift aus.\n"
    "Question: Wer gibt Ersatzschlüssel aus?\n"
    "Answer: Ersatzschlüssel gibt die Hausverwaltung gegen Unterschrift aus. [1]\n\n"
)
"""Few-shot examples with sources."""

_CITATION = re.compile(r"\s*\[(\d{1,3})\]")


def sources_block(passages: Sequence[str]) -> str:
    """Numbered sources, newlines folded, so that a blank line ends an example and nothing else."""
    lines = [f"[{n}] {' '.join(text.split())}" for n, text in enumerate(passages, start=1)]
    return "Sources:\n" + "\n".join(lines) + "\n"


def question_block(question: str) -> str:
    """The question and the mark after which the answer starts."""
    return f"Question: {' '.join(question.split())}\nAnswer:"


def prompt(question: str, passages: Sequence[str]) -> list[str]:
    """The answer prompt as segments: examples, sources, question."""
    return [EXAMPLES, sources_block(passages), question_block(question)]


def citations(text: str, sources: Sequence[str]) -> tuple[str, ...]:
    """Docids cited by ``[n]``, in order of first use; a number without a source stays a mark."""
    numbers = (int(number) for number in _CITATION.findall(text))
    cited = (sources[n - 1] if 1 <= n <= len(sources) else f"[{n}]" for n in numbers)
    return tuple(dict.fromkeys(cited))


def without_citations(text: str) -> str:
    """The answer's text without its marks."""
    return _CITATION.sub("", text).strip()
