"""Calls to backends as values: what is asked, of which pool, and the identity of the result.

``Call.id`` is the stage id of the cache: the digest of everything that decides the reply and of
nothing else (no threads, paths, hosts, shards). Units that need the same thing make equal calls.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from gno_dist import canonical
from gno_dist.records import StageName, Usage

CALL_VERSION = 1


class PoolSpec(NamedTuple):
    """A backend as the plan sees it: its identity, and what a worker needs to open it."""

    kind: str
    """``index``, ``llama`` or ``fake``."""
    label: str
    """For people: ``index handbook``, ``llama gemma3-270m-q4``."""
    identity: Mapping[str, Any]
    """Everything that can change a reply; its digest is ``key``."""
    location: Mapping[str, Any]
    """Where to find it (paths, references); never hashed."""
    parts: Mapping[str, str] = {}
    """Method -> digest of the part of the identity that this method reads."""

    @property
    def key(self) -> str:
        """The digest of the identity: pools, actors and cached replies are told apart by it."""
        return canonical.digest({"kind": self.kind, "identity": self.identity})

    def reads(self, method: str) -> str:
        """The digest of what a method's replies depend on."""
        return self.parts.get(method) or self.key


class Call(NamedTuple):
    """One request to a backend."""

    stage: StageName
    pool: str
    method: str
    args_json: bytes
    """The arguments as canonical JSON: what the id is made of and what travels."""
    id: str

    @property
    def args(self) -> Any:
        """The arguments as plain data."""
        return orjson.loads(self.args_json)


def make_call(
    stage: StageName, spec: PoolSpec, key: str, method: str, args: Mapping[str, Any]
) -> Call:
    """Build a call with its id; ``key`` is ``spec.key``, computed once by the caller."""
    args_json = canonical.canonical_json(args)
    # Canonical JSON of {"args", "method", "reads", "v"}, without encoding the arguments again.
    rest = f',"method":"{method}","reads":"{spec.parts.get(method) or key}","v":{CALL_VERSION}}}'
    identity = b'{"args":' + args_json + rest.encode("ascii")
    return Call(stage, key, method, args_json, canonical.digest_bytes(identity))


class Reply(NamedTuple):
    """What a backend answered; ``ms`` is service time inside the backend."""

    value: Any
    ms: float
    usage: Usage
    cached: bool = False
    encoded: bytes = b""
    """The reply as it travelled and as the cache keeps it."""


class Fault(NamedTuple):
    """Why there is no reply."""

    error: str
    message: str
    timed_out: bool = False
    detail: str = ""
    """What else is known of the cause, and may differ each time: a stack, a size."""
