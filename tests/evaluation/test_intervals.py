from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from sharpen.evaluation.intervals import RESAMPLES, Estimate, Measure, change, estimate, resample, stepped, student, wilson


def test_wilson_by_hand():
    # 40 of 40: z² = 3.8415, the lower end is 1 / (1 + z²/n) = 40 / 43.8415.
    assert wilson(40, 40) == (pytest.approx(40 / 43.8415, abs=1e-5), 1.0)
    assert wilson(0, 40) == (0.0, pytest.approx(3.8415 / 43.8415, abs=1e-5))
    # 3 of 10: (0.3 + 0.19207 ± 1.95996·√(0.021 + 0.0096036)) / 1.38415 = (0.49207 ± 0.34287) / 1.38415
    assert wilson(3, 10) == (pytest.approx(0.10779, abs=1e-4), pytest.approx(0.60322, abs=1e-4))
    for successes, total in [(1, 0), (3, 2), (-1, 4)]:
        with pytest.raises(ValueError):
            wilson(successes, total)


def test_student_quantiles():
    # Printed tables: t(0.975) for 1, 4, 5, 10, 39 degrees of freedom.
    for freedom, quantile in [(1, 12.706), (4, 2.776), (5, 2.571), (10, 2.228), (39, 2.023)]:
        assert student(freedom) == pytest.approx(quantile, abs=1e-3)


def test_value_is_the_ratio_of_sums():
    assert Measure([0.25, 0.5, 0.75, 0.9]).value == pytest.approx(2.4 / 4)
    # 1 of 1 and 1 of 9: 2/10, where the mean of the shares is 5/9.
    assert Measure([1, 1], [1, 9]).value == pytest.approx(0.2)
    assert math.isnan(Measure([0, 0], [0, 0]).value)


def test_influence_is_what_leaving_a_little_of_a_problem_out_does():
    measure = Measure([1, 1, 3], [1, 9, 5])
    assert measure.influence.sum() == pytest.approx(0, abs=1e-12)
    weights = np.array([[1 + 1e-6, 1, 1]])
    slope = (measure.resampled(weights)[0] - measure.value) / 1e-6
    assert slope == pytest.approx(measure.influence[0] / 3, rel=1e-4)


def test_each_resample_draws_as_many_problems_as_there_are():
    weights = resample(7, 5)
    assert weights.shape == (RESAMPLES, 7)
    assert (weights.sum(axis=1) == 7).all()
    # A problem is drawn Binomial(7, 1/7) times: mean 1, never in (6/7)^7 = 0.340 of the resamples.
    assert weights.mean(axis=0) == pytest.approx(np.ones(7), abs=0.06)
    assert (weights[:, 0] == 0).mean() == pytest.approx((6 / 7) ** 7, abs=0.03)


def test_the_interval_is_seeded():
    measure = Measure(np.linspace(0, 1, 20) ** 2)
    assert estimate(measure, seed=1) == estimate(measure, seed=1)
    assert estimate(measure, seed=1) != estimate(measure, seed=2)


def test_a_symmetric_sample_gives_nearly_the_t_interval():
    values = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8] * 10)
    half = 1.995 * values.std(ddof=1) / math.sqrt(70)  # t(0.975, 69) = 1.995
    found = estimate(Measure(values))
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == (pytest.approx(0.5 - half, abs=0.003), pytest.approx(0.5 + half, abs=0.003))


def test_a_skewed_sample_gives_a_longer_upper_arm_within_the_bounds():
    # 24 problems never solved, six at times.
    found = estimate(Measure([0.0] * 24 + [0.25, 0.5, 0.5, 0.75, 1.0, 1.0]))
    assert found.value == pytest.approx(4 / 30)
    assert 0 < found.low < 4 / 30 < found.high < 1
    assert found.high - found.value > 1.5 * (found.value - found.low)


def test_the_interval_is_bca_with_the_jackknife_acceleration():
    values = np.array([0.0, 0.0, 0.1, 0.1, 0.2, 0.3, 0.9, 1.0])
    means = resample(8, 6) @ values / 8
    left_out = np.array([np.delete(values, i).mean() for i in range(8)])
    pull = left_out.mean() - left_out
    a = (pull**3).sum() / (6 * (pull**2).sum() ** 1.5)
    z0 = NormalDist().inv_cdf((means < 0.325 - 1e-12).mean() + (abs(means - 0.325) < 1e-12).mean() / 2)
    z = math.sqrt(8 / 7) * 2.3646  # t(0.975, 7)
    levels = [NormalDist().cdf(z0 + (z0 + end) / (1 - a * (z0 + end))) for end in (-z, z)]
    assert a > 0.05 and z0 > 0.02  # both corrections show
    found = estimate(Measure(values), seed=6)
    assert [found.low, found.high] == pytest.approx(np.quantile(means, levels), abs=2e-4)


@pytest.mark.parametrize(("alpha", "beta", "problems"), [(0.3, 0.3, 5), (2.0, 2.0, 10), (0.3, 1.0, 24), (1.5, 0.3, 40)])
def test_95_percent_intervals_hold_the_truth_about_95_times_in_100(alpha, beta, problems):
    """Per-problem pass rates from a Beta distribution, 8 samples each: the mean pass rate is alpha / (alpha + beta)."""
    random = np.random.default_rng(problems)
    hits, runs = 0, 400
    for _ in range(runs):
        rates = random.binomial(8, random.beta(alpha, beta, problems)) / 8
        found = estimate(Measure(rates))
        hits += found.low <= alpha / (alpha + beta) <= found.high
    assert 0.91 <= hits / runs <= 0.995


def test_the_ratio_and_its_paired_change_hold_the_truth_too():
    """Right given finished: problems finish at different rates, and after training more of what finishes is right."""
    random = np.random.default_rng(8)
    ratio_hits, change_hits, runs = 0, 0, 300
    for _ in range(runs):
        ease = random.beta(2, 2, 30)
        measures = []
        for gain in (0.5, 0.8):
            done = random.binomial(16, 0.2 + 0.6 * ease)
            measures.append(Measure(random.binomial(done, gain * ease), done))
        # E[finished · gain · ease] / E[finished], Beta(2, 2): E e = 0.5, E e² = 0.3
        truth = (0.2 * 0.5 + 0.6 * 0.3) / (0.2 + 0.6 * 0.5)
        before, moved = estimate(measures[0]), change(*measures)
        ratio_hits += before.low <= 0.5 * truth <= before.high
        change_hits += moved.low <= 0.3 * truth <= moved.high
    assert 0.91 <= ratio_hits / runs <= 0.99
    assert 0.91 <= change_hits / runs <= 0.99


def test_pairing_cancels_what_makes_a_problem_hard():
    ease = np.linspace(0.05, 0.85, 24)
    gain = np.tile([0.05, 0.10, 0.15], 8)
    before, after = Measure(ease), Measure(ease + gain)
    moved = change(before, after)
    assert moved.value == pytest.approx(0.10)
    # The gains' own spread: sd 0.0417, t(23) = 2.069: ± 0.0176; unpaired it would be about ± 0.15.
    assert moved.low == pytest.approx(0.10 - 0.0176, abs=0.002)
    assert moved.high == pytest.approx(0.10 + 0.0176, abs=0.002)
    assert moved.excludes_zero
    assert change(after, before).value == pytest.approx(-0.10)
    # For plain means, pairing is taking differences.
    differences = Measure(gain * ease, bounds=(-1, 1))
    paired = change(before, Measure(ease + gain * ease))
    assert [paired.value, paired.low, paired.high] == pytest.approx([getattr(estimate(differences), x) for x in ("value", "low", "high")])
    assert not change(before, before).excludes_zero


def test_without_spread_the_interval_is_what_unseen_problems_could_do():
    z2 = 1.959964**2
    for value, n in [(1.0, 40), (0.0, 40), (0.5, 10)]:
        doubt = z2 / (n + z2)
        found = estimate(Measure([value] * n))
        assert found.low == pytest.approx(value * (1 - doubt))
        assert found.high == pytest.approx(value + (1 - value) * doubt)
    assert estimate(Measure([1.0] * 40)).low == pytest.approx(wilson(40, 40)[0])
    # Everything solved before and after: the change is 0, and unseen problems may differ by 1 either way.
    moved = change(Measure([1.0] * 40), Measure([1.0] * 40))
    assert (moved.value, moved.low, moved.high) == (0.0, pytest.approx(-z2 / (40 + z2)), pytest.approx(z2 / (40 + z2)))
    # A length has no upper bound to reach for.
    assert estimate(Measure([48.0] * 6, bounds=(0, math.inf))) == Estimate(48.0, pytest.approx(48 * 6 / (6 + z2)), 48.0)


def test_two_problems_give_students_interval_and_one_gives_none():
    # Mean 0.5, deviation 0.0141, standard error 0.01, t(1) = 12.706.
    found = estimate(Measure([0.49, 0.51]))
    assert (found.low, found.high) == (pytest.approx(0.5 - 0.12706, abs=1e-4), pytest.approx(0.5 + 0.12706, abs=1e-4))
    assert estimate(Measure([0.0, 1.0])) == Estimate(0.5, 0.0, 1.0)  # cut at the bounds
    # Both from wrong to right is no proof.
    assert not change(Measure([0.0, 0.0]), Measure([1.0, 1.0])).excludes_zero
    alone = estimate(Measure([0.7]))
    assert alone.value == 0.7
    assert math.isnan(alone.low) and math.isnan(alone.high) and not alone.excludes_zero


def test_only_problems_with_a_say_count():
    # Two problems with finished completions among ten: as if there were only the two, 0.5 ± 12.706 · 0.01.
    many = estimate(Measure([49, 51] + [0] * 8, [100, 100] + [0] * 8))
    assert (many.value, many.low, many.high) == (0.5, pytest.approx(0.5 - 0.12706, abs=1e-4), pytest.approx(0.5 + 0.12706, abs=1e-4))
    assert math.isnan(estimate(Measure([2] + [0] * 9, [4] + [0] * 9)).low)
    assert math.isnan(estimate(Measure([0] * 9, [0] * 9)).value)
    # Resamples in which nothing finished are left out of the bootstrap.
    assert 0 <= estimate(Measure([1, 2, 3, 4, 1] + [0] * 60, [4] * 5 + [0] * 60)).low < 0.55


def test_a_change_with_a_step_by_hand():
    # Of 10 problems one is gained: mean 0.1, squares 0.81 + 9 · 0.01 = 0.9, and 2 · 1² for what was not seen; t(9) = 2.2622.
    half = 2.2622 * math.sqrt((0.9 + 2) / (9 * 10))
    value, low, high = stepped([1.0] + [0.0] * 9, 1.0)
    assert (value, low, high) == (pytest.approx(0.1), pytest.approx(0.1 - half, abs=1e-4), pytest.approx(0.1 + half, abs=1e-4))
    # A step of 1/4 adds 2/16.
    assert stepped([1.0] + [0.0] * 9, 0.25)[2] == pytest.approx(0.1 + 2.2622 * math.sqrt((0.9 + 0.125) / 90), abs=1e-4)
    # Without spread the step is 1, and the ends stay within −1 and 1.
    assert stepped([0.0] * 10, 0.25)[2] == pytest.approx(2.2622 * math.sqrt(2 / 90), abs=1e-4)
    assert stepped([1.0, 1.0], 1.0) == (1.0, -1.0, 1.0)
    # Many sets at once are each as if alone.
    both = stepped([[1.0, 0.0, 0.5], [0.0, 0.0, -1.0]], 0.5)
    assert [part[1] for part in both] == [float(part) for part in stepped([0.0, 0.0, -1.0], 0.5)]
    # Measures with a step use it, others are resampled.
    old, new = [0.0] * 10, [1.0] + [0.0] * 9
    assert change(Measure(old, step=1.0), Measure(new, step=1.0)).high == pytest.approx(0.1 + half, abs=1e-4)
    assert change(Measure(old), Measure(new)).low == 0.0  # no resample of what was seen loses a problem


def test_a_change_of_pass_at_n_misses_the_truth_seldom_on_either_side():
    """16 samples of 30 problems, a tenth of which turn unsolvable: the error of either side stays below 5 in 100."""
    random = np.random.default_rng(4)
    sets, never = 4000, 0.25
    u = random.random((sets, 30))
    p = np.where(u < never, 0.0, random.beta(0.4, 0.8, u.shape))
    q = np.where(u > 0.9, 0.0, p)
    # E (1 − p)^16 for Beta(0.4, 0.8): B(0.4, 16.8) / B(0.4, 0.8); the share that is lost is 0.1 of all
    beta = lambda a, b: math.exp(math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))  # noqa: E731
    truth = -0.1 * (1 - beta(0.4, 16.8) / beta(0.4, 0.8))
    moved = (random.binomial(16, q) > 0).astype(float) - (random.binomial(16, p) > 0)
    _, low, high = stepped(moved, 1.0)
    assert (low > truth).mean() < 0.05
    assert (high < truth).mean() < 0.05


def test_refusals():
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        Measure([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="finite"):
        Measure([1, math.nan])
    with pytest.raises(ValueError, match="plain means"):
        Measure([1, 0], [2, 1], step=0.5)
    with pytest.raises(ValueError, match="2 before and 3 after"):
        change(Measure([1, 0]), Measure([1, 0, 1]))


def test_estimates_survive_json():
    for found in (Estimate(0.1, 0.05, 0.2), Estimate(0.7, math.nan, math.nan)):
        again = Estimate.from_dict(found.to_dict())
        assert np.array_equal([again.value, again.low, again.high], [found.value, found.low, found.high], equal_nan=True)
    assert Estimate(0.7, math.nan, math.nan).to_dict() == {"value": 0.7, "low": None, "high": None}
