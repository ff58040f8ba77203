"""Reducer, summary, verdict and text: every printed number follows from records, worked by hand."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gno_dist.backends.resolve import pools_of
from gno_dist.plan import Plan, Unit
from gno_dist.records import (
    Failed,
    Observed,
    Outcome,
    Scored,
    StageReceipt,
    UnitRecord,
    Unscored,
    Usage,
)
from gno_dist.reduce import Reducer
from gno_dist.report import markdown, text
from gno_dist.report.summary import exit_code, summarise
from gno_dist.report.verdict import verdict
from gno_dist.sweep import LoadedJob, load_job

from .conftest import SUITES, SWEEP, write_tiny

RUN = {
    "wall_s": 75.0,
    "units_run": 1,
    "calls_made": 2,
    "calls_shared": 3,
    "stage_s": {"search": 1.5},
    "pools": [{"label": "index x", "load_s": 0.5}],
    "peak_rss_bytes": 2**20,
}
NAME = "nDCG(gain=exp)@10"


def record(unit: Unit, outcomes: dict[str, Outcome], **changed: Any) -> UnitRecord:
    values: dict[str, Any] = {
        "unit_id": unit.id,
        "index": unit.number,
        "suite": unit.suite.loaded.name,
        "point": unit.point.id,
        "case_id": unit.case.id,
        "trial": unit.trial,
        "outcomes": outcomes,
        "observed": Observed(
            stage_ms={"search": 10.0 * (unit.number + 1)}, calls=2, cached_calls=1
        ),
        "receipts": (StageReceipt(stage="search", state="ran", count=3),),
    }
    return UnitRecord(**{**values, **changed})


def reduced(records: Iterable[UnitRecord]) -> Reducer:
    reducer = Reducer()
    for item in records:
        reducer.add(item)
    return reducer


@pytest.fixture
def plan(tiny_job: LoadedJob) -> Plan:
    return Plan(tiny_job, pools_of, trials=2)


def query_units(plan: Plan, label: str) -> list[Unit]:
    return [u for u in plan.units() if u.suite.loaded.name == "query" and u.point.label == label]


def summary_of(plan: Plan, records: Iterable[UnitRecord]) -> dict[str, Any]:
    reducer = reduced(records)
    summary = summarise(plan, reducer, fingerprint="f" * 64, run=RUN)
    return {**summary, "verdict": verdict(plan, reducer)}


def cell(summary: dict[str, Any], label: str) -> dict[str, Any]:
    return next(c for c in summary["cells"] if (c["suite"], c["label"]) == ("query", label))


class TestReducer:
    def test_trials_are_averaged_before_cases(self, plan: Plan) -> None:
        units = query_units(plan, "one depth=fast")  # four cases, two trials each
        values = [0.0, 1.0, 0.5, 0.5, 1.0, 1.0, 0.0, 0.0]
        records = [record(u, {NAME: Scored(value=v)}) for u, v in zip(units, values, strict=True)]
        totals = reduced(records).cells["query", units[0].point.id].measures[NAME]
        assert totals.case_means() == {"q1": 0.5, "q2": 0.5, "q3": 1.0, "q4": 0.0}

    def test_order_shows_in_no_digit(self, plan: Plan) -> None:
        units = query_units(plan, "one depth=fast")
        random.seed(5)
        records = [record(u, {NAME: Scored(value=random.random())}) for u in units]
        means = {
            tuple(
                reduced(order).cells["query", units[0].point.id].measures[NAME].case_means().items()
            )
            for order in (records, records[::-1], sorted(records, key=lambda r: r.unit_id))
        }
        assert len(means) == 1

    def test_usage_is_kept_apart(self, plan: Plan) -> None:
        unit = query_units(plan, "one depth=fast")[0]
        observed = Observed(
            judge_usage=Usage(input_tokens=1, cost_usd=0.5), system_usage=Usage(output_tokens=2)
        )
        reducer = reduced([record(unit, {}, observed=observed)])
        totals = reducer.cells["query", unit.point.id]
        assert totals.judge_usage == Usage(input_tokens=1, cost_usd=0.5)
        assert totals.system_usage == Usage(output_tokens=2)
        assert reducer.usage == Usage(input_tokens=1, output_tokens=2, cost_usd=0.5)


class TestSummary:
    def test_failed_unscored_and_missing_are_no_zeros(self, plan: Plan) -> None:
        units = query_units(plan, "one depth=fast")
        outcomes: list[Outcome] = [
            Scored(value=1.0),
            Scored(value=1.0),
            Unscored(reason="none relevant"),
            Failed(error="stage", message="gone"),
        ]
        summary = summary_of(
            plan, [record(u, {NAME: o}) for u, o in zip(units, outcomes, strict=False)]
        )
        measure = cell(summary, "one depth=fast")["measures"][NAME]
        assert measure["mean"] == 1.0, "over the one case that was scored"
        assert (measure["scored"], measure["unscored"], measure["failed"]) == (2, 1, 1)
        assert measure["planned"] == 8
        assert text.estimate(measure) == "1.000 [0.21, 1.00] (2/8)"
        assert "query | one depth=fast: 4 trials were not run" in text.missing_lines(summary)
        assert measure["worst_case"] == {"low": 0.25, "high": 1.0}, "6 of 8 trials are missing"
        assert summary["complete"] is False
        assert exit_code(summary) == 3

    def test_latency_is_by_nearest_rank(self, plan: Plan) -> None:
        units = query_units(plan, "one depth=fast")
        observed = [Observed(stage_ms={"search": float(ms)}) for ms in (1, 2, 3, 4, 5, 6, 7, 100)]
        records = [
            record(u, {NAME: Scored(value=0.5)}, observed=o)
            for u, o in zip(units, observed, strict=True)
        ]
        times = cell(summary_of(plan, records), "one depth=fast")["service_ms"]
        assert (times["p50"], times["p95"]) == (4.0, 100.0)

    def test_a_cell_without_records_has_no_numbers(self, plan: Plan) -> None:
        empty = cell(summary_of(plan, []), "two depth=fast")
        assert empty["measures"][NAME]["mean"] is None
        assert empty["measures"][NAME]["interval"] is None
        assert empty["service_ms"]["p50"] is None


def two_arms(plan: Plan, first: list[float], second: list[float]) -> list[UnitRecord]:
    records = []
    for label, values in (("one depth=fast", first), ("two depth=fast", second)):
        units = [u for u in query_units(plan, label) if u.trial == 0]
        records += [record(u, {NAME: Scored(value=v)}) for u, v in zip(units, values, strict=True)]
    return records


class TestVerdict:
    def sentences(self, plan: Plan, records: list[UnitRecord]) -> str:
        return " ".join(verdict(plan, reduced(records))[0]["sentences"])

    def test_four_cases_decide_nothing(self, plan: Plan) -> None:
        """Four differences of one sign: the exact p is 2/16, which is chance."""
        said = self.sentences(plan, two_arms(plan, [1.0, 0.9, 0.8, 1.0], [0.0, 0.0, 0.1, 0.2]))
        assert "no difference to another point is more than chance" in said
        assert "p 0.12; 4 of 4 cases differ, too few to tell" in said
        assert "is better than" not in said

    def test_equal_arms(self, plan: Plan) -> None:
        said = self.sentences(plan, two_arms(plan, [1.0, 0.5, 0.5, 0.0], [1.0, 0.5, 0.5, 0.0]))
        assert said == f"All points score the same on {NAME} in each of 4 common cases."

    def test_nothing_scored(self, plan: Plan) -> None:
        assert self.sentences(plan, []) == "No case was scored: nothing can be concluded."

    def test_one_point_only(self, plan: Plan) -> None:
        records = two_arms(plan, [1.0] * 4, [1.0] * 4)[:4]
        assert "nothing to compare" in self.sentences(plan, records)

    def test_points_without_a_common_case_are_not_compared(self, plan: Plan) -> None:
        records = two_arms(plan, [1.0] * 4, [0.0] * 4)
        assert "share no scored case" in self.sentences(plan, [*records[:2], *records[6:]])

    def test_only_common_cases_are_compared(self, plan: Plan) -> None:
        """The other arm lacks q4, its worst case: that must not help it."""
        records = two_arms(plan, [0.9, 0.9, 0.9, 0.0], [0.8, 0.8, 0.8, 0.0])[:-1]
        entry = verdict(plan, reduced(records))[0]
        assert entry["common_cases"] == 3
        assert entry["best"] == "one depth=fast"

    def test_twelve_cases_of_one_sign_decide(self, plan: Plan) -> None:
        """p = 2/2^12 over twelve cases: here the twelve come from renamed copies of four."""
        records = []
        for copy in range(3):
            for item in two_arms(plan, [1.0, 0.9, 0.8, 1.0], [0.0, 0.3, 0.1, 0.2]):
                records.append(item.model_copy(update={"case_id": f"{item.case_id}-{copy}"}))
        entry = verdict(plan, reduced(records))[0]
        assert entry["comparisons"][0]["p"] == 2 / 2**12
        assert "one depth=fast is better than two depth=fast" in entry["sentences"][0]

    def test_p_is_corrected_over_all_pairs_of_arms_that_differ(self, tmp_path: Path) -> None:
        """Three arms over eight cases, each pair of one sign: p = 2/2^8, and Holm triples it.

        The best was found by looking at every pair, so each counts; the fourth point equals
        another in every case and adds no pair.
        """
        depths = "depth: [fast, vector, hybrid, balanced, thorough]"
        sweep = SWEEP.replace(depths, "depth: [fast, vector]")
        queries = "".join(f"- {{id: q{n}, query: keys {n}, judgments: []}}\n" for n in range(8))
        suite = SUITES["query"].replace("subsets: {core: [q1, q3]}\n", "")
        path = write_tiny(tmp_path / "arms", sweep=sweep, queries=queries, query=suite)
        plan = Plan(load_job(path), pools_of)
        worth = {"one depth=fast": 1.0, "one depth=vector": 0.5, "two depth=fast": 0.5}
        records = [
            record(unit, {NAME: Scored(value=worth.get(unit.point.label, 0.0))})
            for unit in plan.units()
            if unit.suite.loaded.name == "query"
        ]
        found = {c["other"]: c for c in verdict(plan, reduced(records))[0]["comparisons"]}
        assert set(found) == {"one depth=vector", "two depth=fast", "two depth=vector"}
        assert {c["p"] for c in found.values()} == {2 / 2**8}
        assert {c["p_holm"] for c in found.values()} == {3 * 2 / 2**8}


class TestText:
    @pytest.mark.parametrize(
        ("value", "shown"),
        [(None, "–"), (0.04, "0.0 ms"), (9.96, "10.0 ms"), (12.4, "12 ms"), (12_345.0, "12.3 s")],
    )
    def test_milliseconds(self, value: float | None, shown: str) -> None:
        assert text.milliseconds(value) == shown

    @pytest.mark.parametrize(
        ("value", "shown"), [(4.25, "4.2 s"), (185.2, "3 min 05 s"), (7380.0, "2 h 03 min")]
    )
    def test_seconds(self, value: float, shown: str) -> None:
        assert text.seconds(value) == shown

    @pytest.mark.parametrize(
        ("value", "shown"), [(0.0, "$0.00"), (0.00012, "$0.00012"), (12.345, "$12.35")]
    )
    def test_dollars(self, value: float, shown: str) -> None:
        assert text.dollars(value) == shown

    def test_an_estimate_says_what_is_missing(self) -> None:
        measure = {
            "mean": 0.5,
            "interval": {"low": 0.1, "high": 0.9},
            "unscored": 1,
            "failed": 1,
            "scored": 8,
            "planned": 10,
        }
        assert text.estimate(measure) == "0.500 [0.10, 0.90] (8/10)"
        assert text.estimate({**measure, "interval": None, "mean": None}) == "– (8/10)"
        not_run = {**measure, "unscored": 0, "failed": 0}
        assert text.estimate(not_run) == "0.500 [0.10, 0.90] (8/10)", "stopped before the rest"
        assert text.estimate({**not_run, "scored": 10}) == "0.500 [0.10, 0.90]"

    def test_a_failing_gate_shows_the_gap(self) -> None:
        gate = {
            "suite": "s",
            "label": "p",
            "measure": "RR",
            "threshold": 0.7,
            "reached": 0.6999999,
            "holds": False,
        }
        (line,) = text.gate_lines({"gates": [gate, {**gate, "holds": True}]})
        assert line == "s | p: RR reached 0.6999999, the threshold is 0.7"


def test_markdown_says_what_is_partial_and_escapes_bars(plan: Plan) -> None:
    unit = query_units(plan, "one depth=fast")[0]
    summary = summary_of(plan, [record(unit, {NAME: Failed(error="x", message="a|b")})])
    summary["cells"][0]["label"] = "one|two"
    page = markdown.render(summary)
    assert f"**Partial: 1 of {plan.n_units} units.**" in page
    assert "| one\\|two |" in page
    assert "failed: x: a|b" in page
    assert f"Fingerprint `{'f' * 64}`" in page


def test_gates_use_the_pessimistic_end_and_forgive_rounding(tmp_path: Path) -> None:
    suite = SUITES["query"].replace("subsets:", 'thresholds: {"nDCG@10": 0.7}\nsubsets:')
    plan = Plan(load_job(write_tiny(tmp_path / "gated", query=suite)), pools_of)

    def gate(values: list[float]) -> dict[str, Any]:
        units = query_units(plan, "one depth=fast")
        records = [record(u, {NAME: Scored(value=v)}) for u, v in zip(units, values, strict=False)]
        gates = summary_of(plan, records)["gates"]
        return next(g for g in gates if g["label"] == "one depth=fast")

    assert gate([0.7, 0.7, 0.7, 0.7])["holds"], "the mean of 0.7s is 0.7, whatever floats say"
    assert not gate([0.7, 0.7, 0.7, 0.699])["holds"]
    short = gate([1.0, 1.0, 0.5])
    assert short["reached"] == 0.625, "the fourth case is missing: it counts as 0 here"
    assert not short["holds"]
