"""The seam between calls and libraries: what every backend offers, and how one is opened by name.

A backend knows its library and answers one call at a time from one thread. It knows nothing of
units, batches, caches or processes.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gno_dist.errors import BackendError
from gno_dist.records import Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Handled(NamedTuple):
    """A backend's answer to one call: a JSON value and the tokens it took."""

    value: Any
    usage: Usage = Usage()


class Backend(Protocol):
    """An open model or index."""

    def handle(self, method: str, args: Mapping[str, Any]) -> Handled:
        """Answer one call.

        Raises:
            Exception: whatever makes this one call impossible; the caller turns it into a fault
                of this call alone.
        """

    def info(self) -> dict[str, Any]:
        """Facts for logs: versions, sizes, load time."""

    def close(self) -> None:
        """Release everything; a second close does nothing."""


class Embedder(Protocol):
    """An embedding model, as an index uses it."""

    def query(self, text: str) -> "NDArray[np.float32]":
        """The unit vector of a query, shape (dimensions,)."""

    def passage(self, text: str) -> "NDArray[np.float32]":
        """The unit vector of a passage, shape (dimensions,)."""


KINDS: dict[str, str] = {
    "index": "gno_dist.backends.index:open_index",
    "llama": "gno_dist.backends.llama:open_llama",
    "fake": "gno_dist.backends.fake:open_fake",
}
"""Kind of pool -> the function that opens its backend; imported only where it is opened."""


def open_backend(
    kind: str, identity: Mapping[str, Any], location: Mapping[str, Any], threads: int
) -> Backend:
    """Open a backend in this process, warm: after this no call pays for loading.

    Args:
        kind: a key of ``KINDS``.
        identity: what the plan hashed; the backend refuses to open anything else.
        location: paths and references.
        threads: threads it may use for one call.

    Raises:
        BackendError: it cannot be opened, or what is there is not what the plan names.
    """
    if kind not in KINDS:
        raise BackendError(kind, f"unknown kind of backend; known are {sorted(KINDS)}")
    module, function = KINDS[kind].split(":")
    try:
        opener = getattr(import_module(module), function)
    except ImportError as exc:
        raise BackendError(kind, f"a package is missing: {exc}; see `gno-dist doctor`") from exc
    backend: Backend = opener(identity, location, threads)
    return backend
