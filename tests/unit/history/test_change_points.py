"""Changes of the level of one series."""

import numpy as np
import pytest

from dlbench.history import change_points
from dlbench.history.change_points import Noise
from support.history.simulated_histories import Kind, drawn, outcome


def series(seed, *levels, length=10, scatter=0.005):
    drawn = np.random.default_rng(seed).normal(0, scatter, length * len(levels))
    return drawn + np.repeat(levels, length)


def found(means):
    return change_points.changes_of(means, change_points.noise_of([means]))


def test_a_loss_and_a_gain_are_found_with_their_size_and_date():
    for size in (-0.03, 0.03):
        (change,) = found(series(1, 0, size))
        assert (change.at, change.before, change.after) == (10, 10, 10)
        assert change.first <= 10 <= change.last
        assert change.low < size < change.high and not change.gradual


@pytest.mark.parametrize("seed", range(30))
def test_the_segmentation_is_the_one_that_ruptures_finds(seed):
    ruptures = pytest.importorskip("ruptures")
    chance = np.random.default_rng(seed)
    levels = chance.normal(0, 2, chance.integers(1, 6))
    values = series(seed, *levels, length=int(chance.integers(3, 40)), scatter=1)
    model = ruptures.KernelCPD(kernel="linear", min_size=change_points.MIN_SESSIONS)
    theirs = [] if len(values) < 6 else model.fit(values[:, None]).predict(pen=6.0)[:-1]
    assert change_points.candidates(values, 6.0) == theirs


def test_equal_values_and_rounded_ones_have_no_change():
    assert found(np.full(30, 7.0)) == []
    rounded = 0.02 * (np.random.default_rng(3).random((60, 60)) < 0.3)
    assert sum(bool(found(means)) for means in rounded) <= 3


def test_two_changes_of_a_series_are_two():
    assert [change.at for change in found(series(2, 0, 0.04, 0.01))] == [10, 20]


@pytest.mark.parametrize(("sessions", "places"), [(1, []), (4, []), (5, [20, 25])])
def test_a_level_that_comes_and_goes_is_one_from_five_sessions_on(sessions, places):
    parts = series(3, 0, length=20), series(4, 0.08, length=sessions), series(5, 0, length=20)
    assert [change.at for change in found(np.concatenate(parts))] == places


@pytest.mark.parametrize("newest", [2, 3])
def test_a_new_level_is_one_from_three_sessions_on(newest):
    means = np.concatenate([series(7, 0, 0), series(8, -0.08, length=newest)])
    assert [change.at for change in found(means)] == ([20] if newest == 3 else [])


def test_changes_below_half_a_percent_are_not_reported():
    assert found(series(11, 0, 0.004, length=20, scatter=0.0005)) == []


def test_a_slope_is_called_one():
    slope = np.linspace(0, 0.05, 60)
    drawn = [found(series(seed, *slope, length=1, scatter=0.01)) for seed in range(20)]
    assert sum(any(change.gradual for change in changes) for changes in drawn) >= 10


def test_series_that_are_too_short_have_no_changes():
    assert found(np.array([0.0, 0.0, 1.0])) == []
    assert found(np.array([])) == []


def test_the_interval_of_a_date_is_wider_where_the_change_is_small():
    spans = [
        np.mean([c.last - c.first for s in range(20) for c in found(series(s, 0, size, length=15))])
        for size in (0.01, 0.03)
    ]
    assert spans[0] > spans[1]


def test_noise_that_remembers_enlarges_the_variance_of_means():
    residuals = np.tile([1.0, -1.0], 50)  # which do not look so by themselves
    assert Noise(0.48, series=25).inflation(residuals, 2) == pytest.approx((1 + 0.5) / (1 - 0.5))
    assert Noise(0.48, series=1).inflation(residuals, 2) == 1.0
    drawn = np.random.default_rng(1).normal(size=(40, 61))
    alike = change_points.noise_of(0.01 * (drawn[:, 1:] + drawn[:, :-1])).alike
    assert alike == pytest.approx(0.5, abs=0.06)


def findings(kind, seed=1, change=None):
    history = drawn(kind, np.random.default_rng(seed))
    if change:
        change(history.means)
    return history, change_points.find(history.means)


def test_a_change_of_all_conditions_is_one_finding():
    history, (found,) = findings(Kind(step=-0.03, to=5))
    assert found.shared and found.change.at == history.at
    assert found.members.keys() == history.changed and not found.spared


def test_a_shared_change_smaller_than_any_condition_shows_is_found():
    _, (found,) = findings(Kind(step=-0.01, conditions=50, to=50, sessions=30))
    assert found.shared
    assert found.change.size == pytest.approx(np.log(0.99), abs=0.004)


def test_a_condition_that_is_spared_is_named():
    history, (found,) = findings(Kind(step=-0.03, conditions=10, to=9))
    assert found.shared and {*found.spared} == {*range(10)} - history.changed


def test_changes_of_some_conditions_at_one_date_are_one_finding():
    history, (found,) = findings(Kind(step=0.05, conditions=50, to=10))
    assert not found.shared and found.members.keys() == history.changed


def test_a_condition_with_a_change_of_its_own_takes_part_in_a_shared_one():
    def gain(means):
        means[3, 8:] += 0.06

    history, found = findings(Kind(step=-0.04, to=5), seed=4, change=gain)
    own, shared = found
    assert (own.change.at, list(own.members)) == (8, [3])
    assert shared.change.at == history.at and 3 in shared.members
    assert shared.members[3].low < np.log(0.96) < shared.members[3].high


def test_shared_changes_that_follow_one_another_are_all_found():
    def lose(means):
        for at in (15, 30, 45):
            means[:, at:] -= 0.03

    _, found = findings(Kind(), change=lose)
    assert [(one.change.at, len(one.members)) for one in found] == [(15, 5), (30, 5), (45, 5)]


def test_two_conditions_have_no_shared_level_and_are_grouped():
    _, (found,) = findings(Kind(step=-0.05, conditions=2, to=2))
    assert not found.shared and len(found.members) == 2


def test_a_gap_before_a_change_widens_its_date():
    def gap(means):
        means[:, 12:18] = np.nan
        means[:, 18:] -= 0.05

    _, (found,) = findings(Kind(), change=gap)
    assert (found.change.first, found.change.at) == (12, 18)


@pytest.mark.parametrize(
    "kind",
    [Kind(alike=0.5), Kind(alike=0.5, common=0.9, conditions=3), Kind(freedom=3, conditions=10)],
    ids=["autocorrelation", "common to all", "heavy tails"],
)
def test_few_histories_without_a_change_have_a_finding(kind):
    # 2 % of 1 000 have one (benchmarks/history.py), so that 5 of 100 are exceeded once in 70 times.
    assert outcome(kind, 100, 43).false <= 0.05


@pytest.mark.parametrize("conditions", [3, 5])
def test_a_step_of_one_condition_is_found_and_is_no_change_of_others(conditions):
    rates = outcome(Kind(step=-0.03, conditions=conditions), 60, 44)
    assert rates.found >= 0.9 and rates.named >= 0.9 and rates.false <= 0.05
    assert rates.dated >= 0.9 and rates.sized >= 0.9
