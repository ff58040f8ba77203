"""Strict loading: what a user may write in several ways, and how a fault is told."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gno_dist.backends.resolve import pools_of
from gno_dist.canonical import digest
from gno_dist.cases import AskCase, Query, RubricCase
from gno_dist.corpus import CorpusRef, load_corpus
from gno_dist.errors import ConfigError
from gno_dist.judges.labels import state_segments
from gno_dist.loading import Collector, UserModel
from gno_dist.plan import Plan
from gno_dist.sweep import load_job, single_suite_job

from .conftest import DOCS, PRESETS, QUERIES, SUITES, write_tiny


class Inner(UserModel):
    some_number: int
    name: str = "x"


class Outer(UserModel):
    inner_list: list[Inner]


def told(value: Any, place: str = "") -> list[str]:
    problems = Collector()
    assert problems.validate(Outer, value, Path("a.yaml"), place) is None
    return problems.problems


def test_snake_and_camel_case_are_the_same() -> None:
    problems = Collector()
    snake = problems.validate(Outer, {"inner_list": [{"some_number": 1}]}, Path("a"))
    camel = problems.validate(Outer, {"innerList": [{"someNumber": 1}]}, Path("a"))
    assert snake == camel == Outer(inner_list=[Inner(some_number=1)])
    assert problems.problems == []
    assert camel is not None
    assert camel.model_dump() == {"inner_list": [{"some_number": 1, "name": "x"}]}


def test_every_fault_is_told_with_file_place_and_value() -> None:
    value = {"innerList": [{"some_number": "7"}, {"name": 3, "colour": 1}], "other": 1}
    assert told(value) == [
        "a.yaml: innerList[0].some_number: Input should be a valid integer (found '7')",
        "a.yaml: innerList[1].some_number: is required",
        "a.yaml: innerList[1].name: Input should be a valid string (found 3)",
        "a.yaml: innerList[1].colour: unknown key; check the spelling",
        "a.yaml: other: unknown key; check the spelling",
    ]


def test_a_place_is_a_prefix() -> None:
    assert told({"inner_list": [{"some_number": 1.5}]}, "suites[3]") == [
        "a.yaml: suites[3].inner_list[0].some_number: Input should be a valid integer (found 1.5)"
    ]
    assert told([], "suites[3]")[0].startswith("a.yaml: suites[3]: Input should be an object")


def test_a_long_value_is_cut() -> None:
    (problem,) = told({"inner_list": "x" * 1000})
    assert problem.endswith(f"(found '{'x' * 56}...)")


@pytest.mark.parametrize("value", [{1: "x"}, {"inner_list": {1, 2}}, {"a": 2**64}, {"a": "\ud800"}])
def test_what_json_has_not_is_told(value: Any) -> None:
    (problem,) = told(value)
    assert problem.startswith("a.yaml: cannot be read as JSON: ")


def test_a_problem_is_told_once() -> None:
    problems = Collector()
    for place in ("x", "y", "x"):
        problems.add("a.yaml", place, "is wrong")
    assert problems.problems == ["a.yaml: x: is wrong", "a.yaml: y: is wrong"]
    with pytest.raises(ConfigError) as caught:
        problems.raise_if_any("job")
    assert (caught.value.source, caught.value.problems) == ("job", tuple(problems.problems))
    Collector().raise_if_any("job")


@pytest.mark.parametrize("text", ["", "\n# only a comment\n", "{}", "[]", "null"])
def test_an_empty_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    problems = Collector()
    assert problems.read(path) is None
    assert problems.problems == [f"{path}: is empty"]


def test_loaded_values_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Inner(some_number=1).some_number = 2


class TestCorpus:
    def write(self, folder: Path, files: dict[str, bytes]) -> Path:
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder

    def load(self, folder: Path, collection: str | None = None) -> Any:
        problems = Collector()
        corpus = load_corpus(folder, CorpusRef(path="c", collection=collection), problems)
        assert problems.problems == []
        return corpus

    def test_documents_have_ids_collections_and_titles(self, tmp_path: Path) -> None:
        files = {
            "b/deep/two.md": b"text first\n# Title two \n# Later\n",
            "a/one.TXT": b"no title",
            "top.md": b"# Top\n",
            "a/ignored.pdf": b"%PDF",
        }
        corpus = self.load(self.write(tmp_path, files))
        assert [(doc.docid, doc.collection, doc.title) for doc in corpus.docs] == [
            ("a/one.TXT", "a", "one"),
            ("b/deep/two.md", "b", "Title two"),
            ("top.md", "default", "Top"),
        ]
        assert corpus.collections == {"a", "b", "default"}
        assert self.load(tmp_path, "all").collections == {"all"}

    def test_the_digest_covers_ids_collections_and_text(self, tmp_path: Path) -> None:
        def digest(name: str, files: dict[str, bytes], collection: str | None = None) -> str:
            return str(self.load(self.write(tmp_path / name, files), collection).digest)

        plain = digest("1", {"a/x.md": b"one\n", "a/y.md": b"two\n"})
        assert digest("2", {"a/y.md": b"two\n", "a/x.md": b"one\n"}) == plain
        # How an editor saves is not content.
        assert digest("3", {"a/x.md": b"\xef\xbb\xbfone\r\n", "a/y.md": b"two\n"}) == plain
        assert digest("4", {"a/x.md": b"one\n", "a/y.md": b"two\n"}, "a") == plain
        others = {
            digest("5", {"a/x.md": b"one\n", "a/y.md": b"two"}),
            digest("6", {"a/x.md": b"one\n", "a/z.md": b"two\n"}),
            digest("7", {"a/x.md": b"one\n", "a/y.md": b"two\n"}, "other"),
            digest("8", {"a/x.md": b"two\n", "a/y.md": b"one\n"}),
        }
        assert len(others | {plain}) == 5

    def test_ids_that_only_unicode_tells_apart_are_refused(self, tmp_path: Path) -> None:
        problems = Collector()
        folder = self.write(tmp_path, {"caf\u00e9.md": b"x", "cafe\u0301.md": b"y"})
        assert load_corpus(folder, CorpusRef(path="c"), problems) is None
        (problem,) = problems.problems
        assert "equals 'cafe\u0301.md' after Unicode NFC" in problem


class TestCases:
    def test_relevant_documents_come_from_the_list_or_from_grades(self) -> None:
        judgments = [
            {"docid": "a", "relevance": 3},
            {"docid": "b", "relevance": 1},
            {"docid": "c", "relevance": 0},
        ]
        graded = Query.model_validate({"id": "q", "query": "x", "judgments": judgments})
        assert graded.judged().relevant == {"a", "b"}
        assert graded.judged().grades == {"a": 3, "b": 1, "c": 0}
        for name in ("relevant", "relevantDocs"):
            listed = Query.model_validate(
                {"id": "q", "query": "x", "judgments": judgments, name: ["a"]}
            )
            assert listed.judged().relevant == {"a"}

    def test_the_judge_reads_input_output_and_what_was_expected(self) -> None:
        case = RubricCase(id="c", input="i", output="o", metadata={"by": "x"})
        assert case.state() == case.identity() == {"input": "i", "output": "o"}
        wanted = RubricCase(id="c", input="i", output="o", expected="e")
        assert list(wanted.state()) == ["input", "output", "expected"]

    def test_cases_of_one_identity_make_one_prompt(self) -> None:
        one = RubricCase(id="c", input={"a": 1, "b": 2.0}, output="o")
        other = RubricCase(id="c", input={"b": 2, "a": 1}, output="o")
        assert digest(one.identity()) == digest(other.identity())
        assert state_segments(one.state()) == state_segments(other.state())
        assert state_segments(one.state())[0].endswith('Input: {"a":1,"b":2}\nOutput: o\n')

    def test_an_ask_case_counts_each_relevant_document_once(self) -> None:
        case = AskCase(id="a", question="x", relevant=["d1", "d2"])
        assert case.judged().grades == {"d1": 1.0, "d2": 1.0}


class TestJob:
    def ids(self, path: Path) -> list[str]:
        return [unit.id for unit in Plan(load_job(path), pools_of).units()]

    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
    @pytest.mark.parametrize("newline", [b"\r\n", b"\n\n"], ids=["CRLF", "blank lines"])
    def test_files_from_any_editor_make_the_same_plan(
        self, tmp_path: Path, mark: bytes, newline: bytes
    ) -> None:
        path = write_tiny(tmp_path)
        expected = self.ids(path)
        for file in tmp_path.rglob("*.yaml"):
            file.write_bytes(mark + file.read_bytes().replace(b"\n", newline))
        assert self.ids(path) == expected

    def test_yaml_json_and_jsonl_make_the_same_plan(self, tmp_path: Path) -> None:
        expected = self.ids(write_tiny(tmp_path / "yaml"))
        lines = [
            '{"id": "q1", "query": "how long are backups kept",'
            ' "judgments": [{"docid": "alpha/backup.md", "relevance": 3}]}',
            '{"id": "q2", "query": "access logs deleted", "judgments": []}',
            "",
            '{"id": "q3", "query": "Urlaub beantragen", "collection": "beta", "judgments": []}',
            '{"id": "q4", "query": "spare keys", "judgments": []}',
        ]
        for name, text in {
            "queries.jsonl": "\r\n".join(lines),
            "queries.json": f"[{','.join(line for line in lines if line)}]",
        }.items():
            suite = SUITES["query"].replace("queries.yaml", name)
            path = write_tiny(tmp_path / name, query=suite)
            path.with_name(name).write_text(text, encoding="utf-8")
            assert self.ids(path) == expected

    def test_a_corpus_that_two_suites_name_is_read_once(self, tiny_sweep: Path) -> None:
        query, ask, support = load_job(tiny_sweep).suites
        assert query.loaded.corpus is ask.loaded.corpus
        assert support.loaded.corpus is None
        assert query.loaded.corpus is not None
        assert [doc.docid for doc in query.loaded.corpus.docs] == sorted(DOCS)

    def test_one_suite_at_one_preset(self, tiny_sweep: Path) -> None:
        folder = tiny_sweep.parent
        job = single_suite_job(folder / "query.yaml", folder / "presets.yaml", "one")
        ((loaded, (point,), (cases,)),) = job.suites
        assert (job.name, loaded.name, point.label) == ("query", "query", "one")
        assert cases == {"q1", "q2", "q3", "q4"}
        with pytest.raises(ConfigError, match="'three' is none of"):
            single_suite_job(folder / "query.yaml", folder / "presets.yaml", "three")

    def test_subsets_limit_a_suite_or_its_points_with_language_models(self, tmp_path: Path) -> None:
        sweep = """
version: 1
name: subsets
presets_file: presets.yaml
presets: [one]
suites:
  - {suite: query.yaml, axes: {depth: [fast, balanced]}, model_subset: core}
"""
        job = load_job(write_tiny(tmp_path, sweep=sweep))
        assert job.suites[0].cases_of == [{"q1", "q2", "q3", "q4"}, {"q1", "q3"}]
        job = load_job(write_tiny(tmp_path, sweep=sweep.replace("model_subset", "subset")))
        assert job.suites[0].cases_of == [{"q1", "q3"}, {"q1", "q3"}]

    @pytest.mark.parametrize(
        ("patterns", "labels"),
        [
            ("", "one fast 5|one fast 9|one hybrid 5|one hybrid 9|two fast 5|two fast 9|"
             "two hybrid 5|two hybrid 9"),
            ("include: [{depth: fast, search.limit: 5}]", "one fast 5|two fast 5"),
            ("include: [{preset: two, depth: fast}, {preset: one, search.limit: 9}]",
             "one fast 9|one hybrid 9|two fast 5|two fast 9"),
            ("exclude: [{preset: one}, {search.limit: 9}]", "two fast 5|two hybrid 5"),
            ("include: [{preset: one}]\nexclude: [{depth: fast}, {search.limit: 5}]",
             "one hybrid 9"),
        ],
    )  # fmt: skip
    def test_include_and_exclude(self, tmp_path: Path, patterns: str, labels: str) -> None:
        sweep = f"""
version: 1
name: patterns
presets_file: presets.yaml
presets: [one, two]
axes: {{depth: [fast], search.limit: [5, 9]}}
suites: [{{suite: query.yaml, axes: {{depth: [fast, hybrid]}}}}]
{patterns}
"""
        (suite,) = load_job(write_tiny(tmp_path, sweep=sweep)).suites
        found = [point.label.replace("depth=", "").replace("limit=", "") for point in suite.points]
        assert "|".join(found) == labels

    def test_a_suites_settings_hold_at_every_point(self, tmp_path: Path) -> None:
        path = write_tiny(tmp_path, ask=SUITES["ask"] + "settings: {search.limit: 3}\n")
        job = load_job(path)
        assert [point.preset.search.limit for point in job.suites[1].points] == [3, 3]
        assert {point.preset.search.limit for point in job.suites[0].points} == {10}

    def test_queries_and_presets_may_stand_elsewhere(self, tmp_path: Path) -> None:
        path = write_tiny(tmp_path, queries="- {}", presets="- {}")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "q.yaml").write_text(QUERIES, encoding="utf-8")
        (tmp_path / "other" / "p.yaml").write_text(PRESETS, encoding="utf-8")
        for name, old, new in (
            ("query", "queries.yaml", "other/q.yaml"),
            ("sweep", "presets.yaml", str(tmp_path / "other" / "p.yaml")),
        ):
            file = path.with_name(f"{name}.yaml")
            file.write_text(file.read_text("utf-8").replace(old, new), encoding="utf-8")
        assert self.ids(path) == self.ids(write_tiny(tmp_path / "plain"))
