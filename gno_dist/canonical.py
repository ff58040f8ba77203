"""Canonical JSON (RFC 8785) and the digests built on it; pure.

Identities of units, stages, corpora and backends are digests of canonical JSON, so that key order,
spacing and the spelling of numbers cannot change an identity. Knows nothing of what it hashes.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import rfc8785


def canonical_json(value: Any) -> bytes:
    """Encode ``value`` as RFC 8785 canonical JSON, UTF-8.

    Raises:
        ValueError: NaN, infinities, lone surrogates, or integers beyond 2**53.
        TypeError: a type JSON does not have.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as exc:
        raise ValueError(f"not representable in canonical JSON: {exc}") from exc


def digest(value: Any) -> str:
    """The sha256 of the canonical JSON of ``value``, 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def digest_bytes(data: bytes) -> str:
    """The sha256 of ``data``, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_stream(parts: Iterable[bytes]) -> str:
    """The sha256 over the concatenation of ``parts``, 64 hex digits, without holding them all."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def short(hex_digest: str) -> str:
    """The first 12 hex digits, the form in which identities are shown to people."""
    return hex_digest[:12]
