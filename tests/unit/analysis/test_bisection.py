"""bisection: the bad nodes of failed groups are found, in few rounds, and no good one is named."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis import bisection

NODES = [f"n{number:03d}" for number in range(500)]


def bad_ones(fewest_good=2):
    """Numbers of nodes, and which of them are bad."""
    return st.integers(2, 60).flatmap(
        lambda number: st.tuples(
            st.just(number),
            st.sets(st.integers(0, number - 1), max_size=max(0, number - fewest_good)),
        )
    )


def measured(nodes, passes, known=None, most=100):
    """(last Step, rounds) of measuring what is asked for until nothing is."""
    known = dict(known or {})
    for rounds in range(most):
        step = bisection.next_step(nodes, known)
        if step.is_done:
            return step, rounds
        fresh = {frozenset(group) for group in step.groups}
        assert len(fresh) == len(step.groups) and not fresh & known.keys()
        assert all(len(group) >= bisection.SMALLEST for group in step.groups)
        known |= {group: passes(group) for group in fresh}
    raise AssertionError("no end")


@settings(deadline=None)
@given(bad_ones(), st.sampled_from(["pairs", "halves", "all"]))
def test_the_bad_nodes_are_found_in_few_rounds_whatever_was_measured_first(case, first):
    number, chosen = case
    nodes, bad = NODES[:number], {NODES[place] for place in chosen}

    def passes(group):
        return not group & bad

    cuts = {"pairs": 2, "halves": (number + 1) // 2, "all": number}[first]
    groups = [nodes[place : place + cuts] for place in range(0, number, cuts)]
    known = {frozenset(group): passes(frozenset(group)) for group in groups if len(group) > 1}
    step, rounds = measured(nodes, passes, known)
    assert set(step.bad) == bad and set(step.good) == set(nodes) - bad
    assert (step.together, step.undecided) == ((), ())
    assert rounds <= 2 * math.log2(number) + 4


@pytest.mark.parametrize("place", [0, 255, 499])
def test_one_bad_node_of_five_hundred_is_found_by_halving(place):
    known = {frozenset(NODES): False}
    step, rounds = measured(NODES, lambda group: NODES[place] not in group, known)
    assert step.bad == (NODES[place],)
    assert rounds <= math.log2(500) + 3


def test_bad_nodes_of_a_first_round_of_pairs_are_told_by_a_second():
    step = bisection.next_step(NODES[:6], {})
    assert step.groups == (("n000", "n001"), ("n002", "n003"), ("n004", "n005"))
    known = {frozenset(pair): pair[0] != "n002" for pair in step.groups}
    second = bisection.next_step(NODES[:6], known)
    # Each suspect beside a node that passed, and both pairs at the same time.
    assert second.groups == (("n000", "n002"), ("n001", "n003"))
    assert second.bad == ()
    known |= {frozenset(("n000", "n002")): False, frozenset(("n001", "n003")): True}
    last = bisection.next_step(NODES[:6], known)
    assert (last.bad, last.is_done, len(last.good)) == (("n002",), True, 5)


@settings(deadline=None)
@given(bad_ones(fewest_good=0))
def test_no_good_node_is_ever_called_bad_and_no_bad_one_good(case):
    number, chosen = case
    nodes, bad = NODES[:number], {NODES[place] for place in chosen}
    step, _ = measured(nodes, lambda group: not group & bad)
    assert set(step.bad) <= bad and not set(step.good) & bad
    if number - len(bad) < 2:  # no two good nodes to pass together
        assert set(step.undecided) == set(nodes)


@settings(deadline=None)
@given(st.integers(3, 60).flatmap(lambda n: st.tuples(st.just(n), st.data())))
def test_a_link_between_two_good_nodes_is_narrowed_to_the_smallest_group_that_fails(case):
    number, data = case
    one, other = data.draw(st.lists(st.sampled_from(NODES[:number]), min_size=2, max_size=2))
    nodes, link = NODES[:number], {one, other}
    if one == other:
        return
    known = {frozenset(pair): not link <= set(pair) for pair in bisection.pairs(nodes)}
    known[frozenset(nodes)] = False
    step, rounds = measured(nodes, lambda group: not link <= group, known)
    assert set(step.good) == set(nodes) and step.bad == ()
    assert step.together and all(link <= set(group) for group in step.together)
    assert rounds <= 2 * math.log2(number) + 3


def test_a_node_that_fails_in_large_groups_only_is_in_the_smallest_that_does():
    nodes = NODES[:16]

    def passes(group):
        return len(group) < 4 or "n005" not in group

    known = {frozenset(pair): True for pair in bisection.pairs(nodes)} | {frozenset(nodes): False}
    step, _ = measured(nodes, passes, known)
    assert step.together == (("n004", "n005", "n006", "n007"),)
    assert step.bad == ()


def test_results_of_nodes_that_are_not_asked_about_say_nothing():
    known = {frozenset(("n000", "n900")): False}
    assert bisection.next_step(NODES[:2], known).groups == (("n000", "n001"),)


def test_one_node_or_none_has_no_groups():
    assert bisection.next_step([], {}).is_done
    one = bisection.next_step(["n000"], {})
    assert (one.groups, one.undecided) == ((), ("n000",))
