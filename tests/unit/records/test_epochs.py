"""Epochs: throughput by the clock of the log, without step times or the batch."""

from types import SimpleNamespace

import pytest

from dlbench.records import summaries

RUN = SimpleNamespace(epochs=3)


def log(*steps, records=40, resumes=()):
    """A rank whose steps are (epoch, time between the last step's end and this one's, pause)."""
    t_s, made = 10.0, []
    for epoch, step_time_s, pause_s in steps:
        t_s += pause_s + step_time_s
        made.append({"epoch": epoch, "t_s": t_s, "step_time_s": step_time_s, "warm_up": epoch == 1})
    return SimpleNamespace(start={"records": records}, steps=made, resumes=list(resumes))


PLAIN = [(1, 9.0, 0), (1, 0.5, 0), (2, 0.5, 0), (2, 0.5, 0), (3, 0.5, 0), (3, 0.5, 0)]


def test_measured_epochs_are_counted_over_their_time_with_pauses_but_without_evaluations():
    assert summaries.by_epochs(RUN, [[log(*PLAIN)]]) == pytest.approx(40.0)
    evaluated = [*PLAIN[:4], (3, 0.5, 7.0), PLAIN[5]]
    assert summaries.by_epochs(RUN, [[log(*evaluated)]]) == pytest.approx(40.0)
    paused = [*PLAIN[:5], (3, 0.5, 2.0)]
    assert summaries.by_epochs(RUN, [[log(*paused)]]) == pytest.approx(80 / 4)


def test_of_several_ranks_the_one_that_took_longest_counts():
    """Their ends lie apart, now this way and now that: no sum over each epoch's longest."""
    first = log((1, 9.0, 0), (1, 0.5, 0), (2, 0.6, 0), (2, 0.5, 0), (3, 0.4, 7.0), (3, 0.5, 0))
    other = log((1, 9.0, 0), (1, 0.5, 0), (2, 0.5, 0), (2, 0.5, 0), (3, 0.5, 7.0), (3, 0.6, 0))
    for ranks in ([first, other], [other, first]):
        assert summaries.by_epochs(RUN, [ranks]) == pytest.approx(2 * 40 / 2.1)


def test_of_copies_it_is_the_mean():
    twice = [(epoch, 2 * time, 0) for epoch, time, _ in PLAIN]
    assert summaries.by_epochs(RUN, [[log(*PLAIN)], [log(*twice)]]) == pytest.approx(30.0)


def test_what_has_no_whole_measured_epochs_has_no_such_number():
    others = log(*PLAIN, records=None), log(*PLAIN, resumes=["once"]), log(), log(*PLAIN[:2])
    assert [summaries.by_epochs(RUN, [[one]]) for one in others] == [None] * 4
    assert summaries.by_epochs(SimpleNamespace(epochs=None), [[log(*PLAIN)]]) is None
