"""IR measures as values: a measure's printed name says all it does, and parses back to it.

Knows the ranking and the judgments of one query; knows nothing of runs, files or means. Nothing is
rounded. What holds for every measure:

1. A docid that repeats in a ranking counts at its first place only, and the places close up.
2. Denominators and ideals come from the judgments, never from what was retrieved.
3. Without a relevant document there is nothing to score: ``Unscored``, unless the name says
   otherwise. An empty ranking is a 0.
4. Docids compare exactly: no case folding, trimming or Unicode normalisation.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from gno_dist.records import Outcome, Scored, ScoredDoc, Unscored

NO_RELEVANTS: Mapping[str, float | None] = {"skip": None, "zero": 0.0, "one": 1.0}
"""What a query without relevant documents is worth, by policy; None leaves it unscored."""


class Judged(NamedTuple):
    """The judgments of one query."""

    relevant: frozenset[str]
    """What Recall, P, Success, RR and AP count as relevant."""
    grades: Mapping[str, float]
    """docid -> grade, for nDCG; unjudged is 0, and a negative grade gains 0."""


def judged(relevant: Iterable[str] | None, judgments: Mapping[str, float]) -> Judged:
    """Bring a query's judgments into the form that measures take.

    Args:
        relevant: docids that count as relevant; None takes those of grade 1 or more.
        judgments: docid -> grade, fractions allowed.

    Raises:
        ValueError: a grade is NaN or infinite.
    """
    for docid, grade in judgments.items():
        if not math.isfinite(grade):
            raise ValueError(f"the grade of {docid!r} is {grade!r}, not a finite number")
    if relevant is None:
        relevant = (docid for docid, grade in judgments.items() if grade >= 1)
    return Judged(frozenset(relevant), dict(judgments))


def recall(hits: Sequence[bool], n_relevant: int, k: int) -> float:
    """Relevant documents in the first k over all relevant ones (Cleverdon 1967).

    Args:
        hits: shape ``(n,)``, n <= k: whether the document at each rank is relevant.
        n_relevant: relevant documents of the query, found or not; at least 1.
        k: the cut-off; the list's own length when there is none.
    """
    return sum(hits) / n_relevant


def precision(hits: Sequence[bool], n_relevant: int, k: int) -> float:
    """Relevant documents in the first k over k, however short the list (Cleverdon 1967)."""
    return sum(hits) / k


def success(hits: Sequence[bool], n_relevant: int, k: int) -> float:
    """1 if any of the first k is relevant, else 0 (TREC: success_k)."""
    return float(any(hits))


def reciprocal_rank(hits: Sequence[bool], n_relevant: int, k: int) -> float:
    """1 / rank of the first relevant document, 0 if there is none (Voorhees, TREC-8, 1999)."""
    return next((1.0 / rank for rank, hit in enumerate(hits, start=1) if hit), 0.0)


def average_precision(hits: Sequence[bool], n_relevant: int, k: int) -> float:
    """Mean of the precision at each relevant document's rank (Buckley and Voorhees, SIGIR 2000).

    Those beyond the cut-off add 0, as in trec_eval's map_cut, so AP@k of a perfect list is below 1
    when more than k documents are relevant.
    """
    ranks = [rank for rank, hit in enumerate(hits, start=1) if hit]
    return math.fsum(found / rank for found, rank in enumerate(ranks, start=1)) / n_relevant


def relative_gain(grade: float, top: float, gain: str) -> float:
    """The gain of a grade over a constant that depends on ``top``, the query's highest grade.

    ``exp``: (2^grade - 1) / 2^top (Burges et al., ICML 2005). ``linear``: grade / top (Järvelin
    and Kekäläinen, TOIS 2002). The constant cancels in nDCG; without it a grade of 1024 overflows.
    """
    if grade <= 0:
        return 0.0
    return grade / top if gain == "linear" else 2.0 ** (grade - top) - 2.0**-top


def ndcg(docids: Sequence[str], grades: Mapping[str, float], k: int, gain: str) -> float | None:
    """DCG of ``docids`` over the DCG of the best order of all judged documents, both at k.

    DCG = sum of gain / log2(rank + 1) (Järvelin and Kekäläinen, TOIS 2002).

    Returns:
        The ratio, or None when the ideal DCG is 0.
    """
    top = max(grades.values(), default=0.0)

    def dcg(ranked: Iterable[float]) -> float:
        return math.fsum(
            relative_gain(grade, top, gain) / math.log2(rank + 1)
            for rank, grade in enumerate(ranked, start=1)
        )

    ideal = dcg(sorted(grades.values(), reverse=True)[:k])
    return dcg(grades.get(docid, 0.0) for docid in docids) / ideal if ideal > 0 else None


class _Family(NamedTuple):
    """A row of the table of measures; a formula of None means graded, computed by ``ndcg``."""

    sentence: str
    formula: Callable[[Sequence[bool], int, int], float] | None
    needs_k: bool = True
    gains: Mapping[str, str] = {}
    """Gains that exist, the default first, with their formulas."""


FAMILIES: Mapping[str, _Family] = {
    "Recall": _Family("Share of the relevant documents that stand {where}", recall),
    "P": _Family("Relevant documents {where}, divided by {k}", precision),
    "Success": _Family("1 if any relevant document stands {where}, else 0", success),
    "RR": _Family(
        "1 / rank of the first relevant document {where}, 0 without one", reciprocal_rank, False
    ),
    "AP": _Family(
        "Precision at each relevant document {where}, summed, divided by how many are relevant",
        average_precision,
        needs_k=False,
    ),
    "nDCG": _Family(
        "Discounted gain ({gain}) {where}, divided by that of the ideal order",
        None,
        gains={"exp": "2^grade - 1", "linear": "grade"},
    ),
}
_BY_NAME = {name.lower(): name for name in FAMILIES} | {"mrr": "RR"}  # MRR is the mean of RR


@dataclass(frozen=True)
class Measure:
    """A measure of one ranking; ``str`` gives its full name, which ``parse_measure`` reads.

    Raises:
        ValueError: the family is unknown, or lacks or does not take one of the parameters.
    """

    family: str
    k: int | None = None
    """Only the first k places count; None is the whole list (RR and AP only)."""
    gain: str | None = None
    """nDCG only: ``exp`` or ``linear``."""
    no_relevants: str = "skip"
    """A key of ``NO_RELEVANTS``."""
    canonical: ClassVar[bool] = True
    """Computed from the ranking alone, so part of the fingerprint."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"there is no family {self.family!r}")
        family = FAMILIES[self.family]
        if self.k is None and family.needs_k:
            raise ValueError(f"{self.family} needs a cut-off, such as {self.family}@10")
        if self.k is not None and self.k < 1:
            raise ValueError(f"the cut-off must be 1 or more, not {self.k}")
        if self.gain not in (family.gains or (None,)):
            takes = f"one of {', '.join(family.gains)}" if family.gains else "not a parameter"
            raise ValueError(f"gain is {takes} in {self.family}, not {self.gain!r}")
        if self.no_relevants not in NO_RELEVANTS:
            names = ", ".join(NO_RELEVANTS)
            raise ValueError(f"no_relevants is one of {names}, not {self.no_relevants!r}")

    def __str__(self) -> str:
        parameters = [f"gain={self.gain}"] if self.gain else []
        if self.no_relevants != "skip":
            parameters.append(f"no_relevants={self.no_relevants}")
        inside = f"({','.join(parameters)})" if parameters else ""
        return f"{self.family}{inside}" + ("" if self.k is None else f"@{self.k}")

    @property
    def description(self) -> str:
        """One sentence that says what is computed."""
        family = FAMILIES[self.family]
        where = "in the whole list" if self.k is None else f"in the first {self.k}"
        gain = family.gains.get(self.gain or "")
        sentence = family.sentence.format(where=where, k=self.k, gain=gain)
        worth = NO_RELEVANTS[self.no_relevants]
        without = "unscored" if worth is None else f"{worth:g}"
        return f"{sentence}; {without} for a query without relevant documents."

    def outcome(self, ranking: Sequence[str], judged: Judged) -> Outcome:
        """Measure one ranking: ``Scored`` in [0, 1], or ``Unscored`` without a relevant document.

        Args:
            ranking: docids, best first, of any length; the order is taken as it is.
            judged: the judgments of the same query.
        """
        value = self._value(list(dict.fromkeys(ranking))[: self.k], judged)
        if value is None:
            value = NO_RELEVANTS[self.no_relevants]
        if value is None:
            return Unscored(reason="no relevant documents")
        # Grades that differ in their last bits can round to a ratio just above 1.
        return Scored(value=min(1.0, value))

    def _value(self, docids: Sequence[str], judged: Judged) -> float | None:
        k = self.k or len(docids)
        formula = FAMILIES[self.family].formula
        if formula is None:
            return ndcg(docids, judged.grades, k, self.gain or "")
        if not judged.relevant:
            return None
        return formula([docid in judged.relevant for docid in docids], len(judged.relevant), k)


_NAME = re.compile(r"\s*([A-Za-z]+)\s*(?:\(([^()]*)\))?\s*(?:@\s*([0-9]{1,9}))?\s*")
_PARAMETER = re.compile(r"""\s*(gain|no_relevants)\s*=\s*(["']?)\s*([A-Za-z]+)\s*\2\s*""")


def parse_measure(text: str) -> Measure:
    """Read a measure's name, such as ``Recall@5``, ``RR`` or ``nDCG(gain=exp)@10``.

    Also read: ``MRR@10`` (as ``RR@10``), ``nDCG@10`` (as ``nDCG(gain=exp)@10``), any case of the
    family's name, spaces, quotes around a parameter, and ``no_relevants=skip|zero|one``.

    Raises:
        ValueError: names the text, what is wrong with it and the measures that exist.
    """
    try:
        return _parsed(text)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not a measure: {exc}; measures: {_listing()}") from None


def _parsed(text: str) -> Measure:
    match = _NAME.fullmatch(text)
    if match is None:
        raise ValueError("the form is family(parameter=value)@k")
    name, inside, k = match.groups()
    family = _BY_NAME.get(name.lower())
    if family is None:
        raise ValueError(f"there is no family {name!r}")
    given: dict[str, str] = {}
    for part in inside.split(",") if inside is not None else ():
        parameter = _PARAMETER.fullmatch(part)
        if parameter is None or parameter[1] in given:
            raise ValueError(f"{part.strip()!r} is not a parameter, or stands twice")
        given[parameter[1]] = parameter[3]
    default = next(iter(FAMILIES[family].gains), None)
    gain, no_relevants = given.get("gain", default), given.get("no_relevants", "skip")
    return Measure(family, int(k) if k else None, gain, no_relevants)


def _listing() -> str:
    return ", ".join(
        name
        + (f"(gain={'|'.join(family.gains)})" if family.gains else "")
        + ("@k" if family.needs_k else "[@k]")
        for name, family in FAMILIES.items()
    )


def rank_docs(
    scores: Mapping[str, float] | Iterable[tuple[str, float]], limit: int | None = None
) -> list[ScoredDoc]:
    """Order documents by (-score, docid): the one place where this project orders by score.

    Args:
        scores: docid -> score, or pairs; of a docid that repeats the best score counts.
        limit: how many to return; None returns all.

    Raises:
        ValueError: a score is NaN or infinite, or ``limit`` is negative.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be 0 or more, not {limit}")
    best: dict[str, float] = {}
    for docid, score in scores.items() if isinstance(scores, Mapping) else scores:
        if not math.isfinite(score):
            raise ValueError(f"the score of {docid!r} is {score!r}, not a finite number")
        # Adding 0.0 turns -0.0 into 0.0: equal scores must be stored as equal bytes.
        best[docid] = max(best.get(docid, -math.inf), float(score) + 0.0)
    ordered = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [ScoredDoc(docid, score) for docid, score in ordered[:limit]]


def duplicate_docids(ranking: Iterable[str]) -> tuple[str, ...]:
    """Docids that stand in a ranking more than once, in order of first place: a diagnostic."""
    return tuple(docid for docid, count in Counter(ranking).items() if count > 1)
