"""Canonical JSON (RFC 8785) and the digests built on it; pure.

Identities of units, stages, corpora and backends are digests of canonical JSON, so that key order,
spacing and the spelling of numbers cannot change an identity. Knows nothing of what it hashes.
"""

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

import orjson
import rfc8785

_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")
_WHOLE = (b".0,", b".0}", b".0]")
_SIXTEEN = b"0" * 16
_WHOLE_SIXTEEN = tuple(
    start + sign + _SIXTEEN for start in (b":", b",", b"[") for sign in (b"", b"-")
)
_UNUSUAL = re.compile(rb"[:,\[]-?\d+(?:\.0[,\]}]|(?:\.\d+)?e|\d{15})")
"""Numbers that orjson may write otherwise than RFC 8785: whole floats, exponents, large integers.
It starts with one set of characters, to which the search skips; text that matches only costs."""
_BEYOND_BMP = re.compile(rb"[\xf0-\xf4]")
"""Keys that hold such characters are sorted otherwise."""


def canonical_json(value: Any) -> bytes:
    """Encode ``value`` as RFC 8785 canonical JSON, UTF-8.

    orjson writes what both write alike, at a hundredth of the time; the reference library the rest.
    A part that is encoded often may stand in it as ``embed`` gave it.

    Raises:
        ValueError: NaN, infinities, lone surrogates, or integers beyond 2**53.
        TypeError: a type JSON does not have.
    """
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except TypeError:  # orjson's own errors, and keys that are no strings
        return _reference(value)
    if b"null" in data and not _finite(value):  # orjson writes null for NaN
        return _reference(value)
    return data if _is_canonical(data) else _reference(value)


def canonical_parsed(value: Any) -> bytes:
    """``canonical_json`` of a value that came from a JSON parser, so that null means null."""
    data = orjson.dumps(value, option=_OPTIONS)
    return data if _is_canonical(data) else _reference(value)


def _is_canonical(data: bytes) -> bool:
    if data[0] not in b'{["':  # a number alone, true, false, null
        return False
    if not data.isascii() and _BEYOND_BMP.search(data):
        return False
    # Substrings are found ten times faster than patterns, and single characters faster still. The
    # digits are read as 0, so that few digests of 64 hex digits look like a long number.
    digits = data.translate(_DIGITS_AS_0)
    if not (
        (b".0" in data and any([end in data for end in _WHOLE]))
        or (b"+" in data and b"e+0" in digits)
        or (b"-" in data and b"e-0" in digits)
        or (_SIXTEEN in digits and any([start in digits for start in _WHOLE_SIXTEEN]))
    ):
        return True
    return _UNUSUAL.search(data) is None


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))


def embed(value: Any) -> orjson.Fragment:
    """``value`` encoded once, to stand as a part of other values."""
    return orjson.Fragment(canonical_json(value))


def _reference(value: Any) -> bytes:
    try:
        return rfc8785.dumps(_without_fragments(value))
    except rfc8785.CanonicalizationError as exc:
        raise ValueError(f"not representable in canonical JSON: {exc}") from exc


def _without_fragments(value: Any) -> Any:
    if isinstance(value, orjson.Fragment):
        return orjson.loads(orjson.dumps(value))
    if isinstance(value, dict):
        return {key: _without_fragments(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_fragments(inner) for inner in value]
    return value


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
