"""judge: verdicts, their power, and repeats that suffice, held to tables and simulations."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some
from scipy import stats

from dlbench.analysis import judge
from support.comparisons.judged import alone as judged
from support.comparisons.judged import family


def test_its_numbers_are_those_of_scipys_tests_of_welch():
    random = np.random.default_rng(5)
    a, b = random.normal(0.004, 0.01, 4), random.normal(0, 0.02, 7)
    found = judged(np.exp(a), np.exp(b), 0.02)
    margin = math.log(1.02)
    sides = [
        stats.ttest_ind(a + margin, b, equal_var=False, alternative="greater").pvalue,
        stats.ttest_ind(a - margin, b, equal_var=False, alternative="less").pvalue,
    ]
    assert found.p_tost == pytest.approx(max(sides))
    both = stats.ttest_ind(a, b, equal_var=False)
    assert found.p_difference == pytest.approx(both.pvalue)
    assert math.log(found.ratio) == pytest.approx(a.mean() - b.mean())
    for share, low, high in (
        (0.9, found.ci90_low, found.ci90_high),
        (0.95, found.ci95_low, found.ci95_high),
    ):
        assert np.log([low, high]) == pytest.approx(both.confidence_interval(share))
    assert (found.difference.runs, found.family, found.verdict) == ((4, 7), 1, "undecided")
    like = judged(np.exp([0.1, 0.2, 0.3]), np.exp([0.0, 0.1, 0.2]), 0.01)
    assert like.scatter == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("difference", "scatter", "verdict"),
    [(0.005, 0.001, "equivalent"), (0.03, 0.001, "faster"), (-0.03, 0.001, "slower"),
     (0, 0.02, "undecided")],
)  # fmt: skip
def test_the_verdict_is_what_the_numbers_say(difference, scatter, verdict):
    spread = scatter * np.array([-1.2, -0.5, 0, 0.5, 1.2])
    assert judged(np.exp(difference + spread), np.exp(spread), 0.01).verdict == verdict


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(100.0, "equivalent"), (100.5, "equivalent"), (101.0, "faster"), (97.0, "slower")],
)
def test_runs_without_scatter_have_a_verdict(value, verdict):
    found = judged([value] * 3, [100.0] * 4, 0.01)
    assert found.verdict == verdict
    assert (found.ci90_low, found.ci95_high) == pytest.approx((value / 100, value / 100))
    assert (found.p_difference > 0.9) == (value == 100)
    assert found.repeats_needed == 3


def test_one_side_without_scatter_has_the_freedom_of_the_other():
    noisy = np.exp([0.0, 0.01, 0.02])
    found = judged(noisy, [1.0] * 5, 0.01)
    half = stats.t.ppf(0.95, 2) * 0.01 / math.sqrt(3)
    assert math.log(found.ci90_high) == pytest.approx(0.01 + half)


@pytest.mark.parametrize(("n_a", "n_b"), [(1, 1), (1, 9), (2, 2), (9, 2)])
def test_too_few_runs_have_no_verdict_and_say_how_many_it_takes(n_a, n_b):
    values, base = np.linspace(100, 101, n_a), np.linspace(100, 101, n_b)
    found = judged(values, base, 0.01)
    assert (found.verdict, found.repeats_needed) == ("too few runs", 3)
    assert math.isnan(found.p_tost)
    assert math.isnan(found.p_difference)
    assert math.isnan(found.ci90_low) == (min(n_a, n_b) < 2)


throughputs = some.lists(some.floats(50, 200), min_size=3, max_size=8)
margins = some.floats(0.001, 0.3)


@given(throughputs, throughputs, margins)
def test_exchanging_the_sides_exchanges_slower_and_faster_and_nothing_else(a, b, margin):
    there, back = judged(a, b, margin), judged(b, a, margin)
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.ci90_low * back.ci90_high == pytest.approx(1)
    assert (there.p_tost, there.p_difference) == pytest.approx((back.p_tost, back.p_difference))
    exchanged = {"slower": "faster", "faster": "slower"}
    assert back.verdict == exchanged.get(there.verdict, there.verdict)


@given(throughputs, throughputs, margins, some.floats(0.01, 100))
def test_the_unit_of_throughput_does_not_matter(a, b, margin, factor):
    found = judged(a, b, margin)
    scaled = judged(np.multiply(a, factor), np.multiply(b, factor), margin)
    assert scaled.ratio == pytest.approx(found.ratio)
    assert scaled.p_tost == pytest.approx(found.p_tost, abs=1e-6)


@given(throughputs, throughputs, margins)
def test_alone_a_verdict_can_be_read_off_the_intervals(a, b, margin):
    assume(np.ptp(a) > 1e-6 and np.ptp(b) > 1e-6)
    found = judged(a, b, margin)
    inside = 1 / (1 + margin) < found.ci90_low and found.ci90_high < 1 + margin
    assert (found.verdict == "equivalent") == inside
    if not inside:
        apart = {found.ci95_low > 1: "faster", found.ci95_high < 1: "slower"}
        assert found.verdict == apart.get(True, "undecided")
    assert found.ci95_low <= found.ci90_low <= found.ratio <= found.ci90_high <= found.ci95_high


@given(some.lists(some.floats(0, 1), min_size=1, max_size=12))
def test_holms_p_are_no_smaller_keep_their_order_and_reject_as_the_steps_do(p_values):
    adjusted = judge.holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1, p * len(p_values) + 1e-15)
    order = np.argsort(p_values, kind="stable")
    assert sorted(adjusted) == [adjusted[i] for i in order]
    rejected = 0  # Holm's own words: stop at the first p that is not small enough.
    while rejected < len(p_values):
        if p_values[order[rejected]] * (len(p_values) - rejected) >= 0.05:
            break
        rejected += 1
    assert sum(p < 0.05 for p in adjusted) == rejected


def test_in_a_family_verdicts_follow_the_adjusted_p():
    # t = 0.03 / sqrt(0.0002 / 3) = 3.674 with 4 degrees of freedom.
    spread = np.array([-0.01, 0, 0.01])
    alone = judged(np.exp(0.03 + spread), np.exp(spread), 0.01)
    assert alone.p_difference == pytest.approx(0.0213, abs=1e-3)
    assert alone.verdict == "faster"
    of_three = judge.judge([alone.difference] * 3, 0.01)
    assert [c.verdict for c in of_three] == ["undecided"] * 3
    assert [c.family for c in of_three] == [3] * 3
    assert of_three[0].p_difference == pytest.approx(3 * alone.p_difference)
    assert of_three[0].p_difference_raw == alone.p_difference
    assert of_three[0].ci95_low == alone.ci95_low
    assert of_three[0].repeats_needed > alone.repeats_needed


def test_what_has_too_few_runs_does_not_weigh_on_the_others():
    few, enough = ([100, 101], [100, 101, 103]), ([100, 101, 102], [100, 101, 103])
    found, alone = family([few, enough, few], 0.01), judged(*enough)
    assert found[1] == alone
    assert [c.verdict for c in found] == ["too few runs", alone.verdict, "too few runs"]
    assert judge.judge([], 0.01) == judge.holm([]) == []


@pytest.mark.parametrize(
    ("ratio", "beyond", "one_sided"),
    [(1.03, "faster", "faster"), (0.97, "slower", "slower"), (1.012, "", ""),
     (1.0165, "", "faster")],
)  # fmt: skip
def test_a_ratio_beyond_the_margin_is_shown_sooner_where_one_side_alone_is_asked_of(
    ratio, beyond, one_sided
):
    difference = judged(np.multiply(ratio, [99.9, 100, 100.5]), [99.9, 100, 100.5]).difference
    for sides, word in ((False, beyond), (True, one_sided)):
        assert judge.judge([difference], 0.01, one_sided=sides)[0].beyond == word


@pytest.mark.parametrize("scatter", [0.002, 0.005, 0.01, 0.03])
def test_repeats_needed_is_the_least_number_with_the_power(scatter):
    needed = judge.repeats_needed(scatter, 0.01)
    assert judge.power(needed, scatter, 0.01) >= 0.8
    assert needed == 3 or judge.power(needed - 1, scatter, 0.01) < 0.8


@pytest.mark.parametrize(
    ("repeats", "difference", "margin"),
    [(3, 0.0351, 0.0321), (4, 0.0251, 0.0246), (5, 0.0208, 0.0209), (8, 0.0152, 0.0156)],
)
def test_the_power_is_that_of_simulated_tests_of_welch(repeats, difference, margin):
    """80 %, of 40 000 each: a standard error of 0.2 points."""
    a, b = np.random.default_rng(1).normal(0, 0.01, (2, 40_000, repeats))
    differs = stats.ttest_ind(a + difference, b, axis=1, equal_var=False).pvalue < 0.05
    low, high = stats.ttest_ind(a, b, axis=1, equal_var=False).confidence_interval(0.9)
    shown = (np.log1p(margin) > high) & (low > -np.log1p(margin))
    assert [differs.mean(), shown.mean()] == pytest.approx([0.8] * 2, abs=0.008)
    assert judge.power_to_differ(repeats, 0.01, difference) == pytest.approx(0.8, abs=0.004)
    assert judge.power(repeats, 0.01, margin) == pytest.approx(0.8, abs=0.004)


def test_a_ratio_beyond_the_margin_needs_repeats_that_show_it_not_equivalence():
    spread = np.array([-0.3, 0, 0.3])
    found = judged(np.exp(np.log(0.67) + spread), np.exp(spread), 0.01)
    assert found.verdict == "undecided"
    assert 5 < found.repeats_needed < 30 < judge.repeats_needed(found.scatter, 0.01)
    needed = found.repeats_needed
    size = abs(math.log(found.ratio))
    assert judge.power_to_differ(needed, found.scatter, size) >= 0.8
    assert judge.power_to_differ(needed - 1, found.scatter, size) < 0.8


def test_more_scatter_needs_more_repeats_up_to_the_cap():
    found = [judge.repeats_needed(s, 0.01) for s in (0, 0.001, 0.01, 0.02, 0.04, 0.08, 1)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (3, 1000)
