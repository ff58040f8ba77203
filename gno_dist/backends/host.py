"""A host holds one open backend and answers batches of encoded calls; the same in every process.

It is what InlinePool runs in a thread and what a Ray actor wraps. A bad call gives a fault in its
place and never an exception; only losing the process loses a batch.
"""

import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import orjson

from gno_dist.backends.base import Backend, open_backend
from gno_dist.calls import Call, Fault, PoolSpec, Reply
from gno_dist.errors import BackendError, GnoDistError
from gno_dist.files import printable
from gno_dist.records import Usage


def encode_call(call: Call) -> bytes:
    """A call as it travels: method and arguments, UTF-8 JSON."""
    return b'{"args":' + call.args_json + b',"method":"' + call.method.encode("ascii") + b'"}'


def decode_reply(data: bytes) -> Reply | Fault:
    """A travelling reply as a value."""
    message = orjson.loads(data)
    if "error" in message:
        return Fault(message["error"], message["message"])
    return Reply(message["value"], message["ms"], Usage(**message["usage"]), encoded=data)


def encode_reply(reply: Reply) -> bytes:
    """A reply as it travels and as the cache keeps it.

    Raises:
        ValueError: a number in it is not finite; JSON would silently hold null for it.
    """
    message = {"value": reply.value, "ms": reply.ms, "usage": reply.usage}
    data = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in data:
        _refuse_non_finite(reply.value)
    return data


def _refuse_non_finite(value: Any) -> None:
    if isinstance(value, Mapping):
        value = value.values()
    elif isinstance(value, Real):
        if not math.isfinite(value):
            raise ValueError(f"a number in the reply is not finite: {float(value)!r}")
        return
    elif not isinstance(value, list | tuple):
        return
    for inner in value:
        _refuse_non_finite(inner)


class Host:
    """One backend in one process; used from one thread at a time."""

    def __init__(self, spec: PoolSpec, threads: int) -> None:
        self._spec = spec
        self._threads = threads
        self._backend: Backend | None = None

    def start(self) -> dict[str, Any]:
        """Open the backend; returns facts about it, its process and how long opening took.

        Raises:
            BackendError: as ``open_backend``.
        """
        started = time.perf_counter()
        spec = self._spec
        try:
            self._backend = open_backend(spec.kind, spec.identity, spec.location, self._threads)
        except GnoDistError:
            raise
        except Exception as exc:  # a library's own error: say whose, without its traceback
            raise BackendError(spec.label, f"cannot be opened: {_said(exc)}") from exc
        return {
            **self._backend.info(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "threads": self._threads,
            "load_s": time.perf_counter() - started,
        }

    def run(self, batch: Sequence[bytes]) -> list[bytes]:
        """Answer a batch; one reply or fault a call, in order.

        Raises:
            BackendError: the host was not started.
        """
        if self._backend is None:
            raise BackendError(self._spec.label, "not open")
        return [self._answer(self._backend, orjson.loads(data)) for data in batch]

    def timed(self, batch: Sequence[bytes]) -> tuple[list[bytes], float]:
        """``run``, and the seconds it took."""
        started = time.perf_counter()
        return self.run(batch), time.perf_counter() - started

    def _answer(self, backend: Backend, message: Mapping[str, Any]) -> bytes:
        started = time.perf_counter()
        try:
            handled = backend.handle(message["method"], message["args"])
            ms = (time.perf_counter() - started) * 1000.0
            return encode_reply(Reply(handled.value, ms, handled.usage))
        except Exception as exc:  # a bad call must not take its neighbours with it
            return orjson.dumps({"error": type(exc).__name__, "message": printable(str(exc))[:500]})

    def stop(self) -> None:
        """Close the backend; a second stop does nothing."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None


def _said(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"
