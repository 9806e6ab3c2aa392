"""schedule.WarmUp: steps are added until its time has passed, as many on all ranks."""

import itertools
import math
import threading
import types
from concurrent import futures

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.log import event_log
from dlbench.plan import skipping
from dlbench.plan.skipping import Devices
from dlbench.study.runs import Run
from dlbench.trainer.schedule import Schedule, WarmUp, Windows, further_steps

ROUNDING = 1e-6
LENET = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8}


class Rank:
    """A rank whose steps take `step_s(number)` seconds, and the windows that it does."""

    def __init__(self, gather=None, gpus=0, first=0, total=None, step_s=lambda step: 0.01, **run):
        strategy = types.SimpleNamespace(
            supports_windows=True, gather=gather or (lambda own: [own])
        )
        engine = types.SimpleNamespace(strategy=strategy, gpu_count=gpus)
        self.schedule = Schedule(Run(**LENET, **{"steps": 20, "warmup_s": 1.0, **run}), None)
        if first:
            self.schedule.resume(first, total)
        self.windows = Windows(self.schedule, engine, first)
        self.warm_up = WarmUp(self.schedule, self.windows, strategy.gather, first)
        self._step_s, self._first = step_s, first

    def ends(self):
        """Do all steps; yields (last step of a window, when it ended, event) of each."""
        index, now_s = self._first, 0.0
        while index < self.schedule.total:
            begin, index = index + 1, self.windows.last_step(index + 1)
            index = min(index, self.schedule.total)
            took_s = sum(map(self._step_s, range(begin, index + 1)))
            now_s += took_s
            steps = index - begin + 1
            chosen = self.windows.record(index, steps, took_s / steps)
            yield index, now_s, self.warm_up.record(index, now_s), chosen


def done(rank):
    """(last steps of the windows, seconds from the first step's end to that of the warm-up)."""
    rows = list(rank.ends())
    times = {last: now_s for last, now_s, _, _ in rows}
    (event,) = [event for _, _, event, _ in rows if event]
    assert event["last_step"] == rank.windows.warm_up_end
    assert event["total_steps"] == rank.schedule.total == rows[-1][0]
    return [row[0] for row in rows], times[rank.windows.warm_up_end] - rows[0][1]


@given(
    warmup_s=st.floats(0.001, 100),
    warmup_steps=st.integers(0, 50),
    steps=st.integers(1, 100),
    step_s=st.floats(0.01, 2),
    spread=st.floats(0, 0.9),
)
def test_both_the_steps_and_the_time_have_passed_and_all_steps_are_measured_after_them(
    warmup_s, warmup_steps, steps, step_s, spread
):
    rank = Rank(
        warmup_s=warmup_s,
        warmup_steps=warmup_steps,
        steps=steps,
        step_s=lambda step: step_s * (1 + spread * math.sin(step)),
    )
    ends, passed_s = done(rank)
    assert passed_s >= warmup_s - ROUNDING
    assert rank.windows.warm_up_end >= max(1, warmup_steps)
    assert ends == list(range(1, rank.windows.warm_up_end + steps + 1))
    # No longer than needed, unless the first steps were much faster than those that follow.
    least_s = max(warmup_s, warmup_steps * step_s * (1 + spread))
    assert passed_s <= 2 * least_s + 4 * step_s


def test_a_long_warm_up_asks_the_other_ranks_seldom_and_ends_soon_after_its_time():
    exchanges = []

    def gather(own):
        exchanges.append(own)
        return [own]

    rank = Rank(gather, warmup_s=30.0)
    ends, passed_s = done(rank)
    assert passed_s == pytest.approx(30, abs=0.02)
    assert len(exchanges) <= 12
    assert ends[-1] == rank.windows.warm_up_end + 20


def test_ranks_whose_clocks_differ_do_as_many_steps():
    said, both = {}, threading.Barrier(2, timeout=30)

    def trained(number, step_s):
        def gather(own):
            said[number] = own
            both.wait()
            rows = [said[0], said[1]]
            both.wait()
            return rows

        return done(Rank(gather, step_s=lambda step: step_s))

    with futures.ThreadPoolExecutor() as threads:
        one, other = threads.map(trained, (0, 1), (0.01, 0.0103))
    assert one[0] == other[0]
    assert one[1] >= 1 - ROUNDING
    assert other[1] >= 1 - ROUNDING


def test_without_a_time_nothing_is_exchanged_and_the_steps_are_those_asked_for():
    def gather(own):
        raise AssertionError("asked the other ranks")

    rank = Rank(gather, warmup_s=0.0, warmup_steps=3)
    rows = list(rank.ends())
    assert [row[0] for row in rows] == list(range(1, 24))
    assert not any(event for _, _, event, _ in rows)
    # Nor does a time that the steps take anyway add any.
    assert done(Rank(warmup_s=0.05, warmup_steps=10))[0] == list(range(1, 31))


def test_on_gpus_the_time_passes_in_windows_before_the_wait_is_measured():
    rank = Rank(gpus=1, warmup_steps=10, step_s=lambda step: 0.01)
    rows = list(rank.ends())
    ends = [row[0] for row in rows]
    (event,) = [event for _, _, event, _ in rows if event]
    (chosen,) = [chosen for _, _, _, chosen in rows if chosen]
    assert chosen["probe_steps"] == 3
    at = next(last for last, _, found, _ in rows if found)
    assert event["last_step"] == at + 9  # a window, three steps, and a window
    assert event["passed_s"] >= 1 - ROUNDING
    tail = ends[ends.index(at) + 1 :]
    assert tail[:5] == [at + 3, at + 4, at + 5, at + 6, at + 9]
    long = [b - a for a, b in itertools.pairwise(ends[: ends.index(at) + 1])]
    assert max(long) == 10
    assert ends[-1] == event["last_step"] + 20


def test_a_run_that_goes_on_warms_up_anew_and_measures_all_its_steps_or_ends_as_it_would_have():
    rank = Rank(first=50, warmup_steps=5)  # in its warm-up
    ends, passed_s = done(rank)
    assert ends[0] == 51
    assert passed_s >= 1 - ROUNDING
    assert ends[-1] == rank.windows.warm_up_end + 20
    # After its warm-up.
    rank = Rank(first=50, total=400, warmup_steps=5)
    assert done(rank)[0] == list(range(51, 401))
    assert 150 <= rank.windows.warm_up_end <= 155
    short = Rank(first=390, total=400, warmup_steps=5)  # less is left than the warm-up takes
    assert [row[0] for row in short.ends()] == list(range(391, 401))
    assert short.windows.warm_up_end == 400


def test_the_rest_of_the_time_is_filled_by_the_mean_of_the_steps_so_far():
    assert further_steps(30, 0.0, 0) == 1
    assert further_steps(30, 10.0, 5) == 5  # ten would fill it, but only five were timed
    assert further_steps(30, 28.0, 14) == 1
    assert further_steps(30, 30.0, 15) == 0
    assert further_steps(30, 0.0, 7) == 7  # a clock that stands still


def test_the_log_says_how_many_steps_there_are_once_the_warm_up_has_ended(tmp_path):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    assert event_log.total_after_warm_up(log.content()) is None
    log.write("warm_up", step=9, passed_s=1.5, last_step=18, total_steps=38)
    assert event_log.total_after_warm_up(log.content()) == 38
    assert event_log.total_after_warm_up(log.content()[:-1]) is None  # half a line


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": None, "epochs": 2, "dataset": "digits"}, "warmup_s is of runs with steps"),
        ({"learning_rate_decay": "cosine"}, "needs to know the last step beforehand"),
    ],
)
def test_a_time_is_refused_where_the_length_of_the_run_is_fixed(changes, reason):
    run = Run(**LENET | {"steps": 20, "warmup_s": 1.0} | changes)
    assert reason in skipping.cannot_run(run, Devices("cpu", 2, 2))
