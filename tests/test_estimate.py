"""What a plan asks for and what is different in it, counted by hand for the tiny job."""

import asyncio
from pathlib import Path

import pytest

from gno_dist.backends.resolve import pools_of
from gno_dist.engine import Events, Execution, execute
from gno_dist.estimate import SECONDS, StageWork, work
from gno_dist.placement import Machine
from gno_dist.plan import Plan
from gno_dist.pool import InlinePool
from gno_dist.records import STAGES
from gno_dist.sweep import LoadedJob, load_job

from .conftest import PRESETS, SUITES, write_tiny


def counted(job: LoadedJob, trials: int | None = None) -> dict[str, tuple[int, int]]:
    found = work(Plan(job, pools_of, trials))
    assert tuple(one.stage for one in found) == STAGES
    return {one.stage: (one.asked, one.unique) for one in found}


def job_of(folder: Path, entry: str, names: str = "one, two", **replaced: str) -> LoadedJob:
    sweep = f"""
version: 1
name: part
presets_file: presets.yaml
presets: [{names}]
suites: [{entry}]
"""
    return load_job(write_tiny(folder, sweep=sweep, **replaced))


def test_the_tiny_sweep_by_hand(tiny_job: LoadedJob) -> None:
    assert counted(tiny_job) == {
        # Asked: 4 queries at `thorough` and 2 questions, for 2 presets = 12. The presets'
        # generators differ, so nothing is shared.
        "expand": (12, 12),
        # A query asks for 1 list at fast, 1 at vector, 2 at hybrid, 2 at balanced, and at
        # thorough 2 + 3 lexical variants + 2 vector texts = 7: 13 in all, for 4 queries and
        # 2 presets 104. A question is thorough: 7 for 2 questions and 2 presets = 28.
        # Different: 2 originals for each of 4 queries and 2 questions = 12; 5 variants for each
        # of them and each generator = 60.
        "search": (132, 72),
        # 8 candidates at balanced and thorough for 4 queries and 2 presets = 128, and for 2
        # questions and 2 presets = 32. Different: balanced is the same in both presets, so
        # 32 + 64 + 32.
        "rerank": (160, 128),
        # 2 questions for 2 presets, whose generators differ.
        "answer": (4, 4),
        # 4 answers; 2 rubric cases for 2 presets, whose judges are the same.
        "judge": (8, 6),
    }


def test_a_run_makes_no_more_calls_than_estimated(tiny_job: LoadedJob, tmp_path: Path) -> None:
    plan = Plan(tiny_job, pools_of)
    (tmp_path / "job").mkdir()
    execution = Execution(InlinePool, Machine(cores=2, memory_bytes=64 * 2**30), None)
    summary = asyncio.run(execute(plan, tmp_path / "job", execution, Events()))
    assert 0 < summary["run"]["calls_made"] <= sum(one.unique for one in work(plan))


def test_presets_that_differ_in_nothing_read_share_everything(tmp_path: Path) -> None:
    job = job_of(tmp_path, "{suite: query.yaml, axes: {depth: [fast, hybrid]}}")
    # 4 queries at fast (1 list) and hybrid (2 lists) for 2 presets = 24; 4 + 4 different.
    assert counted(job)["search"] == (24, 8)


def test_lists_of_another_length_are_other_lists(tmp_path: Path) -> None:
    job = job_of(
        tmp_path, "{suite: query.yaml, axes: {depth: [fast], search.fetch: [5, 9]}}", "one"
    )
    assert counted(job)["search"] == (8, 8)
    # What is cut after fusion is not asked of the index.
    job = job_of(
        tmp_path, "{suite: query.yaml, axes: {depth: [fast], search.limit: [5, 9]}}", "one"
    )
    assert counted(job)["search"] == (8, 4)


def test_candidates_multiply_reranking(tmp_path: Path) -> None:
    entry = "{suite: query.yaml, axes: {depth: [balanced], search.candidates: [2, 5]}}"
    # 4 queries x (2 + 5), all at most once for each setting.
    assert counted(job_of(tmp_path, entry, "one"))["rerank"] == (28, 28)


@pytest.mark.parametrize(
    ("axis", "expand", "answer", "judge"),
    [
        # Other rerankers order the sources differently: the answers are not the same call.
        ("reranker.model: [one, other]", (4, 2), (4, 4), (4, 4)),
        # Another judge reads the same answers.
        ("judge.model: [one, other]", (4, 2), (4, 2), (4, 4)),
        ("generator.model: [one, other]", (4, 4), (4, 4), (4, 4)),
        # More sources change the prompt, at its upper bound also the expansion.
        ("generator.sources: [1, 2]", (4, 4), (4, 4), (4, 4)),
        # Expansion and answers do not depend on it, but answers follow from what was found.
        ("search.rrf_k: [10, 60]", (4, 2), (4, 4), (4, 4)),
    ],
)
def test_what_an_answer_depends_on(
    tmp_path: Path, axis: str, expand: object, answer: object, judge: object
) -> None:
    # 2 questions at 2 points of one preset.
    found = counted(job_of(tmp_path, f"{{suite: ask.yaml, axes: {{{axis}}}}}", "one"))
    assert (found["expand"], found["answer"], found["judge"]) == (expand, answer, judge)


def test_trials_share_everything_unless_something_is_drawn(tmp_path: Path) -> None:
    entry = "{suite: ask.yaml}"
    # 2 questions x 3 trials.
    assert counted(job_of(tmp_path, entry, "one"), 3)["answer"] == (6, 2)
    drawing = PRESETS.replace("generator: {", "generator: {temperature: 0.7, ")
    assert counted(job_of(tmp_path, entry, "one", presets=drawing), 3)["answer"] == (6, 6)


def test_a_rubric_suite_only_judges(tmp_path: Path) -> None:
    # However many rubrics, one call a case: 2 cases for 2 presets with one judge.
    job = job_of(tmp_path, "{suite: support.yaml}", support=SUITES["support"])
    assert counted(job) == {
        "expand": (0, 0),
        "search": (0, 0),
        "rerank": (0, 0),
        "answer": (0, 0),
        "judge": (4, 2),
    }


def test_minutes_and_share_saved() -> None:
    # 90 different calls of 1.6 s = 144 s = 2.4 min; 90 of 120 leaves a quarter saved.
    expand = StageWork("expand", asked=120, unique=90)
    assert SECONDS["expand"] == 1.6
    assert expand.minutes == pytest.approx(2.4)
    assert expand.saved == 0.25
    assert StageWork("answer", 0, 0).saved == 0.0
    assert StageWork("answer", 0, 0).minutes == 0.0
    assert SECONDS.keys() == set(STAGES)
