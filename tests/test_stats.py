import itertools
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gno_dist import stats
from gno_dist.stats import mean_interval, paired_comparison

repeatable = settings(deadline=None, derandomize=True, max_examples=150)
NOT_FINITE = [[math.nan, 0.5], [0.5, math.inf], [-math.inf, 0.5]]


@pytest.mark.parametrize(
    ("message", "function", "arguments", "options"),
    [("no mean", stats.mean, [[]], {}), ("no percentile", stats.percentile, [[], 50], {})]
    + [("no percentile", stats.percentile, [[1], p], {}) for p in (-1, 101)]
    + [("finite number in", mean_interval, [bad], {}) for bad in ([1.5], [-0.1, 0.5])]
    + [("no test", paired_comparison, arms, {"seed": 0}) for arms in ([[], []], [[1], [1, 2]])]
    + [("0 resamples", paired_comparison, [[1], [2]], {"seed": 0, "resamples": 0})]
    + [("level", paired_comparison, [[1], [2]], {"seed": 0, "level": 95})]
    + [("level", mean_interval, [[0.5, 0.6]], {"level": level}) for level in (0, 1, math.nan)]
    + [("finite number in", stats.holm, [[0.5, bad]], {}) for bad in (-0.1, 1.1)]
    + [("effect", stats.cases_needed, [[1, 2, 3], bad], {}) for bad in (0, -1, math.inf, math.nan)]
    + [("power", stats.minimum_detectable_effect, [[1, 2]], {"power": p}) for p in (0.3, 1)]
    + [("no bounds", stats.worst_case_bounds, [[0.5] * n, -n], {}) for n in (0, 1)]
    + [("finite number in", stats.worst_case_bounds, [[1.5], 1], {})]
    + [("not a finite", f, [bad], {}) for f in (stats.mean, stats.holm) for bad in NOT_FINITE]
    + [("not a finite", stats.minimum_detectable_effect, [bad], {}) for bad in NOT_FINITE]
    + [("not a finite", stats.percentile, [bad, 50], {}) for bad in NOT_FINITE]
    + [("not a finite", stats.cases_needed, [bad, 0.1], {}) for bad in NOT_FINITE]
    + [("not a finite", stats.worst_case_bounds, [bad, 1], {}) for bad in NOT_FINITE]
    + [("not a finite", mean_interval, [bad], {"high": None}) for bad in NOT_FINITE]
    + [("not a finite", paired_comparison, [bad, [1, 1]], {"seed": 0}) for bad in NOT_FINITE]
    + [("not a finite", paired_comparison, [[1, 1], bad], {"seed": 0}) for bad in NOT_FINITE]
    + [("not a finite", stats.ExactSum().add, [bad], {}) for bad in (math.nan, -math.inf)],
)
def test_bad_input(message, function, arguments, options):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **options)


def exact(values):
    total = stats.ExactSum()
    for number in values:
        total.add(number)
    return total


class TestSums:
    @given(st.lists(st.floats(-1e150, 1e150), max_size=30), st.randoms(), st.integers(1, 6))
    @repeatable
    def test_exact_sum_is_free_of_order_and_grouping(self, values, random, n_parts):
        shuffled = random.sample(values, len(values))
        merged, *others = [exact(shuffled[start::n_parts]) for start in range(n_parts)]
        for part in others:
            merged.merge(part)
        assert merged.value() == exact(values).value() == math.fsum(values)

    def test_sums_by_hand(self):
        assert stats.mean([0.1] * 10) == 0.1  # added one by one they give 0.09999999999999999
        total = exact([1e100, 1.0, -1e100])
        assert total.value() == 1.0
        total.merge(total)
        assert pickle.loads(pickle.dumps(total)).value() == 2.0
        assert stats.ExactSum().value() == 0.0
        total = exact([1.7e308])
        with pytest.raises(OverflowError):
            total.add(1.7e308)
        assert total.value() == 1.7e308  # what it refused did not change it


class TestMeanInterval:
    def test_wilson(self):
        # z^2 = 3.84146. All of n hit: [n / (n + z^2), 1] = [29 / 32.84146, 1]; n = 1: 1 / 4.84146.
        assert mean_interval([1.0] * 29) == pytest.approx((0.88303, 1.0, 0.95, "Wilson"), abs=1e-5)
        assert mean_interval([0.0] * 29)[:2] == pytest.approx((0.0, 0.11697), abs=1e-5)
        assert mean_interval([1.0])[:2] == pytest.approx((0.20655, 1.0), abs=1e-5)
        # p = .5, n = 10: .5 +- 1.95996 sqrt((.25 + .09604) / 10) / 1.38415 = .5 +- .26341
        assert mean_interval([0, 1] * 5)[:2] == pytest.approx((0.23659, 0.76341), abs=1e-5)

    def test_student(self):
        # mean .5; squares .04+.01+0+.01+.04 = .1, sd = sqrt(.1/4) = .158114;
        # t(.975, 4) = 2.776445; half = 2.776445 * .158114 / 2.236068 = .196324.
        found = mean_interval([0.3, 0.4, 0.5, 0.6, 0.7])
        assert found[:2] == pytest.approx((0.303676, 0.696324), abs=1e-6)
        assert found.method == "t"
        # t(.975, 1) = 12.7062 leaves the scale on both sides; .2 * 12.7062 = 2.54124.
        assert mean_interval([0.3, 0.7])[:2] == (0.0, 1.0)
        unbounded = mean_interval([0.3, 0.7], low=None, high=None)
        assert unbounded[:2] == pytest.approx((-2.04124, 3.04124), abs=1e-5)
        assert mean_interval([0.3, 0.7], high=None).low == 0.0
        # Hits and misses of a scale with other ends are no shares.
        assert mean_interval([0, 1, 1], high=3.0).method == "t"

    def test_constant_samples_are_never_certain(self):
        # 1 - .05^(1/29) = 1 - exp(-2.995732 / 29) = 1 - exp(-.103301) = .098144
        found = mean_interval([0.5] * 29)
        assert found[:2] == pytest.approx((0.5 - 0.049072, 0.5 + 0.049072), abs=1e-6)
        assert found.method == "constant-sample bound"
        # On a scale 0..4 a constant 4 has nothing above it: 4 - 4 * .098144.
        assert mean_interval([4] * 29, high=4)[:2] == pytest.approx((3.607422, 4.0), abs=1e-6)
        # Equal but for rounding is equal: .1 + .2 is not .3 in floats.
        assert mean_interval([0.3, 0.1 + 0.2] * 5).method == "constant-sample bound"

    def test_nothing_to_go_by(self):
        assert mean_interval([]) is mean_interval([0.5]) is mean_interval([1.0], high=4.0) is None
        assert mean_interval([0.5] * 29, high=None) is mean_interval([0.5] * 29, low=None) is None

    @given(st.lists(st.floats(0, 1), min_size=1), st.randoms(), st.sampled_from([0.8, 0.95, 0.99]))
    @repeatable
    def test_holds_the_mean_has_a_width_and_no_order(self, values, random, level):
        found = mean_interval(values, level=level)
        assert found == mean_interval(random.sample(values, len(values)), level=level)
        if found is not None:
            assert 0 <= found.low <= stats.mean(values) <= found.high <= 1
            assert found.low < found.high

    @pytest.mark.parametrize(("n", "rate"), [(29, 0.97), (9, 0.9), (29, 0.5), (100, 0.2)])
    def test_wilson_covers(self, n, rate):
        # Exact: the probability of every number of hits whose interval holds the true rate.
        covered = sum(
            math.comb(n, hits) * rate**hits * (1 - rate) ** (n - hits)
            for hits in range(n + 1)
            if (found := mean_interval([1] * hits + [0] * (n - hits))).low <= rate <= found.high
        )
        assert 0.93 < covered < 0.98

    def test_student_covers(self):
        samples = np.random.default_rng(11).beta(2, 3, size=(2000, 29))  # mean 2/5
        found = [mean_interval(sample) for sample in samples.tolist()]
        covered = sum(interval.low <= 0.4 <= interval.high for interval in found) / 2000
        assert covered == pytest.approx(0.95, abs=four_errors(0.95, 2000))


@pytest.mark.parametrize(
    ("n", "p", "rank"),
    [(10, 0, 1), (10, 1, 1), (10, 50, 5), (10, 95, 10), (20, 95, 19), (10, 100, 10), (1, 50, 1)]
    + [(100, 55, 55), (100, 7, 7), (1000, 99.9, 999)],  # 55 / 100 * 100 > 55 in floats
)
def test_percentile_is_the_nearest_rank(n, p, rank):
    assert stats.percentile(range(n, 0, -1), p) == rank


def four_errors(rate, n):
    return 4 * math.sqrt(rate * (1 - rate) / n)


def unit_spread(n):
    """n numbers of mean 0 and standard deviation 1, to rounding."""
    values = np.arange(n) - (n - 1) / 2
    return (values / values.std(ddof=1)).tolist()


def rejected(a, b, **options):
    found = [paired_comparison(*rows, seed=1, **options) for rows in zip(a, b, strict=True)]
    return sum(result.p_value <= 0.05 for result in found) / len(found)


def sign_flips(differences):
    # Over whole numbers, so that nothing rounds.
    sums = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product([1, -1], repeat=len(differences))
    ]
    return sum(total >= abs(sum(differences)) for total in sums) / len(sums)


class TestPairedComparison:
    def test_by_hand(self):
        # Of 8 sums of +-1 +-2 +-3 two reach 6. mean 2, sd 1, t(.975, 2) = 4.302653:
        # half = 4.302653 / sqrt(3) = 2.484138.
        found = paired_comparison([1, 2, 3], [0, 0, 0], seed=0)
        assert found[:2] == (3, 2.0)
        assert found.interval[:2] == pytest.approx((-0.484138, 4.484138), abs=1e-6)
        assert found[3:] == (0.25, "exact randomisation", 3, 0, 0)
        # +-3 +-1 +-2: 6, 4, 2, 0, twice each; three quarters reach |3 + 1 - 2| = 2.
        found = paired_comparison([3, 1, 0, 5], [0, 0, 2, 5], seed=0)
        assert found[3:] == (0.75, "exact randomisation", 2, 1, 1)

    @given(st.lists(st.integers(-9, 9), min_size=1, max_size=8), st.floats(-5, 5))
    @repeatable
    def test_exact_p_equals_the_listing_of_all_patterns(self, differences, base):
        # Tenths on top of a base: sums that tie in truth differ by rounding, and must count.
        a = [base + d / 10 for d in differences]
        found = paired_comparison(a, [base] * len(a), seed=0)
        assert found.p_value == sign_flips(differences)
        assert found.wins + found.ties + found.losses == found.n
        assert found.ties == differences.count(0)

    @pytest.mark.parametrize("n", [1, 12, 20, 21, 70])
    def test_order_and_direction_do_not_show(self, n):
        a, b = np.random.default_rng(n).normal(size=(2, n)).tolist()
        found = paired_comparison(a, b, seed=3)
        assert paired_comparison(a[::-1], b[::-1], seed=3) == found
        mirrored = paired_comparison(b, a, seed=3)
        assert (mirrored.p_value, mirrored.losses) == (found.p_value, found.wins)
        assert mirrored.mean_difference == -found.mean_difference
        assert found.method.startswith("exact" if n <= 20 else "Monte Carlo")

    def test_sampled_p_is_near_the_exact_one(self):
        a = np.random.default_rng(5).normal(0.4, 1, size=20).tolist()
        exactly = paired_comparison(a, [0] * 20, seed=0).p_value
        # A 21st difference too small to matter makes it sample. 4 standard errors of B = 10 000.
        sampled = paired_comparison([*a, 1e-9], [0] * 21, seed=0).p_value
        assert sampled == pytest.approx(exactly, abs=4 * math.sqrt(exactly / 10_000))

    def test_seed(self):
        a, b = np.random.default_rng(6).normal(0.3, 1, size=(2, 130)).tolist()
        found = [paired_comparison(a, b, seed=seed, resamples=9_999) for seed in (1, 1, 2)]
        assert found[0] == found[1] != found[2]
        # Pinned: the stream of signs is part of what a report can be checked against.
        assert paired_comparison(range(-9, 21), [0] * 30, seed=7).p_value == 17 / 10_001

    def test_identical(self):
        found = paired_comparison([0.5, 0.7] * 20, [0.5, 0.7] * 20, seed=0)
        assert found == (40, 0.0, None, 1.0, "identical", 0, 40, 0)
        assert paired_comparison([0.1 + 0.2], [0.3], seed=0).method == "identical"

    def test_equal_differences(self):
        b = [case / 29 for case in range(29)]
        found = paired_comparison([x + 0.02 for x in b], b, seed=0)
        assert found.mean_difference == pytest.approx(0.02)
        assert found.interval is None  # 29 times .02 but for rounding: no spread to go by
        # p is never 0: the observed pattern is one of them.
        assert (found.wins, found.p_value) == (29, 1 / 10_001)

    @pytest.mark.parametrize("n", [12, 29])
    def test_false_positives(self, n):
        # Equal arms over cases that differ much: 199 resamples make P(p <= .05) = .05 exactly.
        rng = np.random.default_rng(n)
        a, b = rng.normal(0, 3, size=(1500, n)) + rng.normal(size=(2, 1500, n))
        assert rejected(a, b, resamples=199) == pytest.approx(0.05, abs=four_errors(0.05, 1500))

    def test_finds_the_minimum_detectable_effect_as_often_as_promised(self):
        effect = stats.minimum_detectable_effect(unit_spread(14))
        a = np.random.default_rng(8).normal(effect, 1, size=(600, 14))
        assert rejected(a, np.zeros_like(a)) == pytest.approx(0.8, abs=four_errors(0.8, 600))


class TestHolmAndPower:
    def test_by_hand(self):
        # Ascending .005 .01 .03 .04 times 4 3 2 1: .02 .03 .06 .04, and .04 is raised to .06.
        assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert stats.holm([]) == []
        assert stats.holm([0.6, 0.9]) == [1.0, 1.0]

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms())
    @repeatable
    def test_never_smaller_and_never_out_of_order(self, p_values, random):
        adjusted = dict(zip(p_values, stats.holm(p_values), strict=True))
        assert all(p <= q <= 1 for p, q in adjusted.items())
        assert list(sorted(adjusted.values())) == [adjusted[p] for p in sorted(adjusted)]
        shuffled = random.sample(p_values, len(p_values))
        assert stats.holm(shuffled) == [adjusted[p] for p in shuffled]

    def test_ten_equal_presets_against_one_baseline(self):
        rng, reps, plain, corrected = np.random.default_rng(21), 150, 0, 0
        for _ in range(reps):
            arms = rng.normal(size=(11, 29)).tolist()
            found = [paired_comparison(x, arms[0], seed=1, resamples=999) for x in arms[1:]]
            p_values = [result.p_value for result in found]
            plain += min(p_values) <= 0.05
            corrected += min(stats.holm(p_values)) <= 0.05
        assert plain / reps > 0.2
        assert corrected / reps <= 0.05 + four_errors(0.05, reps)

    def test_minimum_detectable_effect(self):
        # sd 1, n = 3: t(.975, 2) + t(.8, 2) = 4.302653 + 1.060660; / sqrt(3) = 3.096509
        assert stats.minimum_detectable_effect([-1, 0, 1]) == pytest.approx(3.096509, abs=1e-5)
        # n = 29: (2.048407 + 0.854647) / 5.385165 = 0.539084
        assert stats.minimum_detectable_effect(unit_spread(29)) == pytest.approx(0.539084, abs=1e-5)

    def test_cases_needed(self):
        # sd 1, effect .5: n = 33 detects .5031, n = 34 detects .4951.
        assert stats.cases_needed(unit_spread(10), 0.5) == 34
        assert stats.cases_needed(unit_spread(10), 100) == 3
        assert stats.cases_needed(unit_spread(10), 1e-9) is None
        # At n = MOST_CASES normal quantiles do: (1.959964 + .841621) / sqrt(1e9) = 8.859e-5.
        assert stats.MOST_CASES / 2 < stats.cases_needed(unit_spread(10), 9e-5) <= stats.MOST_CASES

    @given(st.lists(st.floats(-1, 1), min_size=3, max_size=30), st.sampled_from([0.6, 0.8, 0.95]))
    @repeatable
    def test_each_inverts_the_other(self, differences, power):
        effect = stats.minimum_detectable_effect(differences, power=power)
        if effect:
            assert stats.cases_needed(differences, effect, power=power) == len(differences)

    @pytest.mark.parametrize("differences", [[], [1], [1, 2], [0.5] * 9, [0.3, 0.1 + 0.2, 0.3]])
    def test_nothing_to_go_by(self, differences):
        assert stats.minimum_detectable_effect(differences) is None
        assert stats.cases_needed(differences, 0.1) is None


def test_worst_case_bounds():
    # Five at .9 and five that crashed: between 4.5 / 10 and 9.5 / 10.
    assert stats.worst_case_bounds([0.9] * 5, 5) == (0.45, 0.95, 1.0, "worst case")
    assert stats.worst_case_bounds([3], 1, 1, 5)[:2] == (2.0, 4.0)
    assert stats.worst_case_bounds([], 3)[:2] == (0.0, 1.0)
    # A suite of two cases, one of which broke.
    assert stats.worst_case_bounds([1.0], 1)[:2] == (0.5, 1.0)


def test_importing_loads_no_numeric_library():
    code = "import sys; from gno_dist import measures, scorers, stats; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"numpy", "scipy"}.isdisjoint(done.stdout.split())
