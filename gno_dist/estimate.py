"""What a plan will cost before it runs: stage work asked for, unique stage work, minutes; pure.

Counts follow from the plan alone. Work that depends on what a model writes (query variants, and
what they change downstream) is counted at its upper bound.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gno_dist import canonical
from gno_dist.cases import RubricCase
from gno_dist.plan import Plan, Unit
from gno_dist.records import STAGES, StageName

SECONDS: Mapping[StageName, float] = {
    "expand": 1.6,
    "search": 0.02,
    "rerank": 0.15,
    "answer": 2.5,
    "judge": 2.2,
}
"""Seconds of service a call, measured with the embedded models on one thread of a 2-core machine
(docs/benchmarks.md); larger models take in proportion to their size."""


class StageWork(NamedTuple):
    """Calls of one stage over the whole plan."""

    stage: StageName
    asked: int
    unique: int

    @property
    def minutes(self) -> float:
        """Estimated service time of the unique calls, one after another."""
        return self.unique * SECONDS[self.stage] / 60.0

    @property
    def saved(self) -> float:
        """Share of the calls that sharing saves."""
        return 1.0 - self.unique / self.asked if self.asked else 0.0


def work(plan: Plan) -> list[StageWork]:
    """Asked and unique calls of each stage, in pipeline order."""
    asked = dict.fromkeys(STAGES, 0)
    unique: dict[StageName, dict[str, int]] = {stage: {} for stage in STAGES}
    for unit in plan.units():
        for stage, key, calls in _needs(unit):
            asked[stage] += calls
            unique[stage][key] = calls
    return [StageWork(stage, asked[stage], sum(unique[stage].values())) for stage in STAGES]


def _needs(unit: Unit) -> Iterator[tuple[StageName, str, int]]:
    """(stage, what its calls depend on, number of calls) of one unit."""
    preset, pools, case = unit.point.spec.preset, unit.point.pools, unit.case
    generator = preset.generator
    drawn = unit.id if generator is not None and generator.temperature > 0 else None
    if isinstance(case, RubricCase):
        yield "judge", _key(case.identity(), pools["judge"].key, unit.suite.identity), 1
        return
    stages, text = preset.stages, case.identity()
    expanded: Any = None
    if stages.expand and generator is not None:
        expanded = _key(text, pools["generator"].key, generator.model_dump(), drawn)
        yield "expand", expanded, 1
    lists = 0
    for method, used in (("lexical", stages.lexical), ("vector", stages.vector)):
        if used:
            part = _key(text, pools["index"].spec.reads(method), preset.search.fetch)
            yield "search", part, 1
            lists += 1
            if expanded is not None:
                yield "search", _key(part, expanded), 3 if method == "lexical" else 2
    found = _key(text, pools["index"].key, stages, preset.search.model_dump(), expanded)
    if stages.rerank:
        found = _key(found, pools["reranker"].key)
        yield "rerank", found, preset.search.candidates
    if unit.suite.loaded.suite.kind == "answer" and generator is not None:
        answer = _key(found, pools["generator"].key, generator.model_dump(), drawn)
        yield "answer", answer, 1
        yield "judge", _key(answer, pools["judge"].key), 1


def _key(*parts: Any) -> str:
    return canonical.digest([list(part) if isinstance(part, tuple) else part for part in parts])
