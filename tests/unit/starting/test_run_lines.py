"""Lines on the terminal about a run, by its record."""

from dlbench.log import event_log
from dlbench.starting import run_lines, supervisor
from support.trainers.watched_runs import DATE, END, watched

SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 2}
SPEC |= {"warmup_steps": 1, "devices_per_node": 2}
TRAINS = (
    f"write('run_start', spec={SPEC!r}, total_steps=3, t_utc={DATE!r})\n"
    "for step in (1, 2, 3):\n"
    "    write('step', step=step, t_s=0.5 * step, step_time_s=0.5, loss=2.0, epoch=1,"
    " learning_rate=0.1, warm_up=step == 1)\n"
)


def ended(folder, **further):
    """The log of a run that took three steps at 32 items/s, and a record of it."""
    run = watched(folder, TRAINS + END.replace(DATE, "2999-01-01T00:00:00.000000Z"))
    assert supervisor.supervise(run)
    end = event_log.last_run_end(run.log)
    return run.log, {"summary": {}, "status": end["status"], "message": end["message"]} | further


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_the_last_line_says_how_fast_it_was_and_what_is_left(tmp_path, capsys):
    run_lines.report_result("1/2", "lenet5 synthetic", *ended(tmp_path), 1)
    last = last_line(capsys)
    assert last.startswith("run 1/2  lenet5 synthetic: ok, step 3/3, loss 2, 32 items/s, ")
    assert "; about " in last
    assert last.endswith(" min left")


def test_a_run_that_is_recorded_as_unstable_is_not_called_ok(tmp_path, capsys):
    unstable = {"status": "unstable", "message": "others used 1.02 of 2 cores"}
    unstable["summary"] = {"images_per_second": 27.5}
    run_lines.report_result("2/2", "lenet5 synthetic", *ended(tmp_path, **unstable), 0)
    last = last_line(capsys)
    assert ": unstable (others used 1.02 of 2 cores), step 3/3, loss 2, 27.5 items/s, " in last
    assert " ok" not in last


def test_the_last_run_of_all_leaves_nothing(tmp_path, capsys):
    run_lines.report_result("2/2", "lenet5 synthetic", *ended(tmp_path), 0)
    assert "left" not in last_line(capsys)


def test_a_sentinel_and_a_try_are_called_so(capsys):
    run_lines.report("sentinel 1/3", "lenet5", "starts")
    run_lines.report("try 2", "lenet5", "starts")
    run_lines.report("7/9", "lenet5", "starts")
    assert capsys.readouterr().err.splitlines() == [
        "sentinel 1/3  lenet5: starts",
        "try 2  lenet5: starts",
        "run 7/9  lenet5: starts",
    ]
