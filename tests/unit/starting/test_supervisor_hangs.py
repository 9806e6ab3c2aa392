"""supervisor: trainers that take no more steps."""

import pytest

from dlbench.log import event_log
from dlbench.records import progress
from dlbench.starting import supervisor
from support.trainers.watched_runs import END, ends, watched

pytestmark = pytest.mark.usefixtures("impatient")

SAMPLES = """
for number in range(1000):
    write("sample", t_s=number)
    time.sleep(0.02)
"""
STEPS = """
for number in range(1, 31):
    write("step", step=number, step_time_s=0.05, loss=2.0, warm_up=False)
    time.sleep(0.05)
"""


@pytest.mark.parametrize("samples", [SAMPLES, "time.sleep(60)"])
def test_a_trainer_that_takes_no_step_is_ended_as_hung_even_where_it_is_sampled(tmp_path, samples):
    run = watched(tmp_path, samples, hang_limit_s=0.5)
    assert supervisor.supervise(run)
    (end,) = ends(run.log)
    assert (end["status"], end["hung"]) == ("failed", True)
    assert end["message"] == "hung: no step for 0.5 s; no step yet; last lines: no message"


@pytest.mark.ci
def test_a_trainer_that_takes_steps_does_not_hang_however_long_it_takes(tmp_path):
    run = watched(tmp_path, STEPS + END, hang_limit_s=1.0)
    assert supervisor.supervise(run)
    assert [end["status"] for end in ends(run.log)] == ["ok"]


def test_a_hang_may_pass(tmp_path):
    run = watched(tmp_path, "time.sleep(60)", hang_limit_s=0.3, last_attempt=False)
    assert not supervisor.supervise(run)
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]


# The second of two copies; the first has written its end already.
COPY = """
import pathlib
first = pathlib.Path({log!r})
def write(event, **values):
    with open(first.with_name("train.rank1.jsonl"), "a") as log:
        log.write(json.dumps({{"event": event, **values}}) + chr(10))
"""


def copies(folder, first, second, **changes):
    """What is watched of two copies, one after the other as far as their logs are concerned."""
    log = str(folder / "runs" / "run" / "train.jsonl")
    return watched(folder, first + COPY.format(log=log) + second, copies=2, **changes)


@pytest.mark.ci
def test_a_copy_that_goes_on_after_another_has_ended_is_no_hang(tmp_path):
    run = copies(tmp_path, END, STEPS + END, hang_limit_s=1.0)
    assert supervisor.supervise(run)
    assert [end["status"] for log in run.logs for end in ends(log)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(END, "time.sleep(60)"), ("", STEPS * 40), (END, END + "time.sleep(60)")],
)
def test_a_copy_that_hangs_ends_the_run_and_is_told_from_the_other(tmp_path, first, second):
    run = copies(tmp_path, first, second, hang_limit_s=0.6)
    assert supervisor.supervise(run)
    end = ends(run.log)[-1]
    assert (end["status"], end["hung"]) == ("failed", True)
    assert end["message"].startswith("hung: no step for 0.6 s; copy 0: no step yet; copy 1: ")


def test_every_event_but_a_sample_is_a_sign_of_life(tmp_path):
    path = tmp_path / "train.jsonl"
    activity = progress.Activity(path, 0.0)
    assert activity.last_s(1.0) == 0.0  # no log yet
    log = event_log.EventLog(path)
    log.start()
    assert activity.last_s(2.0) == 2.0
    log.write("sample", t_s=1.0)
    assert activity.last_s(3.0) == 2.0
    log.write("sample", t_s=2.0)
    log.step(1, 0.5, 0.5, 2.0, 0.01, False, 1)
    log.write("sample", t_s=3.0)
    assert activity.last_s(4.0) == 4.0
    assert activity.last_s(5.0) == 4.0
    # Begun anew from a checkpoint: shorter than what was read.
    log.resume(b"", 0.0, step=1)
    assert activity.last_s(6.0) == 6.0
    assert activity.last_s(7.0) == 6.0


def test_a_trainer_may_be_quiet_for_as_long_as_the_further_steps_of_a_window_take(tmp_path):
    path = tmp_path / "train.jsonl"
    activity, limit_s = progress.Activity(path, 0.0), 10.0
    log = event_log.EventLog(path)
    log.start()
    log.step(1, 0.5, 0.5, 2.0, 0.01, True, 1)
    assert not supervisor._hangs([activity], 5.0, limit_s)
    assert supervisor._hangs([activity], 15.1, limit_s)
    # From here on 21 steps are a window: 20 more, of half a second each by the step before.
    log.write("windows", step=1, steps_per_sync=21)
    assert not supervisor._hangs([activity], 20.0, limit_s)
    assert not supervisor._hangs([activity], 39.9, limit_s)
    assert supervisor._hangs([activity], 40.1, limit_s)
    # The window itself says that its steps were faster.
    window = event_log.window_fields([2.0] * 21, [0.01] * 21)
    log.step(22, 2.6, 0.1, 2.0, 0.01, False, 1, window)
    assert not supervisor._hangs([activity], 50.0, limit_s)
    assert not supervisor._hangs([activity], 61.9, limit_s)
    assert supervisor._hangs([activity], 62.1, limit_s)
