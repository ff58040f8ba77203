"""A fake model for tests of logic and dry runs: deterministic, instant, and named so everywhere.

Its numbers come from digests of its input and mean nothing. It can be told to fail, hang or kill
its process on calls that contain a marker, which is how fault handling is tested. The fake named
``noop`` gives constants, so that what a run costs beside its backends can be measured.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gno_dist import canonical
from gno_dist.backends.base import Handled
from gno_dist.records import Usage


def open_fake(identity: Mapping[str, Any], location: Mapping[str, Any], threads: int) -> "Fake":
    """Open the fake; ``location["faults"]``: marker -> a key of ``MISBEHAVIOURS``."""
    return Fake(str(identity.get("name", "fake")), dict(location.get("faults", {})))


def unit_interval(*parts: Any) -> float:
    """A number in [0, 1) that depends on the parts alone; the fake ``noop`` always gives 0.5."""
    if parts[0] == "noop":
        return 0.5
    return int(canonical.digest(list(parts))[:13], 16) / 16**13


BURNS = 20
_FUEL = bytes(2**20)


def _raise(marker: str) -> None:
    raise RuntimeError(f"fake fault at {marker!r}")


def _burn(marker: str) -> None:
    for _ in range(BURNS):
        canonical.digest_bytes(_FUEL)


MISBEHAVIOURS: Mapping[str, Callable[[str], object]] = {
    "raise": _raise,
    "slow": lambda marker: time.sleep(0.05),
    "burn": _burn,
    "hang": lambda marker: time.sleep(3600),
    "die": lambda marker: os._exit(66),
    "sysexit": lambda marker: sys.exit(67),
    "segfault": lambda marker: ctypes.string_at(0),
    "abort": lambda marker: os.abort(),
    "fill": lambda marker: [bytearray(b"x" * 2**24) for _ in range(256)],
}
"""What a fake can be told to do on calls that contain a marker: ``burn`` takes about 20 ms of one
core, ``slow`` 50 ms without it, ``hang`` an hour, ``fill`` 4 GiB of memory."""


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
                MISBEHAVIOURS[fault](marker)

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
