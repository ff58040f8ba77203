"""llama.cpp through its low-level API: likelihoods, label probabilities and text from one GGUF.

A prompt is a list of segments. Each segment is decoded by itself on top of those before it, and
the state after it is kept, so prompts that begin with the same segments pay for them once. What a
call computes depends on its segments alone, bit for bit: never on earlier calls, on the cache of
states, on batches or on threads (llama.cpp's logits do depend on how tokens are grouped).
"""

import ctypes
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from gno_dist.backends import sampling
from gno_dist.backends.base import Handled
from gno_dist.backends.llama_library import build
from gno_dist.backends.models import locate
from gno_dist.errors import BackendError
from gno_dist.records import Usage

N_BATCH = 512
"""Tokens a decode call takes at most; part of a model's identity."""
N_SCORED = 64
"""Tokens scored in one decode call: bounds the logits held at once (262144 x 4 bytes each)."""
STATE_BUDGET_BYTES = 512 * 2**20
"""Memory for kept prompt states in one process."""


class InputTooLong(ValueError):
    """A prompt does not fit the context; it is refused, never cut."""


def open_llama(
    identity: Mapping[str, Any], location: Mapping[str, Any], threads: int
) -> "LlamaBackend":
    """Open a GGUF and decode one token, so that a build for another machine fails here.

    Raises:
        BackendError: another file or build than the plan names, or it cannot be loaded.
    """
    model = locate(str(location["model"]))
    for name, found in (("model_sha256", model.sha256), ("build", build())):
        if identity[name] != found:
            raise BackendError(
                model.reference, f"{name} is {found!r} here, the plan was made with a different one"
            )
    layers = int(identity.get("gpu_layers", 0))
    return LlamaBackend(
        model.path, n_ctx=int(identity["n_ctx"]), threads=threads, gpu_layers=layers
    )


class LlamaBackend:
    """One model with one context and one sequence; for use from one thread."""

    def __init__(self, path: Path, *, n_ctx: int, threads: int, gpu_layers: int = 0) -> None:
        llama_cpp.llama_backend_init()
        if gpu_layers and not llama_cpp.llama_supports_gpu_offload():
            raise BackendError("llama", "this build of llama.cpp has no GPU support (gpu_layers)")
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = gpu_layers
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise BackendError("llama", f"{path.name} cannot be loaded; is it a whole GGUF file?")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.swa_full = True  # partial removal of tokens needs the whole window in memory
        params.no_perf = True
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise BackendError("llama", f"no memory for a context of {n_ctx} tokens")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._n_vocab = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(N_BATCH, 0, 1)
        self._n_ctx = n_ctx
        self._path = path
        self._states: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self._state_bytes = 0
        self._decode(self.tokenize("", first=True), 0)

    def info(self) -> dict[str, Any]:
        """File, size and build."""
        return {
            "backend": "llama",
            "model": self._path.name,
            "bytes": self._path.stat().st_size,
            "build": build(),
        }

    def close(self) -> None:
        """Free model and context; a second close does nothing."""
        if self._context:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._context)
            llama_cpp.llama_model_free(self._model)
            self._context = self._model = None
            self._states.clear()

    def handle(self, method: str, args: Mapping[str, Any]) -> Handled:
        """Answer ``loglik``, ``labels`` or ``generate``.

        Raises:
            InputTooLong: with the number of tokens.
            ValueError: unknown method, or a label that is not one token.
        """
        if method == "loglik":
            return self._loglik(args["items"])
        if method == "labels":
            return self._labels(args["prefix"], args["questions"])
        if method == "generate":
            return self._generate(args)
        raise ValueError(f"unknown method {method!r}")

    def tokenize(self, text: str, *, first: bool = False) -> list[int]:
        """Token ids; ``first`` adds the begin-of-text token, as only a first segment has it."""
        data = text.encode("utf-8")
        room = len(data) + 8
        tokens = (llama_cpp.llama_token * room)()
        n = llama_cpp.llama_tokenize(self._vocab, data, len(data), tokens, room, first, False)
        if n < 0:
            raise ValueError(f"text of {len(data)} bytes cannot be tokenised")
        return list(tokens[:n])

    def _loglik(self, items: Sequence[Mapping[str, Any]]) -> Handled:
        """Sum of log p(continuation token | everything before it), in nats, for each item."""
        sums, counts, read = [], [], 0
        for item in items:
            continuation = self.tokenize(item["continuation"])
            last, position = self._enter(item["prefix"], len(continuation))
            logprobs = self._score([last, *continuation[:-1]], continuation, position)
            sums.append(float(np.sum(logprobs, dtype=np.float64)))
            counts.append(len(continuation))
            read += position + 1 + len(continuation)
        return Handled({"logprobs": sums, "tokens": counts}, Usage(input_tokens=read))

    def _score(
        self, inputs: Sequence[int], targets: Sequence[int], position: int
    ) -> NDArray[np.float64]:
        """Log p of each target after its input, shape (n,)."""
        values = np.empty(len(inputs), dtype=np.float64)
        for start in range(0, len(inputs), N_SCORED):
            part = inputs[start : start + N_SCORED]
            logits = self._decode(part, position + start, scored=len(part))
            wanted = np.asarray(targets[start : start + N_SCORED])
            values[start : start + len(part)] = logits[np.arange(len(part)), wanted].astype(
                np.float64
            ) - _log_sum_exp(logits)
        return values

    def _labels(self, prefix: Sequence[str], questions: Sequence[Mapping[str, Any]]) -> Handled:
        """Log probability of each question's labels as the next token after its suffix."""
        rows, read = [], 0
        for question in questions:
            ids = [self._single_token(label) for label in question["labels"]]
            suffix = self.tokenize(question["suffix"])
            last, position = self._enter(prefix, len(suffix))
            logits = self._decode([last, *suffix], position, scored=1)
            logprobs = logits[0, ids].astype(np.float64) - _log_sum_exp(logits)[0]
            rows.append([float(value) for value in logprobs])
            read += len(suffix)
        read += self._length(prefix)
        return Handled({"logprobs": rows}, Usage(input_tokens=read, output_tokens=len(questions)))

    def _generate(self, args: Mapping[str, Any]) -> Handled:
        """Sample until the stop string, an end token or the limit; greedy at temperature 0."""
        limit = int(args["max_tokens"])
        token, position = self._enter(args["prefix"], limit)
        read = position + 1
        sampler = sampling.Sampler(
            self._vocab,
            grammar=args.get("grammar"),
            temperature=float(args["temperature"]),
            seed=args.get("seed"),
        )
        stop = str(args["stop"]).encode("utf-8")
        written, produced, ended = b"", 0, False
        try:
            while produced < limit and not ended:
                token = sampler.next(self._decode([token], position, scored=1)[0])
                position += 1
                produced += 1
                ended = bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))
                if not ended:
                    written += self._piece(token)
                    ended = stop in written
        finally:
            sampler.close()
        text = written.split(stop)[0].decode("utf-8", "replace")
        value = {"text": text, "tokens": produced, "truncated": not ended}
        return Handled(value, Usage(input_tokens=read, output_tokens=produced))

    def _length(self, prefix: Sequence[str]) -> int:
        return sum(len(self.tokenize(text, first=i == 0)) for i, text in enumerate(prefix))

    def _single_token(self, label: str) -> int:
        tokens = self.tokenize(label)
        if len(tokens) != 1:
            raise ValueError(f"label {label!r} is {len(tokens)} tokens of this model, not one")
        return tokens[0]

    def _piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, 256, 0, False)
        return buffer.raw[: max(n, 0)]

    def _enter(self, prefix: Sequence[str], reserve: int) -> tuple[int, int]:
        """Put the context just before the prefix's last token.

        Returns:
            That token and its position: it is decoded with what follows, since a kept state has
            no logits.

        Raises:
            InputTooLong: prefix and ``reserve`` tokens exceed the context.
        """
        segments = [self.tokenize(text, first=i == 0) for i, text in enumerate(prefix)]
        segments = [segment for segment in segments if segment]
        total = sum(map(len, segments)) + reserve
        if total > self._n_ctx:
            raise InputTooLong(f"{total} tokens, and the context holds {self._n_ctx}")
        last = segments[-1][-1]
        segments[-1] = segments[-1][:-1]
        keys = [tuple(map(tuple, segments[: n + 1])) for n in range(len(segments))]
        known = next((n for n in range(len(keys), 0, -1) if keys[n - 1] in self._states), 0)
        position = self._restore(keys[known - 1]) if known else self._restore(None)
        for n in range(known, len(segments)):
            self._decode(segments[n], position)
            position += len(segments[n])
            self._keep(keys[n])
        return last, position

    def _restore(self, key: tuple[tuple[int, ...], ...] | None) -> int:
        llama_cpp.llama_memory_clear(self._memory, True)
        if key is None:
            return 0
        state = self._states[key]
        self._states.move_to_end(key)
        n = llama_cpp.llama_state_seq_set_data(self._context, state, len(state), 0)
        if n == 0:
            raise BackendError("llama", "a kept prompt state was refused")
        return sum(map(len, key))

    def _keep(self, key: tuple[tuple[int, ...], ...]) -> None:
        size = llama_cpp.llama_state_seq_get_size(self._context, 0)
        state = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self._context, state, size, 0)
        self._states[key] = state
        self._state_bytes += size
        while self._state_bytes > STATE_BUDGET_BYTES and len(self._states) > 1:
            _, oldest = self._states.popitem(last=False)
            self._state_bytes -= len(oldest)

    def _decode(
        self, tokens: Sequence[int], position: int, *, scored: int = 0
    ) -> NDArray[np.float32]:
        """Decode tokens from ``position``; logits of the last ``scored``, shape (scored, vocab).

        The rows are copies. ``scored`` must not exceed one batch.
        """
        for start in range(0, len(tokens), N_BATCH):
            part = tokens[start : start + N_BATCH]
            batch = self._batch
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i] = token
                batch.pos[i] = position + start + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = start + i >= len(tokens) - scored
            code = llama_cpp.llama_decode(self._context, batch)
            if code != 0:
                raise BackendError("llama", f"decoding {len(part)} tokens failed (code {code})")
        rows = np.empty((scored, self._n_vocab), dtype=np.float32)
        in_batch = (len(tokens) - 1) % N_BATCH + 1 if tokens else 0
        for i in range(scored):
            pointer = llama_cpp.llama_get_logits_ith(self._context, in_batch - scored + i)
            rows[i] = np.ctypeslib.as_array(pointer, (self._n_vocab,))
        return rows


def _log_sum_exp(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Row-wise log sum exp, shape (n,)."""
    top = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - top).sum(axis=1, dtype=np.float64)
    result: NDArray[np.float64] = np.log(sums) + top[:, 0]
    return result
