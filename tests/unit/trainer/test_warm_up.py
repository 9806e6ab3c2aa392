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
from dlbench.trainer import schedule
from dlbench.trainer.schedule import (
    LENGTHS,
    MAX_WAIT,
    Schedule,
    WarmUp,
    Windows,
    further_steps,
    shortest_length,
)

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


def made(length=None, gpus=1, warm_up_end=10, total=1000, first=0, others=(), warmup_s=0.0):
    """Windows of a run; `others`: what further ranks measured."""
    strategy = types.SimpleNamespace(supports_windows=True, gather=lambda own: [own, *others])
    engine = types.SimpleNamespace(strategy=strategy, gpu_count=gpus)
    spec = types.SimpleNamespace(steps_per_sync=length, warmup_s=warmup_s)
    steps = types.SimpleNamespace(spec=spec, total=total, warm_up_end=lambda first: warm_up_end)
    return Windows(steps, engine, first)


def taken(chosen, until, first=0, step_s=lambda steps: 0.01):
    """The last steps of the windows up to a step, and what was found meanwhile."""
    ends, found, index = [], [], first
    while index < until:
        begin, index = index + 1, min(until, chosen.last_step(index + 1))
        ends.append(index)
        found.append(chosen.record(index, index - begin + 1, step_s(index - begin + 1)))
    return ends, list(filter(None, found))


@given(work_s=st.floats(1e-5, 10), wait_s=st.floats(0, 1), steps=st.integers(2, 10))
def test_the_least_length_whose_wait_is_under_one_percent_is_found_of_any_times(
    work_s, wait_s, steps
):
    length = shortest_length(work_s + wait_s, work_s + wait_s / steps, steps)

    def share(count):
        return wait_s / (count * work_s + wait_s)

    assert length == LENGTHS[-1] or share(length) <= MAX_WAIT * (1 + 1e-6)
    shorter = [other for other in LENGTHS if other < length]
    assert all(share(other) > MAX_WAIT * (1 - 1e-6) for other in shorter)
    assert shortest_length(work_s, work_s + wait_s, steps) == 1  # a window that was slower


def test_on_cpus_a_step_is_a_window_and_nothing_is_measured():
    chosen = made(gpus=0)
    assert taken(chosen, 30) == (list(range(1, 31)), [])


def test_windows_as_asked_for_end_with_the_warm_up_and_the_first_step_is_alone():
    chosen = made(10, gpus=0, warm_up_end=12)
    assert taken(chosen, 40) == ([1, 11, 12, 22, 32, 40], [])
    assert taken(made(10, first=5, warm_up_end=0), 30, first=5)[0] == [6, 16, 26, 30]


def test_on_gpus_the_end_of_the_warm_up_measures_the_wait_and_all_ranks_find_one_length():
    def step_s(steps):
        return 0.001 + 0.0002 / steps

    chosen = made(warm_up_end=10)
    ends, found = taken(chosen, 60, step_s=step_s)
    # One that compiles; a window that may, too; three single steps; the window that counts.
    assert ends == [1, 4, 5, 6, 7, 10, 30, 50, 60]
    times = {"single_step_s": 0.0012, "window_step_s": 0.001 + 0.0002 / 3}
    assert found == [pytest.approx({"steps_per_sync": 20, "probe_steps": 3} | times)]
    slower = made(warm_up_end=10, others=[[0.0014, 0.001 + 0.0004 / 3]])
    assert taken(slower, 60, step_s=step_s)[1][0]["steps_per_sync"] == 50


def test_a_longer_warm_up_measures_longer_windows_at_its_end():
    ends, found = taken(made(warm_up_end=50), 50, step_s=lambda steps: 0.01)
    assert ends == [*range(1, 21), 30, *range(31, 41), 50]
    assert (found[0]["probe_steps"], found[0]["steps_per_sync"]) == (10, 1)


@pytest.mark.parametrize("warm_up_end", [0, 1, 6])
def test_a_warm_up_that_is_too_short_tells_nothing_and_a_window_has_ten_steps(warm_up_end):
    ends, found = taken(made(warm_up_end=warm_up_end), 31)
    assert not found
    assert next(last for last in ends if last > max(1, warm_up_end)) == max(1, warm_up_end) + 10


def test_measured_windows_that_a_checkpoint_cut_tell_nothing():
    chosen = made(warm_up_end=10)
    for last, steps in ((1, 1), (4, 3), (5, 1), (6, 1), (7, 1), (8, 1), (10, 2)):
        assert chosen.record(last, steps, 0.01) is None
    assert chosen.length == schedule.DEFAULT_LENGTH


def test_a_window_is_no_longer_than_what_is_measured():
    assert made(1000, warm_up_end=10, total=14).length == 4
    assert made(1000, warm_up_end=10, total=5).length == 1
    assert made(warm_up_end=10, total=14).length == 4


def test_a_strategy_that_waits_for_each_step_has_no_windows():
    strategy = types.SimpleNamespace(supports_windows=False)
    run = types.SimpleNamespace(steps_per_sync=2, strategy="parameter_server", warmup_s=0.0)
    assert "steps_per_sync must be 1, found 2" in schedule.unsupported(run, strategy)
    run.steps_per_sync = None
    assert schedule.unsupported(run, strategy) is None
    assert schedule.requested_length(run, strategy, on_gpus=True) == 1
