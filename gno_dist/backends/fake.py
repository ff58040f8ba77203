"""A fake model for tests of logic and dry runs: deterministic, instant, and named so everywhere.

Its numbers come from digests of its input and mean nothing. It can be told to fail, hang or kill
its process on calls that contain a marker, which is how fault handling is tested. The fake named
``noop`` gives constants, so that what a run costs beside its backends can be measured.
"""

import ctypes
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gno_dist import canonical
from gno_dist.backends.base import Handled
from gno_dist.records import Usage


def open_fake(identity: Mapping[str, Any], location: Mapping[str, Any], threads: int) -> "Fake":
    """Open the fake; ``location["faults"]``: marker -> what happens to such a call.

    ``raise``, ``hang`` (an hour), ``slow`` (50 ms), ``die`` or ``sysexit`` (exit), ``segfault``,
    ``abort`` or ``fill`` (4 GiB).
    """
    return Fake(str(identity.get("name", "fake")), dict(location.get("faults", {})))


def unit_interval(*parts: Any) -> float:
    """A number in [0, 1) that depends on the parts alone; the fake ``noop`` always gives 0.5."""
    if parts[0] == "noop":
        return 0.5
    return int(canonical.digest(list(parts))[:13], 16) / 16**13


class Fake:
    """Answers every method of the language-model backends."""

    def __init__(self, name: str, faults: dict[str, str]) -> None:
        self._name = name
        self._faults = faults

    def handle(self, method: str, args: Mapping[str, Any]) -> Handled:
        """Answer from the digest of the call."""
        content = orjson.dumps(args)
        if self._faults:
            self._misbehave(content.decode("utf-8"))
        usage = Usage(input_tokens=len(content) // 4, output_tokens=1)
        if method == "loglik":
            values = [-50.0 * unit_interval(self._name, item) for item in args["items"]]
            return Handled({"logprobs": values, "tokens": [4 for _ in values]}, usage)
        if method == "labels":
            rows = [
                [-3.0 * unit_interval(self._name, question, label) for label in question["labels"]]
                for question in args["questions"]
            ]
            return Handled({"logprobs": rows}, usage)
        if method == "generate":
            text = (
                ' {"lexicalQueries": ["fake words"], "vectorQueries": ["fake question?"]}'
                if args["grammar"]
                else f" Fake answer {canonical.digest(args['prefix'])[:6]}. [1]"
            )
            return Handled({"text": text, "tokens": 4, "truncated": False}, usage)
        raise ValueError(f"unknown method {method!r}")

    def _misbehave(self, content: str) -> None:
        for marker, fault in self._faults.items():
            if marker in content:
                if fault == "die":
                    os._exit(66)
                if fault == "sysexit":
                    sys.exit(67)
                if fault == "fill":
                    self._ballast = [bytearray(b"x" * 2**24) for _ in range(256)]
                if fault == "segfault":
                    ctypes.string_at(0)
                if fault == "abort":
                    os.abort()
                if fault == "hang":
                    time.sleep(3600)
                if fault == "slow":
                    time.sleep(0.05)
                    continue
                raise RuntimeError(f"fake fault at {marker!r}")

    def info(self) -> dict[str, Any]:
        """Says that it is a fake."""
        return {"backend": "fake", "name": self._name}

    def close(self) -> None:
        """Nothing to release."""


DIMENSIONS = 64


def embedder_identity() -> dict[str, Any]:
    """Identity of the fake embedder."""
    return {"backend": "fake", "dimensions": DIMENSIONS}


class FakeEmbedder:
    """Vectors from word digests: texts that share words are near, and nothing else is meant."""

    def query(self, text: str) -> NDArray[np.float32]:
        """The sum of the words' random directions, scaled to length 1, shape (64,)."""
        total = np.zeros(DIMENSIONS)
        for word in text.lower().split() or [""]:
            seed = int(canonical.digest(word)[:8], 16)
            total += np.random.Generator(np.random.PCG64(seed)).normal(size=DIMENSIONS)
        return (total / np.linalg.norm(total)).astype(np.float32)

    def passage(self, text: str) -> NDArray[np.float32]:
        """As ``query``."""
        return self.query(text)
