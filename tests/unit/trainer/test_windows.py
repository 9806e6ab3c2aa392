"""schedule.Windows: their length is the requested one, or keeps the wait short."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.trainer import schedule
from dlbench.trainer.schedule import LENGTHS, MAX_WAIT, Windows, shortest_length


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
