"""bisection: the bad nodes of failed groups are found, in few rounds, and no good one is named."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis import bisection

NODES = [f"n{number:03d}" for number in range(60)]


def measured(nodes, passes, known):
    """(last Step, rounds) of measuring what is asked for until nothing is."""
    for rounds in range(100):
        step = bisection.next_step(nodes, known)
        if not step.groups:
            return step, rounds
        fresh = {frozenset(group) for group in step.groups}
        assert len(fresh) == len(step.groups) and not fresh & known.keys()
        assert all(len(group) >= bisection.SMALLEST for group in step.groups)
        known |= {group: passes(group) for group in fresh}
    raise AssertionError("no end")


@settings(deadline=None)
@given(st.integers(2, 60), st.data(), st.sampled_from(["pairs", "halves", "all"]))
def test_the_bad_nodes_are_found_in_few_rounds_whatever_was_measured_first(number, data, first):
    nodes = NODES[:number]
    bad = data.draw(st.sets(st.sampled_from(nodes), max_size=number - 2))

    def passes(group):
        return not group & bad

    cuts = {"pairs": 2, "halves": (number + 1) // 2, "all": number}[first]
    groups = [nodes[place : place + cuts] for place in range(0, number, cuts)]
    known = {frozenset(group): passes(frozenset(group)) for group in groups if len(group) > 1}
    step, rounds = measured(nodes, passes, known)
    assert set(step.bad) == bad and set(step.good) == set(nodes) - bad
    assert (step.together, step.undecided) == ((), ())
    assert rounds <= 2 * math.log2(number) + 4
