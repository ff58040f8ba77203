"""Every mistake in a user's files is told before anything runs: file, place and value."""

from pathlib import Path

import pytest

from gno_dist.errors import ConfigError
from gno_dist.settings import load_settings
from gno_dist.sweep import load_job

from .conftest import PRESETS, QUERIES, SUITES, SWEEP, write_tiny

QUERY, ASK, SUPPORT = SUITES["query"], SUITES["ask"], SUITES["support"]


def told(folder: Path, **replaced: str) -> list[str]:
    """What is told about the tiny job with some files replaced, paths cut to names."""
    path = write_tiny(folder, **replaced)
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    assert caught.value.source == str(path)
    assert all(problem.startswith(str(folder)) for problem in caught.value.problems)
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


SPELLING = "unknown key; check the spelling"
IN_SUITES = [
    (QUERY + "colour: blue\n", f"query.yaml: colour: {SPELLING}"),
    (changed(QUERY, "version: 1", "version: 2"), "query.yaml: version: Input should be 1 (found 2"),
    (changed(QUERY, "name: query\n", ""), "query.yaml: name: is required"),
    (changed(QUERY, "name: query", "name: a/b"), "query.yaml: name: String should match pattern "),
    (changed(QUERY, "retrieval", "search"), "query.yaml: kind: Input should be 'retrieval', "),
    (QUERY + "trials: 0\n", "query.yaml: trials: Input should be greater than or equal to 1"),
    (QUERY + "trials: '2'\n", "query.yaml: trials: Input should be a valid integer (found '2')"),
    (QUERY + "trials: true\n", "query.yaml: trials: Input should be a valid integer (found True)"),
    (QUERY + "name: again\n", "query.yaml: line 9, column 1: key 'name' appears twice"),
    ("", "query.yaml: is empty"),
    ("[1]\n", "query.yaml: Input should be an object (found [1])"),
    ("name: [\n", "query.yaml: line 2, column 1: "),
    (changed(QUERY, "queries: queries.yaml\n", ""), "query.yaml: queries: is required in a suite"),
    (changed(QUERY, "queries.yaml", "none.yaml"), "none.yaml: cannot be read: No such file"),
    (QUERY + "cases: []\n", "query.yaml: cases: is not read in a suite of kind 'retrieval'"),
    (changed(QUERY, "path: corpus", "path: gone"), "query.yaml: corpus.path: no folder at 'gone'"),
    (changed(QUERY, "corpus: {path: corpus}\n", ""), "query.yaml: corpus: is required in a suite"),
    (changed(QUERY, "{path: corpus}", "corpus"), "query.yaml: corpus: Input should be an object"),
    # Measures and thresholds.
    (changed(QUERY, "Recall@5", "Recal@5"), "query.yaml: measures[1]: 'Recal@5' is not a measure:"),
    (changed(QUERY, "Recall@5", "Recall"), "query.yaml: measures[1]: 'Recall' is not a measure: "),
    (changed(QUERY, "Recall@5", "relevance"), "query.yaml: measures[1]: 'relevance' cannot be com"),
    (changed(QUERY, "Recall@5", "ndcg@10"), "query.yaml: measures[1]: nDCG(gain=exp)@10 stands "),
    (changed(QUERY, "=1000", "=0"), "query.yaml: measures[2]: 'latency(budget_ms=0)': the budget"),
    (changed(QUERY, '"nDCG@10", "Recall@5", "latency(budget_ms=1000)"', ""), "query.yaml: measure"),
    (QUERY + "thresholds: {RR@10: 0.5}\n", "query.yaml: thresholds.RR@10: no measure or rubric of"),
    (QUERY + "thresholds: {nDCG@10: 70}\n", "query.yaml: thresholds.nDCG@10: 70.0 lies outside"),
    (QUERY + "thresholds: {nDCG@10: -0.1}\n", "query.yaml: thresholds.nDCG@10: -0.1 lies outside"),
    (QUERY + "thresholds: {nDCG@10: high}\n", "query.yaml: thresholds.nDCG@10: Input should be a "),
    (QUERY + "thresholds: {nDCG@10: .nan}\n", "query.yaml: line 9, column 23: .nan is not a fin"),
    # Subsets and settings.
    (changed(QUERY, "[q1, q3]", "[q1, q9]"), "query.yaml: subsets.core: no case has the id 'q9'"),
    (changed(QUERY, "[q1, q3]", "[]"), "query.yaml: subsets.core: is empty"),
    (QUERY + "settings: {search.limit: 0}\n", "sweep.yaml: suites[0].search.limit: Input should"),
    (QUERY + "settings: {serch.limit: 1}\n", "sweep.yaml: suites[0]: no setting 'serch.limit' in "),
    (QUERY + "settings: {depth: fast}\n", "sweep.yaml: suites[0].axes.depth: suite 'query' fixes"),
    (QUERY + "rubrics: {a: {type: boolean, instructions: x}}\n", "query.yaml: rubrics: belong to"),
]  # fmt: skip


@pytest.mark.parametrize(("suite", "expected"), IN_SUITES)
def test_mistakes_in_a_retrieval_suite(tmp_path: Path, suite: str, expected: str) -> None:
    found = told(tmp_path, query=suite)
    assert any(problem.startswith(expected) for problem in found), found


IN_QUERIES = [
    (QUERIES + "- {id: q5, query: x, judgments: [], note: [1]}\n", "[4].note: Input should be a"),
    (QUERIES + "- {id: q5, query: x, judgments: [], grade: 1}\n", f"[4].grade: {SPELLING}"),
    (QUERIES + "- {id: q5, query: x}\n", "[4].judgments: is required"),
    (QUERIES + "- {id: q5, query: '  ', judgments: []}\n", "[4].query: String should match patter"),
    (QUERIES + "- {id: '', query: x, judgments: []}\n", "[4].id: String should have at least 1 ch"),
    (QUERIES + "- {id: 5, query: x, judgments: []}\n", "[4].id: Input should be a valid string (f"),
    (QUERIES + "- q5\n", "[4]: Input should be an object (found 'q5')"),
    (QUERIES + "- {id: q1, query: x, judgments: []}\n", "[4].id: 'q1' stands at [0] already"),
    (changed(QUERIES, "relevance: 3", "relevance: high"), "[0].judgments[0].relevance: Input shou"),
    (changed(QUERIES, "relevance: 3", "relevance: .inf"), "line 2, column 94: .inf is not a finit"),
    (changed(QUERIES, "relevance: 3", "rel: 3"), "[0].judgments[0].relevance: is required"),
    (changed(QUERIES, "alpha/backup", "alpha/bakup"), "q1.judgments: no document 'alpha/bakup.md'"),
    (changed(QUERIES, "alpha/backup", "Alpha/backup"), "q1.judgments: no document 'Alpha/backup.m"),
    (changed(QUERIES, "docid: alpha/backup.md, relevance: 1", "docid: alpha/logs.md, relevance: 1"),
     "q2.judgments: document 'alpha/logs.md' stands twice"),
    (QUERIES + "- {id: q5, query: x, judgments: [], relevant: [no.md]}\n", "q5.relevant: no docum"),
    (changed(QUERIES, "collection: beta", "collection: Beta"), "q3.collection: 'Beta' is none of "),
    (QUERIES + "- {id: q5, id: q6, query: x, judgments: []}\n", "line 8, column 12: key 'id' appe"),
    ("[]\n", "is empty"),
    ("# nothing\n", "is empty"),
    ("queries: []\n", "must be a list with at least one case"),
]  # fmt: skip


@pytest.mark.parametrize(("queries", "expected"), IN_QUERIES)
def test_mistakes_in_queries(tmp_path: Path, queries: str, expected: str) -> None:
    found = told(tmp_path, queries=queries)
    assert any(problem.startswith(f"queries.yaml: {expected}") for problem in found), found


IN_OTHER_SUITES = [
    ("ask", changed(ASK, "alpha/logs", "alpha/log"), "a2.relevant: no document 'alpha/log.md'"),
    ("ask", changed(ASK, "id: a2", "id: a1"), "cases[1].id: 'a1' stands at cases[0] already"),
    ("ask", changed(ASK, "question: when", "query: when"), "cases[1].question: is required"),
    ("ask", changed(ASK, "[thirty five days]", "thirty"), "cases[0].expectedTopics: Input should "),
    ("ask", ASK + "queries: queries.yaml\n", "queries: is not read in a suite of kind 'answer'"),
    ("ask", ASK + "thresholds: {has_citations: 1.5}\n", "thresholds.has_citations: 1.5 lies outsi"),
    ("support", SUPPORT.partition("rubrics:")[0], "rubrics: a suite of kind 'rubric' needs at lea"),
    ("support", SUPPORT + "corpus: {path: corpus}\n", "corpus: a suite of kind 'rubric' has no"),
    ("support", SUPPORT + "measures: [RR@10]\n", "measures[0]: 'RR@10' cannot be computed in a ru"),
    ("support", changed(SUPPORT, "boolean", "bool"), "rubrics.answers: Input tag 'bool' found usi"),
    ("support", changed(SUPPORT, "[rude, neutral, warm]", "[rude]"), "rubrics.tone.score.criteria"),
    ("support", changed(SUPPORT, "{nothing: null, rude: null}", "{}"), "rubrics.fault.choice.crit"),
    ("support", changed(SUPPORT, '"Does the output answer the input?"', '""'), "rubrics.answers."),
    ("support", SUPPORT + "thresholds: {tone: 2.5}\n", "thresholds.tone: 2.5 lies outside [0, 2]"),
    ("support", SUPPORT + "thresholds: {answers: most}\n", "thresholds.answers: Input should be "),
    ("support", SUPPORT + "thresholds: {fault: 0.5}\n", "thresholds.fault: a choice has no mean"),
    ("support", SUPPORT + "thresholds: {clarity: 1}\n", "thresholds.clarity: no measure or rubric"),
    ("support", changed(SUPPORT, '"Go away."', "9007199254740993"), "cases[1]: not representable "),
    ("support", changed(SUPPORT, "{nothing: null,", "{1: null,"), "cannot be read as JSON: Dict k"),
    ("support", changed(SUPPORT, ', output: "Go away."', ""), "cases[1].output: is required"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "suite", "expected"), IN_OTHER_SUITES)
def test_mistakes_in_other_suites(tmp_path: Path, name: str, suite: str, expected: str) -> None:
    found = told(tmp_path, **{name: suite})
    assert any(problem.startswith(f"{name}.yaml: {expected}") for problem in found), found


IN_SWEEPS = [
    (SWEEP + "pool: ray\n", f"pool: {SPELLING}"),
    (changed(SWEEP, "[one, two]", "[]"), "presets: List should have at least 1 item"),
    (changed(SWEEP, "[one, two]", "[one, three]"), "presets[1]: 'three' is none of ['one', 'two']"),
    (changed(SWEEP, "[one, two]", "[one, one]"), "presets[1]: 'one' stands twice"),
    (changed(SWEEP, "presets_file: presets.yaml\n", ""), "presets_file: is required"),
    (changed(SWEEP, "{suite: support.yaml}", "{}"), "suites[2].suite: is required"),
    (changed(SWEEP, "support.yaml", "ask.yaml"), "suites[2]: suite 'ask' stands at suites[1] alre"),
    (changed(SWEEP, "ask.yaml", "ask.yaml, subset: core"), "suites[1]: suite 'ask' has no subset "),
    (changed(SWEEP, "ask.yaml", "ask.yaml, model_subset: core"), "suites[1]: suite 'ask' has no s"),
    # Axes.
    (SWEEP + "axes: {serch.limit: [5]}\n", "suites[0]: no setting 'serch.limit' in preset 'one'"),
    (SWEEP + "axes: {search.limits: [5]}\n", "suites[1]: no setting 'search.limits' in preset 'tw"),
    (SWEEP + "axes: {depth.x: [5]}\n", "suites[2]: no setting 'depth.x' in preset 'one'"),
    (SWEEP + "axes: {search.limit: []}\n", "suites[0].axes.search.limit: has no value"),
    (SWEEP + "axes: {search.limit: 5}\n", "axes.search.limit: Input should be a valid array (foun"),
    (SWEEP + "axes: {search.limit: [0]}\n", "suites[0].search.limit: Input should be greater than"),
    (SWEEP + "axes: {search.limit: ['5']}\n", "suites[0].search.limit: Input should be a valid in"),
    (SWEEP + "axes: {judge: [null]}\n", "suites[1]: ask: a suite of kind 'answer' needs a judge, "),
    (SWEEP + "axes: {search.limit: [5, 5]}\n", "suites[1].axes: 'one limit=5' stands twice"),
    (SWEEP + "axes: {search: [{}, {limit: 10}]}\n", "suites[1].axes: \"one search={'limit': 10}\""),
    (changed(SWEEP, "[fast,", "[fats,"), "suites[0].depth: Input should be 'fast', 'vector', 'hyb"),
    (SWEEP + "axes: {chunking.max_words: [20]}\n", "suites[0].chunking: Value error, overlap_w"),
    # Include and exclude.
    (SWEEP + "include: [{preset: three}]\n", "include[0].preset: 'three' is none of ['one', 'two'"),
    (SWEEP + "exclude: [{dept: fast}]\n", "exclude[0].dept: is none of ['depth', 'preset']"),
    (SWEEP + "exclude: [{depth: fats}]\n", "exclude[0].depth: 'fats' is none of ['fast', 'vector'"),
    (SWEEP + "exclude: [{preset: one}, {preset: two}]\n", "suites[0]: include and exclude leave n"),
    (SWEEP + "include: [{depth: fast}]\n", "suites[2]: include and exclude leave no point of this"),
]  # fmt: skip


@pytest.mark.parametrize(("sweep", "expected"), IN_SWEEPS)
def test_mistakes_in_a_sweep(tmp_path: Path, sweep: str, expected: str) -> None:
    found = told(tmp_path, sweep=sweep)
    assert any(problem.startswith(f"sweep.yaml: {expected}") for problem in found), found


IN_PRESETS = [
    (PRESETS + "default: one\n", f"default: {SPELLING}"),
    (changed(PRESETS, "version: 1", "version: one"), "version: Input should be 1 (found 'one')"),
    ("version: 1\npresets: {}\n", "presets: Dictionary should have at least 1 item"),
    (
        changed(PRESETS, "backend: fake}", "backend: e5}"),
        "presets.one.embedder.backend: Input should",
    ),
    (
        changed(PRESETS, "depth: thorough", "depth: deep"),
        "presets.one.depth: Input should be 'fast',",
    ),
    (changed(PRESETS, "depth:", "deep:"), f"presets.one.deep: {SPELLING}"),
    (changed(PRESETS, ', model: "one"', ""), "presets.one.reranker.model: is required"),
    (
        changed(PRESETS, "depth:", "search: {limit: 0}\n    depth:"),
        "presets.one.search.limit: Input ",
    ),
    (changed(PRESETS, "  two:", "  one:"), "line 10, column 3: key 'one' appears twice"),
]


@pytest.mark.parametrize(("presets", "expected"), IN_PRESETS)
def test_mistakes_in_presets(tmp_path: Path, presets: str, expected: str) -> None:
    found = told(tmp_path, presets=presets)
    assert any(problem.startswith(f"presets.yaml: {expected}") for problem in found), found


@pytest.mark.parametrize(
    ("removed", "depth", "expected"),
    [
        ("reranker", "balanced", "suites[0]: query: depth 'balanced' needs a reranker, and preset"),
        (
            "generator",
            "thorough",
            "suites[0]: query: depth 'thorough' needs a generator, and preset",
        ),
        ("generator", "fast", "suites[1]: ask: a suite of kind 'answer' needs a generator, and "),
        ("judge", "fast", "suites[2]: support: a suite of kind 'rubric' needs a judge, and preset"),
    ],
)
def test_a_role_that_a_point_needs_and_its_preset_lacks(
    tmp_path: Path, removed: str, depth: str, expected: str
) -> None:
    presets = f"version: 1\npresets: {{one: {{depth: {depth}"
    for role in {"reranker", "generator", "judge"} - {removed}:
        presets += f", {role}: {{backend: fake, model: x}}"
    sweep = changed(SWEEP, "[one, two]", "[one]")
    sweep = changed(sweep, "[fast, vector, hybrid, balanced, thorough]", f"[{depth}]")
    found = told(tmp_path, presets=presets + "}}", sweep=sweep)
    assert any(problem.startswith(f"sweep.yaml: {expected}") for problem in found), found


def test_a_corpus_that_cannot_be_read(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    (tmp_path / "corpus" / "alpha" / "old.md").write_bytes("Kündigung".encode("latin-1"))
    # Both suites read it: it is told once.
    assert told(tmp_path) == [
        "corpus/alpha/old.md: line 1: byte 1 (0xfc) is not UTF-8; save the file as UTF-8"
    ]
    for path in (tmp_path / "corpus").rglob("*.md"):
        path.unlink()
    (found,) = told_again(tmp_path)
    assert found.endswith("corpus: no .md or .txt file in this corpus folder")


def told_again(folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_job(folder / "sweep.yaml")
    return list(caught.value.problems)


@pytest.mark.parametrize("name", ["sweep", "presets", "query", "queries"])
def test_a_file_that_is_not_utf8(tmp_path: Path, name: str) -> None:
    write_tiny(tmp_path)
    path = tmp_path / f"{name}.yaml"
    data = path.read_bytes()
    path.write_bytes(data + "# Prüfung\n".encode("latin-1"))
    line = data.count(b"\n") + 1
    # After the file come "# Pr", 4 bytes, then the one that is not UTF-8.
    assert told_again(tmp_path) == [
        f"{path}: line {line}: byte {len(data) + 4} (0xfc) is not UTF-8; save the file as UTF-8"
    ]


def test_mistakes_in_every_file_are_told_at_once(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        sweep=changed(SWEEP, "[one, two]", "[one, three]"),
        query=changed(QUERY, "Recall@5", "Recal@5"),
        queries=changed(QUERIES, "alpha/backup", "alpha/bakup"),
        ask=changed(ASK, "alpha/logs", "alpha/log") + "colours: 1\n",
        support=SUPPORT + "thresholds: {tone: 9, fault: 0.5}\n",
    )
    beginnings = [
        "sweep.yaml: presets[1]: 'three' is none of ['one', 'two'] in ",
        "query.yaml: measures[1]: 'Recal@5' is not a measure",
        "queries.yaml: q1.judgments: no document 'alpha/bakup.md' in corpus",
        f"ask.yaml: colours: {SPELLING}",
        "support.yaml: thresholds.tone: 9.0 lies outside [0, 2]",
        "support.yaml: thresholds.fault: a choice has no mean to gate",
    ]
    assert len(found) == len(beginnings)
    for problem, beginning in zip(found, beginnings, strict=True):
        assert problem.startswith(beginning)


def test_one_mistake_is_told_once_and_hides_no_other(tmp_path: Path) -> None:
    # q3 is in a subset; that its entry is wrong does not make the subset wrong.
    queries = changed(QUERIES, "id: q3, query", "id: q3, qurey")
    queries += "- {id: q1, query: x, judgments: []}\n"
    assert told(tmp_path, queries=queries) == [
        "queries.yaml: [2].query: is required",
        f"queries.yaml: [2].qurey: {SPELLING}",
        "queries.yaml: [4].id: 'q1' stands at [0] already",
    ]


def test_a_broken_sweep_or_preset_file_is_told_without_what_follows_from_it(tmp_path: Path) -> None:
    assert told(tmp_path, sweep="version: 1\n") == [
        "sweep.yaml: name: is required",
        "sweep.yaml: presets_file: is required",
        "sweep.yaml: presets: is required",
        "sweep.yaml: suites: is required",
    ]
    assert told(tmp_path, presets="") == ["presets.yaml: is empty"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("concurrency: 0\n", "concurrency: Input should be greater than or equal to 1 (found 0)"),
        ("colour: blue\n", f"colour: {SPELLING}"),
        ("pool: dask\n", "pool: Input should be 'inline' or 'ray' (found 'dask')"),
        ("attempt_timeout_s: .inf\n", "line 1, column 20: .inf is not a finite number"),
        (
            "min_coverage: 1.1\n",
            "min_coverage: Input should be less than or equal to 1 (found 1.1)",
        ),
        ("", "is empty"),
    ],
)
def test_mistakes_in_settings(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "gno-dist.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path)
    assert caught.value.problems == (f"{path}: {expected}",)
