"""supervisor: a run that ends before its first step has measured nothing, and is tried again."""

import pytest

from dlbench.log import event_log
from dlbench.starting import supervisor
from support.trainers.watched_runs import DATE, ends, watched

pytestmark = pytest.mark.usefixtures("impatient")

SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}
STEPS = (
    f"write('run_start', t_utc={DATE!r}, spec={SPEC!r}, total_steps=3)\n"
    "for number in (1, 2):\n"
    "    write('step', step=number, t_s=number, step_time_s=0.5, loss=2.0, warm_up=False)\n"
)


def test_a_timeout_after_a_step_is_a_result_at_the_first_attempt_and_says_how_far_it_was(tmp_path):
    run = watched(tmp_path, STEPS + "time.sleep(60)", time_limit_s=1, last_attempt=False)
    assert supervisor.supervise(run)
    end = event_log.last_run_end(run.log)
    assert (end["status"], end["time_limit_s"]) == ("timeout", 1)
    assert end["message"].startswith("stopped at time_limit_s, 1 s; step 2/3, loss 2")
    assert "before_first_step" not in end


SPEAKS = "print('rank 1 waits', flush=True)\nprint('for rank 0', flush=True)\n"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"time_limit_s": 1}, "stopped at time_limit_s, 1 s"),
        ({"hang_limit_s": 1}, "hung: no step for 1 s"),
    ],
)
def test_what_ends_before_its_first_step_is_tried_again_and_then_failed(tmp_path, limits, message):
    sleeps = SPEAKS + "time.sleep(60)"
    soon = dict.fromkeys(limits, 0.2)
    assert not supervisor.supervise(watched(tmp_path, sleeps, last_attempt=False, **soon))
    (tmp_path / "messages").write_text("of the first attempt\n")
    run = watched(tmp_path, sleeps, **limits)
    assert supervisor.supervise(run)
    (end,) = ends(run.log)
    assert (end["status"], end["before_first_step"]) == ("failed", True)
    output = "no step yet; last lines: rank 1 waits | for rank 0"
    assert end["message"] == f"{message}; {output}"


def test_a_timeout_of_another_program_whose_steps_are_not_known_yet_is_a_result(tmp_path):
    run = watched(tmp_path, "time.sleep(60)", time_limit_s=0.3, output=tmp_path)
    assert supervisor.supervise(run)
    assert event_log.last_run_end(run.log)["status"] == "timeout"


def test_a_rank_that_says_why_it_could_not_begin_is_tried_again(tmp_path):
    fields = f"status='failed', message='alone', t_utc={DATE!r}, before_first_step=True"
    end = f"write('run_end', {fields})"
    run = watched(tmp_path, f"{end}\nsys.exit(1)", last_attempt=False)
    assert not supervisor.supervise(run)
    assert supervisor.supervise(watched(tmp_path, f"{end}\nsys.exit(1)"))
    assert [(e["message"], e["before_first_step"]) for e in ends(run.log)] == [("alone", True)]
