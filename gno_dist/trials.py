"""From a unit to its pipeline's setting, and from a finished pipeline to the unit's record; pure.

``rescore`` computes a record's outcomes again from what the record holds, which is how every
number of a job can be checked without running anything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gno_dist import canonical
from gno_dist.cases import Case
from gno_dist.judges import labels
from gno_dist.pipelines import Setting
from gno_dist.plan import Plan, PlannedSuite, Point, Unit
from gno_dist.records import Observed, Outcome, StageReceipt, UnitRecord, canonical_part
from gno_dist.scoring import Outputs, broken_stage, score
from gno_dist.trace import Trace

Passage = Callable[[str, int], str]


def setting_of(unit: Unit, passage: Passage) -> Setting:
    """What the unit's pipeline needs beside its case."""
    return Setting(
        preset=unit.point.spec.preset,
        pools=unit.point.pools,
        passage=passage,
        questionnaire=unit.suite.questionnaire,
        seed_of=unit.seed,
    )


def record_of(unit: Unit, trace: Trace) -> UnitRecord:
    """The record of a finished pipeline."""
    receipts = trace.all_receipts()
    observed = Observed(
        stage_ms=trace.stage_ms,
        calls=trace.calls,
        cached_calls=trace.cached_calls,
        judge_usage=trace.judge_usage,
        system_usage=trace.system_usage,
        details=trace.details,
    )
    outputs = Outputs(
        trace.ranking,
        trace.answer,
        trace.judgement,
        _judge_model(unit.point),
        observed.service_ms,
    )
    return UnitRecord(
        unit_id=unit.id,
        index=unit.number,
        suite=unit.suite.loaded.name,
        point=unit.point.id,
        case_id=unit.case.id,
        trial=unit.trial,
        ranking=trace.ranking,
        expansion=trace.expansion,
        answer=trace.answer,
        judgement=trace.judgement,
        receipts=receipts,
        outcomes=_outcomes(unit.suite, unit.case, outputs, receipts),
        observed=observed,
    )


def rescore(
    suite: PlannedSuite, point: Point, case: Case, record: UnitRecord
) -> dict[str, Outcome]:
    """Outcomes of all rubrics and measures of a record, computed from its outputs."""
    outputs = Outputs(
        record.ranking,
        record.answer,
        record.judgement,
        _judge_model(point),
        record.observed.service_ms,
    )
    return _outcomes(suite, case, outputs, record.receipts)


def _judge_model(point: Point) -> str | None:
    judge = point.pools.get("judge")
    return str(judge.spec.identity.get("model_sha256", "")) if judge else None


def _outcomes(
    suite: PlannedSuite, case: Case, outputs: Outputs, receipts: Sequence[StageReceipt]
) -> dict[str, Outcome]:
    rubrics = suite.questionnaire.rubrics
    broken = broken_stage(receipts)
    judged: dict[str, Outcome] = (
        dict.fromkeys(rubrics, broken) if broken else labels.outcomes(rubrics, outputs.judgement)
    )
    return {**judged, **score(suite.measures, case, outputs, receipts)}


def observed_measures(suite: PlannedSuite) -> frozenset[str]:
    """Names of the suite's measures that are observations, never hashed."""
    return frozenset(str(measure) for measure in suite.measures if not measure.canonical)


def fingerprint(plan: Plan, records: Iterable[Mapping[str, Any]]) -> str:
    """sha256 over the canonical parts of plain records in plan order, 64 hex digits."""
    observed = {suite.loaded.name: observed_measures(suite) for suite in plan.suites}
    return canonical.digest_stream(
        canonical.canonical_parsed(canonical_part(record, observed[record["suite"]])) + b"\n"
        for record in records
    )
