"""From settings to pools: which backends a suite needs at a preset, with their identities.

The only place that knows which roles a kind of suite has. Finds files and digests, loads nothing.
"""

from functools import cache
from typing import Any

from gno_dist import canonical
from gno_dist.backends.index import index_pool
from gno_dist.backends.models import locate
from gno_dist.calls import PoolSpec
from gno_dist.errors import BackendError, ConfigError
from gno_dist.presets import Llm, Preset
from gno_dist.suite import LoadedSuite
from gno_dist.sweep import LoadedJob


def roles_of(kind: str, preset: Preset) -> tuple[str, ...]:
    """The roles a suite of this kind needs at this preset."""
    searches = kind in {"retrieval", "answer"}
    wanted = {
        "index": searches,
        "reranker": searches and preset.stages.rerank,
        "generator": kind == "answer" or (searches and preset.stages.expand),
        "judge": kind in {"answer", "rubric"},
    }
    return tuple(role for role, needed in wanted.items() if needed)


def pools_of(loaded: LoadedSuite, preset: Preset) -> dict[str, PoolSpec]:
    """Role -> pool.

    Raises:
        ModelNotFound: a model is not on this machine.
        BackendError: a package is missing.
    """
    pools = {}
    for role in roles_of(loaded.suite.kind, preset):
        if role == "index":
            assert loaded.corpus is not None
            pools[role] = index_pool(loaded.corpus, loaded.corpus.path.name, preset)
        else:
            settings = getattr(preset, role)
            assert isinstance(settings, Llm)
            pools[role] = llm_pool(settings)
    return pools


def llm_pool(settings: Llm) -> PoolSpec:
    """The pool of a language model: same file, context and build, same pool."""
    if settings.backend == "fake":
        return _fake_pool(settings)
    model = locate(settings.model)
    identity = {"model_sha256": model.sha256, "n_ctx": settings.n_ctx, **_llama_identity()}
    if settings.gpu_layers:
        identity["gpu_layers"] = settings.gpu_layers
    location = {"model": settings.model, "bytes": model.size_bytes}
    return PoolSpec("llama", f"llama {settings.model.partition(':')[2]}", identity, location)


@cache
def _llama_identity() -> dict[str, Any]:
    try:
        from gno_dist.backends import llama, llama_library
    except ImportError as exc:
        raise BackendError(
            "llama", f"llama-cpp-python is not installed ({exc}); run `make install`"
        ) from exc
    return {
        "n_batch": llama.N_BATCH,
        "n_scored": llama.N_SCORED,
        "build": llama_library.build(),
    }


def _fake_pool(settings: Llm) -> PoolSpec:
    """``NAME;die=MARKER`` is the fake NAME that dies on calls that contain MARKER."""
    name, *faults = settings.model.split(";")
    identity = {"name": name, "model_sha256": canonical.digest(name), "n_ctx": settings.n_ctx}
    markers = {marker: fault for fault, _, marker in (item.partition("=") for item in faults)}
    return PoolSpec("fake", f"fake {name}", identity, {"faults": markers})


def check_models(job: LoadedJob) -> None:
    """Resolve every backend of a job, so that all that are missing are named at once.

    Raises:
        ConfigError: with one problem a missing backend.
    """
    problems: dict[str, None] = {}
    for suite in job.suites:
        for point in suite.points:
            try:
                pools_of(suite.loaded, point.preset)
            except BackendError as exc:
                problems[f"preset {point.preset_name!r}: {exc}"] = None
    if problems:
        raise ConfigError(str(job.path), list(problems))
