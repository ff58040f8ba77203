"""Canonical JSON: one value, one byte string; published vectors and the digests built on them."""

import hashlib
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist.canonical import canonical_json, digest, digest_bytes, digest_stream

repeatable = settings(deadline=None, derandomize=True, max_examples=150)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # RFC 8785, section 3.2.2: numbers as ECMAScript prints them, escapes as short as may be.
        (
            [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
            "[333333333.3333333,1e+30,4.5,0.002,1e-27]",
        ),
        ("\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/", r'"€$\u000f\nA' + "'" + r'B\"\\\\\"/"'),
        ([None, True, False], "[null,true,false]"),
        # Section 3.2.3: keys by UTF-16 code units. The emoji starts with 0xD83D, below U+FB33.
        (
            {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7},
            '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
        ),
        # Appendix B: borders of number formats.
        (1e21, "1e+21"),
        (999999999999999900000.0, "999999999999999900000"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (5e-324, "5e-324"),
        (-0.0, "0"),
        (2.0, "2"),
        ({}, "{}"),
        ((1, 2), "[1,2]"),
    ],
)
def test_published_vectors(value: Any, expected: str) -> None:
    assert canonical_json(value) == expected.encode("utf-8")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2**53, "\ud800"])
def test_what_json_cannot_hold_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="not representable in canonical JSON"):
        canonical_json({"a": [value]})


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), {1: "key is no text"}])
def test_what_json_has_no_type_for_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        canonical_json(value)


@given(JSON)
@repeatable
def test_it_equals_the_reference_library(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        {"text 2.0": '1.0 "3.0" \\', "n": [2.0, -0.0, 0.05, -10.0, 1e15, 1e16, 123456789012345.0]},
        [1.0, "2.0", '\\"3.0', None, -1.0],
        {"\ue000": 1.0, "\U0001f600": 2},
        ["null", 1.5],
    ],
)
def test_strings_that_look_like_numbers_stay(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


def test_nan_beside_null_is_found() -> None:
    with pytest.raises(ValueError, match="canonical"):
        canonical_json({"a": None, "b": float("nan")})


@given(JSON)
@repeatable
def test_it_reads_back_as_the_same_value(value: Any) -> None:
    # Every number is a double; json.loads alone would take 65522525018062050 for an exact integer.
    assert json.loads(canonical_json(value), parse_int=float) == value


@given(st.dictionaries(st.text(), JSON), st.randoms())
@repeatable
def test_key_order_does_not_matter(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert digest({key: value[key] for key in keys}) == digest(value)


@given(INTEGERS)
@repeatable
def test_the_spelling_of_a_number_does_not_matter(number: int) -> None:
    assert digest(number) == digest(float(number))


@given(JSON, JSON)
@repeatable
def test_different_values_have_different_digests(one: Any, two: Any) -> None:
    # json.dumps keeps True apart from 1; == does not.
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    if same:
        assert digest(one) == digest(two)
    elif one != two:
        assert digest(one) != digest(two)
    assert digest([one, two]) != digest([[one], two])


def test_digests_are_sha256() -> None:
    # `printf '{"a":1}' | sha256sum`
    expected = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    assert digest({"a": 1}) == expected
    assert digest_bytes(b'{"a":1}') == expected
    # The published digest of the empty string.
    assert digest_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(st.lists(st.binary(max_size=20), max_size=8))
@repeatable
def test_a_stream_has_the_digest_of_its_whole(parts: list[bytes]) -> None:
    assert digest_stream(iter(parts)) == hashlib.sha256(b"".join(parts)).hexdigest()
