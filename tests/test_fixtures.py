"""The shipped fixtures hold what their README says, byte for byte."""

import hashlib
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from gno_dist.sweep import load_job

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
README = (FIXTURES / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (\S+) \| `([0-9a-f]{64})` \|$", README, re.MULTILINE))
QUERIES: list[dict[str, Any]] = json.loads((FIXTURES / "queries/queries.json").read_text("utf-8"))
QUESTIONS: list[dict[str, Any]] = json.loads((FIXTURES / "ask/ask.json").read_text("utf-8"))


def words(text: str) -> set[str]:
    folded = unicodedata.normalize("NFKD", text)
    plain = "".join(char for char in folded if not unicodedata.combining(char)).casefold()
    return set(re.findall(r"\w+", plain))


def best(query: dict[str, Any]) -> list[str]:
    return [item["docid"] for item in query["judgments"] if item["relevance"] == 3]


def text_of(docid: str) -> str:
    return (FIXTURES / "corpus" / docid).read_text(encoding="utf-8")


def test_every_file_has_its_digest_in_the_readme() -> None:
    found = {
        path.relative_to(FIXTURES).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("corpus", "queries", "ask", "rubric")
        for path in (FIXTURES / folder).rglob("*")
        if path.is_file()
    }
    assert found == ROWS


def test_the_corpus_has_two_collections_in_four_languages() -> None:
    docs = [p.relative_to(FIXTURES / "corpus").parts for p in (FIXTURES / "corpus").rglob("*.md")]
    assert len(docs) == 20
    assert {(parts[0], parts[1]) for parts in docs} == {
        (collection, language)
        for collection in ("handbook", "operations")
        for language in ("de", "en", "fr", "it")
    }
    for parts in docs:
        text = text_of("/".join(parts))
        assert unicodedata.is_normalized("NFC", text)
        assert text.startswith("# ")
        assert text.endswith("\n")


def test_queries_are_graded_and_as_many_as_promised() -> None:
    grades = {item["relevance"] for query in QUERIES for item in query["judgments"]}
    assert grades == {0, 1, 2, 3}
    assert len(QUERIES) == 32
    assert all(best(query) for query in QUERIES)
    assert sum(any(i["relevance"] == 0 for i in q["judgments"]) for q in QUERIES) == 18
    for query in QUERIES:
        relevant = [item["docid"] for item in query["judgments"] if item["relevance"] >= 2]
        assert query["relevant"] == relevant


def test_cross_language_queries_have_their_best_documents_in_another_language() -> None:
    crossing = [query for query in QUERIES if "cross-language" in query.get("note", "")]
    assert len(crossing) == 10
    for query in crossing:
        assert all(docid.split("/")[1] != query["language"] for docid in best(query))


def test_queries_noted_so_share_no_word_with_their_best_documents() -> None:
    noted = [query for query in QUERIES if "no shared word" in query.get("note", "")]
    assert len(noted) == 9
    for query in noted:
        for docid in best(query):
            assert not words(query["query"]) & words(text_of(docid))


def test_expected_topics_stand_in_the_relevant_documents() -> None:
    assert len(QUESTIONS) == 10
    for question in QUESTIONS:
        sources = " ".join(text_of(docid) for docid in question["relevant"]).casefold()
        for topic in question["expectedTopics"]:
            assert topic.casefold() in sources


@pytest.mark.parametrize("path", sorted((FIXTURES / "sweeps").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_sweep_loads(path: Path) -> None:
    assert load_job(path).suites
