"""Suites: what a user writes to say which cases are measured, and how.

Knows the file formats and checks them completely before anything runs. Knows nothing of presets,
points or backends.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, JsonValue

from gno_dist import canonical
from gno_dist.cases import CASE_MODELS, AskCase, Case, Query, RubricCase
from gno_dist.corpus import Corpus, CorpusRef, load_corpus
from gno_dist.loading import Collector, UserModel
from gno_dist.measures import duplicate_docids
from gno_dist.rubric import ChoiceRubric, Rubric, threshold_problem
from gno_dist.scoring import parse_any

Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
SuiteKind = Literal["retrieval", "answer", "rubric"]


class Suite(UserModel):
    """A suite file."""

    version: Literal[1]
    name: Slug
    kind: SuiteKind
    description: str = ""
    corpus: CorpusRef | None = None
    """Retrieval and answer suites: the documents that are searched."""
    queries: str | None = None
    """Retrieval suites: a .json, .jsonl or .yaml file with a list of queries."""
    cases: str | list[dict[str, JsonValue]] | None = None
    """Answer and rubric suites: a file like the above, or the cases themselves."""
    measures: list[str] = []
    rubrics: dict[Slug, Rubric] = {}
    thresholds: dict[str, float] = {}
    """Measure, boolean or score rubric -> the least mean of a cell."""
    subsets: dict[Slug, list[str]] = {}
    """Named lists of case ids, for sweeps that run expensive points on fewer cases."""
    settings: dict[str, JsonValue] = {}
    """Dotted settings that this suite fixes at every point, such as ``depth: vector``."""
    trials: int = Field(default=1, ge=1, le=1000)


class LoadedSuite(NamedTuple):
    """A checked suite with everything it refers to, except the corpus' text in an index."""

    path: Path
    suite: Suite
    cases: Sequence[Case]
    corpus: Corpus | None

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.suite.name

    def case_ids(self) -> tuple[str, ...]:
        """Case ids in file order."""
        return tuple(case.id for case in self.cases)

    def identity(self) -> dict[str, Any]:
        """What of the suite (beside its cases) decides the stages' results."""
        return {
            "kind": self.suite.kind,
            "corpus": self.corpus.digest if self.corpus else None,
            "rubrics": {
                name: rubric.model_dump(mode="json") for name, rubric in self.suite.rubrics.items()
            },
            # Canonical JSON sorts keys, and the judge is shown a choice's options in their order.
            "options": {
                name: list(rubric.criteria)
                for name, rubric in self.suite.rubrics.items()
                if isinstance(rubric, ChoiceRubric)
            },
        }


def load_suite(
    path: Path, problems: Collector, corpora: dict[tuple[str, str | None], Corpus | None]
) -> LoadedSuite | None:
    """Read a suite and all it refers to; None when problems were noted.

    Args:
        path: the suite file; the paths in it are relative to its folder.
        problems: where everything wrong is noted.
        corpora: corpora read so far by (folder, collection); shared between suites.
    """
    before = len(problems.problems)
    document = problems.read(path)
    suite = problems.validate(Suite, document, path) if document is not None else None
    if suite is None:
        return None
    cases = _load_cases(suite, path, problems)
    corpus = _load_corpus(suite, path, problems, corpora)
    _check_shape(suite, path, problems)
    _check_measures(suite, path, problems)
    valid = [case for case in cases or () if case is not None]
    if cases is not None:
        _check_cases(suite, cases, path, problems)
        if corpus is not None:
            _check_documents(suite, valid, corpus, path, problems)
    if len(problems.problems) > before or cases is None:
        return None
    return LoadedSuite(path, suite, valid, corpus)


def _source(suite: Suite) -> tuple[str, str | list[dict[str, JsonValue]] | None]:
    """The field that names this kind's cases, and what it says."""
    retrieval = suite.kind == "retrieval"
    return ("queries", suite.queries) if retrieval else ("cases", suite.cases)


def _load_cases(suite: Suite, path: Path, problems: Collector) -> list[Case | None] | None:
    """The cases in file order, None where one is wrong; None when there is no list at all."""
    field, source = _source(suite)
    if source is None:
        problems.add(path, field, f"is required in a suite of kind {suite.kind!r}")
        return None
    origin, place, items = path, field, source
    if isinstance(source, str):
        origin, place = path.parent / source, ""
        items = problems.read(origin)
        if items is None:
            return None
    if not isinstance(items, list) or not items:
        problems.add(origin, place, "must be a list with at least one case")
        return None
    model = CASE_MODELS[suite.kind]
    return [
        problems.validate(model, item, origin, f"{place}[{index}]")
        for index, item in enumerate(items)
    ]


def _load_corpus(
    suite: Suite,
    path: Path,
    problems: Collector,
    corpora: dict[tuple[str, str | None], Corpus | None],
) -> Corpus | None:
    if suite.corpus is None:
        return None
    folder = (path.parent / suite.corpus.path).resolve()
    key = (str(folder), suite.corpus.collection)
    if key not in corpora:
        if folder.is_dir():
            corpora[key] = load_corpus(folder, suite.corpus, problems)
        else:
            problems.add(path, "corpus.path", f"no folder at {suite.corpus.path!r}")
            corpora[key] = None
    return corpora[key]


def _check_shape(suite: Suite, path: Path, problems: Collector) -> None:
    other = "cases" if suite.kind == "retrieval" else "queries"
    if getattr(suite, other) is not None:
        problems.add(path, other, f"is not read in a suite of kind {suite.kind!r}")
    if suite.kind == "rubric":
        if not suite.rubrics:
            problems.add(path, "rubrics", "a suite of kind 'rubric' needs at least one")
        if suite.corpus is not None:
            problems.add(path, "corpus", "a suite of kind 'rubric' has no corpus")
        return
    if suite.corpus is None:
        problems.add(path, "corpus", f"is required in a suite of kind {suite.kind!r}")
    if suite.rubrics:
        problems.add(path, "rubrics", f"belong to a suite of kind 'rubric', not {suite.kind!r}")
    if not suite.measures:
        problems.add(path, "measures", "at least one is needed, such as 'nDCG(gain=exp)@10'")


def _check_measures(suite: Suite, path: Path, problems: Collector) -> None:
    names = set()
    for index, text in enumerate(suite.measures):
        try:
            measure = parse_any(text)
        except ValueError as exc:
            problems.add(path, f"measures[{index}]", str(exc))
            continue
        if suite.kind not in measure.kinds:
            problems.add(
                path, f"measures[{index}]", f"{text!r} cannot be computed in a {suite.kind} suite"
            )
        if str(measure) in names:
            problems.add(path, f"measures[{index}]", f"{measure} stands twice")
        names.add(str(measure))
    for key, threshold in suite.thresholds.items():
        if key in suite.rubrics:
            problem = threshold_problem(suite.rubrics[key], threshold)
        else:
            problem = _measure_threshold_problem(key, threshold, names)
        if problem:
            problems.add(path, f"thresholds.{key}", problem)


def _measure_threshold_problem(key: str, threshold: float, names: set[str]) -> str | None:
    try:
        known = str(parse_any(key)) in names
    except ValueError:
        known = False
    if not known:
        return f"no measure or rubric of that name in this suite; it has {sorted(names)}"
    return None if 0 <= threshold <= 1 else f"{threshold!r} lies outside [0, 1]"


def _check_cases(
    suite: Suite, cases: Sequence[Case | None], path: Path, problems: Collector
) -> None:
    field, source = _source(suite)
    origin, place = (path.parent / source, "") if isinstance(source, str) else (path, field)
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if case is None:
            continue
        where = f"{place}[{index}]"
        if first.setdefault(case.id, index) != index:
            other = f"{place}[{first[case.id]}]"
            problems.add(origin, f"{where}.id", f"{case.id!r} stands at {other} already")
        try:
            canonical.canonical_json(case.model_dump(mode="json"))
        except ValueError as exc:
            problems.add(origin, where, str(exc))
    for name, ids in suite.subsets.items():
        if not ids:
            problems.add(path, f"subsets.{name}", "is empty")
        for case_id in ids:
            if case_id not in first and None not in cases:
                problems.add(path, f"subsets.{name}", f"no case has the id {case_id!r}")


def _check_documents(
    suite: Suite, cases: Sequence[Case], corpus: Corpus, path: Path, problems: Collector
) -> None:
    known = {doc.docid for doc in corpus.docs}
    _, source = _source(suite)
    origin = path.parent / source if isinstance(source, str) else path
    for case in cases:
        if isinstance(case, RubricCase):
            continue
        if case.collection is not None and case.collection not in corpus.collections:
            problems.add(
                origin,
                f"{case.id}.collection",
                f"{case.collection!r} is none of {sorted(corpus.collections)}",
            )
        for field, docids in _named_documents(case).items():
            for docid in docids:
                if docid not in known:
                    problems.add(origin, f"{case.id}.{field}", f"no document {docid!r} in corpus")
            for docid in duplicate_docids(docids):
                problems.add(origin, f"{case.id}.{field}", f"document {docid!r} stands twice")


def _named_documents(case: Query | AskCase) -> Mapping[str, Sequence[str]]:
    if isinstance(case, AskCase):
        return {"relevant": case.relevant}
    return {
        "relevant": case.relevant or [],
        "judgments": [item.docid for item in case.judgments],
    }
