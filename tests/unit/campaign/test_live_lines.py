"""The lines of a campaign, from records as Snakemake writes them."""

import logging

import pytest
from snakemake.logging import DefaultFormatter

from dlbench.campaign import live_lines
from dlbench.plan import planning
from dlbench.records import run_record
from support.runs.made_runs import SETTINGS, finish

ERROR = {
    "rule_name": "draw_figure", "jobid": 3, "rule_msg": None, "input": ["runs.parquet"],
    "output": ["loss.svg"], "log": ["loss.log"], "conda_env": None, "shellcmd": "python draw",
    "aux": {}, "indent": False,
}  # fmt: skip


@pytest.fixture
def shown(study, capfd):
    """Shows records to the lines of a campaign. Returns what they print."""
    plan = planning.make_plan(SETTINGS)
    lines = live_lines.LiveLines(plan, DefaultFormatter({"rules"}))

    def show(msg="", level=logging.INFO, **values):
        record = logging.makeLogRecord({"msg": msg, "levelno": level, **values})
        lines.show(record)
        return capfd.readouterr().err

    show.lines, show.plan, show.capfd = lines, plan, capfd
    return show


def started(shown, run, number=3, local=False):
    wildcards = {"run_id": run.id}
    return shown("", event="job_info", jobid=number, rule_name="train", wildcards=wildcards,
                 shellcmd="python", local=local)  # fmt: skip


def test_bookkeeping_is_left_out_and_what_else_has_no_event_is_shown(shown):
    for text in ("None", "", "Select jobs to execute...", "Provided cores: 2"):
        assert shown(text) == shown(text, event="workflow_started") == "", text
    assert shown("Trying to restart job 3.") == "Trying to restart job 3.\n"
    assert shown("the disk is full", logging.WARNING) == "the disk is full\n"


def test_a_job_that_is_no_run_is_a_line_at_its_end(shown):
    values = {"rule_name": "draw_figure", "wildcards": {"figure": "loss"}, "shellcmd": "python"}
    assert shown(event="job_info", jobid=3, **values) == ""
    assert shown("Finished jobid: 3", event="job_finished", job_id=3) == (
        "draw_figure loss: done, 0 s\n"
    )
    shown.lines.close()
    assert shown.capfd.readouterr().err == ""  # it was about no run


def test_a_run_on_this_machine_prints_its_line_itself(shown):
    run = next(iter(shown.plan.runs.values()))
    started(shown, run)
    finish(run, 60)
    assert shown("Finished jobid: 3", event="job_finished", job_id=3) == ""


def test_after_ctrl_c_a_run_counts_whose_record_came_while_snakemake_waited(shown):
    first, second, *_ = shown.plan.runs.values()
    for number, run in enumerate((first, second)):
        started(shown, run, number)
    finish(first, 60)
    shown("Finished jobid: 0", event="job_finished", job_id=0)
    shown("Terminating processes on user request, this might take some time.")
    finish(second, 60)
    shown.lines.close()
    assert shown.capfd.readouterr().err.startswith("2 of 4 runs done, ")


def test_a_run_that_was_submitted_is_a_line_from_its_record(shown):
    run = next(iter(shown.plan.runs.values()))
    assert shown("Provided remote nodes: 5", event="resources_info", nodes=5) == ""
    started(shown, run)
    finish(run, 60, "oom", "no memory")
    line = shown("Finished jobid: 3", event="job_finished", job_id=3)
    assert line.startswith(f"run 1/4  {shown.plan.labels[run.id]}: oom (no memory)")


def test_an_error_is_shown_in_full_with_the_end_of_the_log(shown):
    with open("loss.log", "w") as file:
        file.writelines(f"line {number}\n" for number in range(100))
    printed = shown("Error in rule draw_figure", logging.ERROR, event="job_error", **ERROR)
    assert "Error in rule draw_figure:" in printed and "python draw" in printed
    assert "line 99" in printed and "line 85" in printed and "line 84" not in printed
    assert "message: None" not in printed and "runs.parquet" not in printed


def test_an_attempt_that_the_scheduler_ended_is_one_line_with_its_state(shown, program):
    run = next(iter(shown.plan.runs.values()))
    started(shown, run)
    shown(event="resources_info", nodes=9)
    log = run_record.folder(run.id) / "train.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text('{"event": "launch", "job": {"scheduler": "slurm", "id": "7"}}\n')
    values = ERROR | {"event": "job_error", "rule_name": "train"}
    for state in ("PREEMPTED", "OUT_OF_MEMORY"):
        program("squeue", f"7|{state}")
        started(shown, run)
        (line,) = shown(level=logging.ERROR, **values).splitlines()
        assert line.endswith(f": Slurm ended job 7: {state}") and line.startswith("run 1/4  lenet5")
    program("squeue", "7|FAILED")
    started(shown, run)
    assert "Error in rule train" in shown(level=logging.ERROR, **values)


def test_a_log_that_a_job_has_printed_is_not_printed_again(shown):
    with open("loss.log", "w") as file:
        file.write("the reason")
    error = ERROR | {"shellcmd": "python draw 2>&1 | tee loss.log >&2"}
    printed = shown("", logging.ERROR, event="job_error", **error)
    assert "Error in rule draw_figure:" in printed and "the reason" not in printed
    shown("", event="resources_info", nodes=5)  # submitted, it has printed it elsewhere
    assert "the reason" in shown("", logging.ERROR, event="job_error", **error)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, ["(there is no such file)"]), (b"", ["(it is empty)"]), (b"\x1b[1m\xff", ["\ufffd"])],
)
def test_a_log_may_be_missing_empty_or_no_text(tmp_path, content, expected):
    if content is not None:
        (tmp_path / "log").write_bytes(content)
    assert live_lines.end_of_file(tmp_path / "log") == expected


def test_the_end_counts_the_runs_that_this_machine_can_do(shown):
    failed, skipped, *_ = shown.plan.runs.values()
    shown.plan.skipped[skipped.id] = "no GPU"
    for run, status in ((failed, "oom"), (skipped, "skipped")):
        started(shown, run)
        finish(run, 60, status, "no memory")
        shown("", event="job_finished", job_id=3)
    shown.lines.close()
    expected = "1 of 3 runs done, 1 of them failed, 0 s\n"
    assert shown.capfd.readouterr().err == expected
