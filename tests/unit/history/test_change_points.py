"""Changes of the level of one series."""

import numpy as np
import pytest

from dlbench.history import change_points

UNKNOWN = np.nan


def series(seed, *levels, length=10, scatter=0.005):
    drawn = np.random.default_rng(seed).normal(0, scatter, length * len(levels))
    return drawn + np.repeat(levels, length)


def found(means, error=UNKNOWN, **given):
    return change_points.find(means, np.full(len(means), error), **given)


@pytest.mark.parametrize("size", [-0.03, 0.03])
def test_a_loss_and_a_gain_are_found_with_their_size_and_date(size):
    (change,) = found(series(1, 0, size))
    assert change.at == 10
    assert change.first <= 10 <= change.last
    assert change.low < size < change.high
    assert not change.provisional and not change.gradual


@pytest.mark.parametrize("seed", range(30))
def test_the_segmentation_is_the_one_that_ruptures_finds(seed):
    ruptures = pytest.importorskip("ruptures")
    chance = np.random.default_rng(seed)
    levels = chance.normal(0, 2, chance.integers(1, 6))
    values = series(seed, *levels, length=int(chance.integers(3, 40)), scatter=1)
    model = ruptures.KernelCPD(kernel="linear", min_size=change_points.MIN_SESSIONS)
    theirs = [] if len(values) < 6 else model.fit(values[:, None]).predict(pen=6.0)[:-1]
    assert change_points.pelt(values, 6.0) == theirs


def test_equal_values_have_no_change():
    assert found(np.full(30, 7.0)) == []


def test_two_changes_of_a_series_are_two():
    assert [change.at for change in found(series(2, 0, 0.04, 0.01))] == [10, 20]


def test_a_level_of_three_sessions_is_no_outlier():
    means = np.concatenate([series(3, 0), series(4, 0.05, length=3), series(5, 0)])
    assert [change.at for change in found(means)] == [10, 13]


def test_a_single_outlier_is_no_change():
    means = series(6, 0, 0)
    means[7] -= 0.2
    assert found(means) == []


@pytest.mark.parametrize("newest", [1, 2, 3])
def test_a_change_is_provisional_until_three_sessions_have_the_new_level(newest):
    means = np.concatenate([series(7, 0, 0), series(8, -0.08, length=newest)])
    (change,) = found(means)
    assert (change.at, change.after) == (20, newest)
    assert change.provisional == (newest < 3)


def test_at_an_event_less_evidence_is_enough():
    drawn = [series(seed, 0, -0.01) for seed in range(40)]
    alone = sum(bool(found(means, suite=50)) for means in drawn)
    changes = [change for means in drawn for change in found(means, suite=50, events=[10])]
    assert len(changes) > alone + 5
    assert all(change.at_event and change.at == 10 for change in changes)


def test_a_change_near_an_event_is_dated_at_the_event_if_it_fits_as_well():
    means = series(10, 0, -0.02)
    means[10] = -0.0093  # by itself the new level begins one session later
    (alone,), (change,) = found(means), found(means, events=[10])
    assert (alone.at, change.at) == (11, 10)


def test_the_scatter_of_repeats_keeps_segments_that_agree_by_chance_from_being_a_change():
    means = np.array([0, 0.0001, 0, 0.02, 0.0201, 0.02, 0.02])
    assert [change.at for change in found(means)] == [3]
    assert found(means, error=0.02) == []


def test_changes_below_half_a_percent_are_not_reported():
    assert found(series(11, 0, 0.004, length=20, scatter=0.0005)) == []


def test_a_slope_is_called_one():
    assert any(change.gradual for change in found(series(12, *np.linspace(0, 0.1, 8), length=3)))


def test_series_that_are_too_short_have_no_changes():
    assert found(np.array([0.0, 0.0, 1.0])) == []
    assert found(np.array([])) == []


def test_the_interval_of_a_date_is_wider_where_the_change_is_small():
    spans = [
        np.mean([c.last - c.first for s in range(20) for c in found(series(s, 0, size, length=15))])
        for size in (0.01, 0.03)
    ]
    assert spans[0] > spans[1]
