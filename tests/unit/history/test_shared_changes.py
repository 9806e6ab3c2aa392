"""Findings of all conditions of a machine; rates of false alarms in simulated histories."""

import numpy as np
import pytest

from dlbench.history import shared_changes
from support.history.simulated_histories import Kind, drawn, outcome


def findings(kind, seed=1, change=None):
    history = drawn(kind, np.random.default_rng(seed))
    if change:
        change(history.means)
    return history, shared_changes.find(history.means)


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
