"""Deterministic scorers besides the IR measures; pure functions of one trial's output."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

Decay = Literal["specification", "gno"]

_DECAY_SPANS: Mapping[str, float] = {"specification": 1.0, "gno": 2.0}
"""How many budgets beyond the budget the score takes to fall from 1 to 0."""


def latency_score(duration_ms: float, budget_ms: float, *, decay: Decay = "specification") -> float:
    """Score a duration against a soft budget: 1 within it, falling linearly to 0 beyond it.

    ``specification``: max(0, 1 - (d - b) / b), which is 0 at twice the budget.
    ``gno``: max(0, 1 - (d - b) / (2 b)), which is 0 at three times the budget; what the GNO
    project computes in practice.

    Args:
        duration_ms: d, milliseconds.
        budget_ms: b, milliseconds.
        decay: which of the two formulas.

    Raises:
        ValueError: the duration is negative, the budget is not above 0, either is not finite, or
            there is no such decay.
    """
    if not math.isfinite(duration_ms) or duration_ms < 0:
        raise ValueError(f"duration_ms must be finite and 0 or more, not {duration_ms!r}")
    if not math.isfinite(budget_ms) or budget_ms <= 0:
        raise ValueError(f"budget_ms must be finite and greater than 0, not {budget_ms!r}")
    if decay not in _DECAY_SPANS:
        raise ValueError(f"decay is one of {', '.join(_DECAY_SPANS)}, not {decay!r}")
    if duration_ms <= budget_ms:
        return 1.0
    return max(0.0, 1.0 - (duration_ms - budget_ms) / budget_ms / _DECAY_SPANS[decay])


def has_citations(citations: Iterable[str]) -> float:
    """1 if an answer cites anything, else 0; whether the cited source exists is not asked."""
    return float(any(True for _ in citations))


def valid_citations(citations: Iterable[str], sources: Iterable[str]) -> float | None:
    """The share of cited docids that are among the sources the answer was given.

    A docid that is cited repeatedly counts once, so that repeating a good citation cannot hide a
    bad one.

    Returns:
        A share in [0, 1], or None when nothing is cited: there is nothing to score.
    """
    cited = frozenset(citations)
    return len(cited & frozenset(sources)) / len(cited) if cited else None
