"""The per-case view of a job: what each trial was asked, gave and scored; pure."""

from collections.abc import Iterable, Iterator

from gno_dist.cases import AskCase, Case, Query
from gno_dist.plan import Plan
from gno_dist.records import Outcome, Scored, StageReceipt, UnitRecord, Unscored
from gno_dist.report.text import milliseconds, number
from gno_dist.report.verdict import primary_measure


def worst_first(plan: Plan, records: Iterable[UnitRecord], limit: int) -> list[UnitRecord]:
    """The trials with the lowest primary value; failed ones first, then unscored, then by value."""
    primary = {suite.loaded.name: primary_measure(suite) for suite in plan.suites}

    def badness(record: UnitRecord) -> tuple[int, float, int]:
        outcome = record.outcomes.get(primary[record.suite])
        if isinstance(outcome, Scored):
            return (2, outcome.value, record.index)
        return (1 if isinstance(outcome, Unscored) else 0, 0.0, record.index)

    return sorted(records, key=badness)[:limit]


def render(plan: Plan, records: Iterable[UnitRecord]) -> Iterator[str]:
    """Lines for the console, in the order of the records."""
    cases = {
        (suite.loaded.name, case.id): case for suite in plan.suites for case in suite.loaded.cases
    }
    labels = {point.id: point.label for suite in plan.suites for point in suite.points}
    for record in records:
        case = cases[record.suite, record.case_id]
        trial = f" trial {record.trial}" if record.trial else ""
        yield f"{record.suite} | {labels[record.point]} | {record.case_id}{trial}"
        yield f"  {_question(case)}"
        yield from _outputs(record, case)
        for name, outcome in record.outcomes.items():
            yield f"  {name}: {_outcome(outcome)}"
        ran = ", ".join(map(_receipt, record.receipts))
        yield f"  {ran}; {milliseconds(record.observed.service_ms)}"
        for detail in record.observed.details:
            yield f"  {detail}"
        yield ""


def _receipt(receipt: StageReceipt) -> str:
    count = "" if receipt.count is None else f" {receipt.count}"
    reason = f" ({receipt.reason})" if receipt.reason else ""
    return f"{receipt.stage} {receipt.state}{count}{reason}"


def _question(case: Case) -> str:
    if isinstance(case, Query):
        return f"query: {case.query}"
    if isinstance(case, AskCase):
        return f"question: {case.question}"
    return f"input: {case.input} | output: {case.output}"


def _outputs(record: UnitRecord, case: Case) -> Iterator[str]:
    if record.expansion is not None:
        variants = [*record.expansion.lexical_queries, *record.expansion.vector_queries]
        yield f"  expanded: {' | '.join(variants)}"
    if record.ranking is not None and isinstance(case, Query | AskCase):
        grades = case.judged().grades
        shown = [f"{doc.docid}({grades.get(doc.docid, 0):g})" for doc in record.ranking[:5]]
        yield f"  ranking (grade): {', '.join(shown)}"
    if record.answer is not None:
        yield f"  answer: {record.answer.text}"


def _outcome(outcome: Outcome) -> str:
    if isinstance(outcome, Scored):
        return number(outcome.value)
    if isinstance(outcome, Unscored):
        return f"unscored ({outcome.reason})"
    return f"FAILED ({outcome.error}: {outcome.message})"
