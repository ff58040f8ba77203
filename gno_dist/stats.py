"""Intervals, paired tests and sums; pure, order-free and never more certain than the sample.

The unit of every sample is the case: trials of one case are averaged before. Values that differ by
no more than rounding count as equal, since the spread of such dust would claim a certainty that
nothing supports. Every function raises ValueError for a number that is not finite or lies outside
the range given for it. numpy and scipy are imported where they are used, which keeps imports cheap.
"""

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Values = Iterable[float]

ROUNDING = 1e-12
"""Differences up to this share of the numbers they come from are rounding."""
EXACT_LIMIT = 20
"""Sign patterns of up to this many differences are enumerated: at most 2^19 sums, 4 MB."""
MOST_CASES = 10**9


class Interval(NamedTuple):
    """Where a mean lies with confidence ``level``; ``method`` is printed beside it."""

    low: float
    high: float
    level: float
    method: str


class PairedResult(NamedTuple):
    """What a paired comparison says: differences are a - b, p is two-sided, a win is a > b."""

    n: int
    mean_difference: float
    interval: Interval | None
    p_value: float
    method: str
    wins: int
    ties: int
    losses: int


class ExactSum:
    """A running sum without rounding error: the same value in any order and any grouping.

    It is held as floats that do not overlap, whose total is exact (Shewchuk, DCG 1997).
    """

    def __init__(self) -> None:
        self._partials: list[float] = []

    def add(self, x: float) -> None:
        """Add one number; OverflowError when the sum leaves the range of floats."""
        high, kept = _finite([x])[0], []
        for partial in self._partials:
            large, small = (high, partial) if abs(high) > abs(partial) else (partial, high)
            high = large + small
            if error := small - (high - large):
                kept.append(error)
        if not math.isfinite(high):
            raise OverflowError("the sum is beyond the range of floats")
        self._partials = [*kept, high]

    def merge(self, other: "ExactSum") -> None:
        """Add everything that was added to ``other``, which stays as it is."""
        for partial in tuple(other._partials):
            self.add(partial)

    def value(self) -> float:
        """The float nearest to the exact sum; 0.0 when nothing was added."""
        return math.fsum(self._partials)


def mean(values: Values) -> float:
    """The arithmetic mean by exact summation; ValueError when there are no values."""
    data = _finite(values)
    if not data:
        raise ValueError("there is no mean of no values")
    return math.fsum(data) / len(data)


def mean_interval(
    values: Values, *, low: float | None = 0.0, high: float | None = 1.0, level: float = 0.95
) -> Interval | None:
    """Confidence interval of the mean, by the method that holds for such a sample.

    1. All values 0 or 1 on a [0, 1] scale: ``Wilson`` score interval (Wilson, JASA 1927).
    2. All equal: ``constant-sample bound``. A share q of the population may lie elsewhere and
       still be missed by n draws with probability (1-q)^n, so with confidence ``level`` q is at
       most 1 - (1-level)^(1/n) (rule of three, Hanley and Lippman-Hand, JAMA 1983); the mean
       moves by at most that share of the way to either end of the scale.
    3. Otherwise Student's ``t`` with n-1 degrees of freedom, clipped to the scale.

    Args:
        values: one a case, within the scale.
        low: least value of the scale; None when it has no such end.
        high: greatest value of the scale, or None.
        level: coverage, between 0 and 1.

    Returns:
        None for a sample that supports none: empty, one value other than 0 or 1, or constant on a
        scale that lacks an end.
    """
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    data = _finite(values, least, most)
    n, half = len(data), _t_half_width(data, level)
    if n and (least, most) == (0.0, 1.0) and set(data) <= {0.0, 1.0}:
        return _wilson(sum(data), n, level)
    if half is not None:
        return Interval(max(least, mean(data) - half), min(most, mean(data) + half), level, "t")
    if n < 2 or math.isinf(most - least):
        return None
    centre, share = mean(data), -math.expm1(math.log1p(-level) / n)
    least, most = centre - share * (centre - least), centre + share * (most - centre)
    return Interval(least, most, level, "constant-sample bound")


def percentile(values: Values, p: float) -> float:
    """The p-th percentile (0..100) by nearest rank: the value at rank max(1, ceil(p n / 100))."""
    data = sorted(_finite(values))
    if not data or not 0 <= p <= 100:
        raise ValueError(f"there is no percentile {p!r} of {len(data)} values")
    # p * n first: 55 / 100 * 100 is above 55 in floats, and would give the next rank.
    return data[max(math.ceil(p * len(data) / 100), 1) - 1]


def paired_comparison(
    a: Values, b: Values, *, seed: int, resamples: int = 10_000, level: float = 0.95
) -> PairedResult:
    """Compare two arms over the same cases by Fisher's randomisation test on the differences.

    Under the null hypothesis each difference is as likely with the other sign. p is the share of
    sign patterns whose sum is at least as far from 0 as the observed one; patterns that reach it
    but for rounding count. Neither the order of the cases nor which arm comes first changes p.
    Sources: Fisher, The Design of Experiments, 1935; Smucker et al., CIKM 2007; Phipson and
    Smyth, SAGMB 2010, for (hits + 1) / (resamples + 1).

    Args:
        a: shape ``(n,)``, n >= 1, one value a case.
        b: shape ``(n,)``, the same cases in the same order.
        seed: of the sampled sign patterns; 0 or more.
        resamples: how many are sampled when more than 20 differences are not 0; 1 or more.
        level: coverage of the interval.

    Returns:
        ``method``: exact randomisation, Monte Carlo randomisation or, when no case differs,
        identical (p = 1). ``interval``: Student's t of the differences; None for n < 2 or equal
        differences (0 or not): a sample without spread on a scale without ends bounds nothing.
    """
    first, second = _finite(a), _finite(b)
    if len(first) != len(second) or not first or resamples < 1:
        raise ValueError(f"{len(first)} and {len(second)} values, {resamples} resamples: no test")
    pairs = list(zip(first, second, strict=True))
    sizes = [max(abs(x), abs(y)) for x, y in pairs]
    # Dust left by the subtraction is a tie, not a win.
    differences = [0.0 if math.isclose(x, y, rel_tol=ROUNDING) else x - y for x, y in pairs]
    n, centre, half = len(pairs), mean(differences), _t_half_width(differences, level, max(sizes))
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    # The least sum that counts as a hit: rounding of the inputs must not decide a tie.
    least = abs(math.fsum(differences)) - ROUNDING * math.fsum(sizes)
    # A random sign times d is distributed as a random sign times |d|: sorted sizes free the
    # sampled p from the order of the cases and of the arms.
    p_value, method = _randomise(sorted(abs(d) for d in differences if d), least, seed, resamples)
    interval = None if half is None else Interval(centre - half, centre + half, level, "t")
    return PairedResult(n, centre, interval, p_value, method, wins, n - wins - losses, losses)


def _randomise(sizes: list[float], least: float, seed: int, resamples: int) -> tuple[float, str]:
    import numpy as np

    if not sizes:
        return 1.0, "identical"
    if len(sizes) <= EXACT_LIMIT:
        # A pattern and its mirror image are equally far from 0: the first sign stays fixed.
        sums = np.array(sizes[:1])
        for size in sizes[1:]:
            sums = np.concatenate([sums + size, sums - size])
        return float(np.count_nonzero(np.abs(sums) >= least) / len(sums)), "exact randomisation"
    # Raw words: numpy promises the stream of a bit generator, not that of its distributions.
    source, words = np.random.PCG64(seed), -(-len(sizes) // 64)
    block, hits, weights = max(1, 2**14 // words), 0, np.array(sizes)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        raw = source.random_raw(rows * words).astype("<u8").view(np.uint8)
        signs = np.unpackbits(raw).reshape(rows, words * 64)[:, : len(sizes)] * 2.0 - 1.0
        hits += int(np.count_nonzero(np.abs(signs @ weights) >= least))
    return (hits + 1) / (resamples + 1), "Monte Carlo randomisation"


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values in [0, 1] for their number; positions stay (Holm, Scand. J. Stat. 1979)."""
    checked = _finite(p_values, 0.0, 1.0)
    adjusted, floor = [0.0] * len(checked), 0.0
    for rank, index in enumerate(sorted(range(len(checked)), key=checked.__getitem__)):
        floor = max(floor, min(1.0, (len(checked) - rank) * checked[index]))
        adjusted[index] = floor
    return adjusted


def minimum_detectable_effect(
    differences: Values, *, level: float = 0.95, power: float = 0.8
) -> float | None:
    """The least true mean difference that a paired test at this n finds with this power.

    (t_{1-alpha/2, n-1} + t_{power, n-1}) * sd / sqrt(n), alpha = 1 - level, 0.5 < power < 1
    (Bloom, Evaluation Review 1995). None for n < 3 or differences without spread.
    """
    detectable = _detectable(data := _finite(differences), level, power)
    return None if detectable is None else detectable(len(data))


def cases_needed(
    differences: Values, effect: float, *, level: float = 0.95, power: float = 0.8
) -> int | None:
    """The least n >= 3 at which ``effect`` > 0 is detectable, at the spread of a pilot.

    None when the pilot has n < 3 or no spread, or when the answer exceeds ``MOST_CASES``.
    """
    if not 0 < effect < math.inf:
        raise ValueError(f"effect must be finite and greater than 0, not {effect!r}")
    detectable = _detectable(_finite(differences), level, power)
    if detectable is None or detectable(MOST_CASES) > effect:
        return None
    return bisect.bisect_left(range(MOST_CASES), True, 3, key=lambda n: detectable(n) <= effect)


def worst_case_bounds(values: Values, n_missing: int, low: float = 0, high: float = 1) -> Interval:
    """The means if all missing values were at the low and at the high end of the scale: certain."""
    data = _finite(values, low, high)
    n = len(data) + n_missing
    if n_missing < 0 or n == 0:
        raise ValueError(f"no bounds for {len(data)} values and {n_missing} missing")
    means = [math.fsum([*data, n_missing * end]) / n for end in (low, high)]
    return Interval(means[0], means[1], 1.0, "worst case")


def _finite(values: Values, low: float = -math.inf, high: float = math.inf) -> list[float]:
    data = [float(value) for value in values]
    for value in data:
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a finite number in [{low:g}, {high:g}]")
    return data


def _check_share(name: str, value: float, least: float = 0.0) -> None:
    if not least < value < 1:
        raise ValueError(f"{name} must lie between {least:g} and 1, not {value!r}")


def _deviation(data: Sequence[float], size: float | None) -> float | None:
    """Sample standard deviation (n - 1), by deviations scaled so that squares keep in range.

    None when n < 2 or all differ by no more than rounding at magnitude ``size`` (or their own).
    """
    if len(data) < 2 or max(data) - min(data) <= ROUNDING * (size or max(map(abs, data))):
        return None
    centre = mean(data)
    widest = max(abs(value - centre) for value in data)
    squares = math.fsum(((value - centre) / widest) ** 2 for value in data)
    return widest * math.sqrt(squares / (len(data) - 1))


def _t_quantile(p: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, p))


def _t_half_width(data: Sequence[float], level: float, size: float | None = None) -> float | None:
    _check_share("level", level)
    deviation, n = _deviation(data, size), len(data)
    if deviation is None:
        return None
    return _t_quantile((1 + level) / 2, n - 1) * deviation / math.sqrt(n)


def _wilson(hits: float, n: int, level: float) -> Interval:
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    p, weight = hits / n, z * z / n
    centre = (p + weight / 2) / (1 + weight)
    half = z * math.sqrt((p * (1 - p) + weight / 4) / n) / (1 + weight)
    # At the ends the formula gives exactly 0 and 1, but for rounding.
    low = max(0.0, centre - half) if hits > 0 else 0.0
    high = min(1.0, centre + half) if hits < n else 1.0
    return Interval(low, high, level, "Wilson")


def _detectable(data: Sequence[float], level: float, power: float) -> Callable[[int], float] | None:
    """The function n -> detectable effect at the spread of ``data``; None without a spread."""
    _check_share("level", level)
    _check_share("power", power, 0.5)
    deviation = _deviation(data, None) if len(data) > 2 else None
    if deviation is None:
        return None
    found = (1 + level) / 2, power
    return lambda n: sum(_t_quantile(p, n - 1) for p in found) * deviation / math.sqrt(n)
