import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist.scorers import has_citations, latency_score, valid_citations

repeatable = settings(deadline=None, derandomize=True, max_examples=200)


@pytest.mark.parametrize(
    ("duration_ms", "specification", "gno"),
    [
        (0, 1.0, 1.0),
        (500, 1.0, 1.0),  # the budget itself is within the budget
        (600, 0.8, 0.9),  # 1 - 100/500, 1 - 100/1000
        (750, 0.5, 0.75),  # 1 - 250/500, 1 - 250/1000
        (1000, 0.0, 0.5),  # twice the budget
        (1500, 0.0, 0.0),  # three times the budget
        (1e12, 0.0, 0.0),
    ],
)
def test_latency_score(duration_ms, specification, gno):
    assert latency_score(duration_ms, 500) == pytest.approx(specification, abs=1e-12)
    assert latency_score(duration_ms, 500, decay="gno") == pytest.approx(gno, abs=1e-12)


@given(st.floats(0, 1e300), st.floats(0, 1e300), st.floats(1e-300, 1e300))
@repeatable
def test_latency_score_falls_within_range(first, second, budget):
    for decay in ("specification", "gno"):
        slow, fast = (
            latency_score(duration, budget, decay=decay)
            for duration in sorted((first, second), reverse=True)
        )
        assert 0.0 <= slow <= fast <= 1.0


@pytest.mark.parametrize(
    ("duration_ms", "budget_ms"),
    [(1, 0), (1, -5), (1, math.inf), (1, math.nan), (-1, 5), (math.nan, 5), (math.inf, 5)],
)
def test_latency_score_rejects_what_is_no_time(duration_ms, budget_ms):
    with pytest.raises(ValueError, match="must be finite"):
        latency_score(duration_ms, budget_ms)


def test_latency_score_rejects_an_unknown_decay():
    with pytest.raises(ValueError, match="specification, gno, not 'linear'"):
        latency_score(1, 1, decay="linear")


def test_has_citations():
    assert has_citations(()) == 0.0
    assert has_citations(("a",)) == 1.0
    assert has_citations(("",)) == 1.0  # an empty docid is a (bad) citation, not none


@pytest.mark.parametrize(
    ("citations", "expected"),
    [
        ((), None),
        (("a",), 1.0),
        (("x",), 0.0),
        (("a", "x"), 1 / 2),
        (("a", "a", "a", "x"), 1 / 2),  # repeating a good citation hides nothing
        (("a", "b", "x"), 2 / 3),
        (("A",), 0.0),
    ],
)
def test_valid_citations(citations, expected):
    assert valid_citations(citations, ("a", "b")) == expected
    assert valid_citations(citations, ()) == (0.0 if citations else None)
