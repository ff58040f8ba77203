"""Choosing the next token from logits, optionally under a GBNF grammar, with llama.cpp's sampler.

The grammar is asked about the wanted token first and about many only when it refuses that one:
with a vocabulary of 262144, asking about all of them costs more than decoding.
"""

import ctypes
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_FIRST_TRY = 512


class GrammarStuck(RuntimeError):
    """No token continues the text under the grammar."""


class Sampler:
    """Picks tokens for one generation; greedy at temperature 0, otherwise seeded."""

    def __init__(
        self, vocab: Any, *, grammar: str | None, temperature: float, seed: int | None
    ) -> None:
        self._temperature = temperature
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._grammar = None
        if grammar is not None:
            self._grammar = llama_cpp.llama_sampler_init_grammar(
                vocab, grammar.encode("utf-8"), b"root"
            )
            if not self._grammar:
                raise ValueError("llama.cpp cannot read the grammar")

    def next(self, logits: NDArray[np.float32]) -> int:
        """The next token id.

        Args:
            logits: shape (vocab,).

        Raises:
            GrammarStuck: the grammar admits no token.
        """
        token = self._draw(logits)
        if self._grammar is not None:
            if not np.isfinite(self._admitted(np.array([token]), logits)[0]):
                token = self._draw_admitted(logits)
            llama_cpp.llama_sampler_accept(self._grammar, token)
        return token

    def _draw_admitted(self, logits: NDArray[np.float32]) -> int:
        """Draw among the tokens the grammar admits; the likeliest few are tried before all."""
        likely = np.argsort(-logits, kind="stable")
        tries = [likely[:_FIRST_TRY], likely] if self._temperature == 0 else [likely]
        for ids in tries:
            admitted = self._admitted(ids, logits)
            if np.isfinite(admitted).any():
                masked = np.full_like(logits, -np.inf)
                masked[ids] = admitted
                return self._draw(masked)
        raise GrammarStuck("the grammar admits no token here")

    def _admitted(self, ids: NDArray[Any], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of ``ids`` with those that the grammar refuses at -inf, shape (n,)."""
        candidates = np.zeros(len(ids), dtype=_CANDIDATE)
        candidates["id"] = ids
        candidates["logit"] = logits[ids]
        pointer = candidates.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
        array = llama_cpp.llama_token_data_array(
            data=pointer, size=len(ids), selected=-1, sorted=False
        )
        llama_cpp.llama_sampler_apply(self._grammar, ctypes.byref(array))
        result: NDArray[np.float32] = candidates["logit"]
        return result

    def _draw(self, logits: NDArray[np.float32]) -> int:
        if self._temperature == 0:
            return int(logits.argmax())
        scaled = logits.astype(np.float64) / self._temperature
        weights = np.exp(scaled - scaled.max())
        return int(self._random.choice(len(weights), p=weights / weights.sum()))

    def close(self) -> None:
        """Free the grammar; a second close does nothing."""
        if self._grammar is not None:
            llama_cpp.llama_sampler_free(self._grammar)
            self._grammar = None
