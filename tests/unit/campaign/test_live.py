"""The terminal of a campaign, from records as Snakemake writes them."""

import logging
import os
import re
import sys
from types import SimpleNamespace

import pytest
from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from dlbench.campaign import live
from dlbench.plan import planning
from dlbench.records import run_record
from snakemake_logger_plugin_dlbench import LogHandler
from support.machines.paths import REPOSITORY
from support.runs.made_runs import SETTINGS, finish, write

ERROR = {
    "rule_name": "draw_figure", "jobid": 3, "rule_msg": None, "input": ["runs.parquet"],
    "output": ["loss.svg"], "log": ["loss.log"], "conda_env": None, "shellcmd": "python draw",
    "aux": {}, "indent": False,
}  # fmt: skip
OPTIONS = SimpleNamespace(
    quiet=["rules"], dryrun=False, nocolor=False, printshellcmds=False, show_failed_logs=False
)


class Campaign:
    """Shows records to the lines of a campaign; each method returns what they print."""

    def __init__(self, capfd):
        plan = planning.make_plan(SETTINGS)
        self.plan, self.capfd = plan, capfd
        self.handler = ColorizingTextHandler(formatter=DefaultFormatter({"rules"}))
        rules = {Quietness.RULES}  # as profiles/default says
        self.handler.addFilter(DefaultFilter(rules, False, False, False, False))
        self.live = live.Live(plan, self.handler, OPTIONS)

    def show(self, msg="", level=logging.INFO, **values):
        self.handler.setStream(sys.stderr)  # pytest's of this test
        self.live.show(logging.makeLogRecord({"msg": msg, "levelno": level, **values}))
        return self.capfd.readouterr().err

    def start(self, run=None, number=3, **changes):
        wildcards = {"run_id": run.id} if run else {}
        job = {"rule_name": "train", "wildcards": wildcards, "shellcmd": "python"} | changes
        return self.show(event="job_info", jobid=number, **job)

    def end(self, number=3):
        return self.show(f"Finished jobid: {number}", event="job_finished", job_id=number)

    def close(self):
        self.live.close()
        return self.capfd.readouterr().err


@pytest.fixture
def campaign(study, capfd):
    return Campaign(capfd)


def left(campaign):
    return [campaign.plan.runs[run_id] for run_id in campaign.plan.pending]


def test_events_of_no_interest_are_left_out_and_what_has_no_event_is_shown(campaign):
    assert campaign.show("SNAKEMAKE", event="workflow_started") == ""
    assert campaign.show("Trying to restart job 3.") == "Trying to restart job 3.\n"
    assert campaign.show("the disk is full\x07", logging.WARNING) == "the disk is full\n"


def test_a_job_that_is_no_run_is_a_line_at_its_end(campaign):
    assert campaign.start(rule_name="draw_figure", wildcards={"figure": "loss"}) == ""
    assert campaign.end() == "draw_figure loss: done, 0 s\n"
    assert campaign.close() == ""  # it was about no run


def test_a_run_on_this_machine_prints_its_line_itself(campaign):
    run = left(campaign)[0]
    campaign.start(run)
    finish(run, 60)
    assert campaign.end() == ""


def test_after_ctrl_c_a_run_counts_whose_record_came_while_snakemake_waited(campaign):
    first, second, *_ = left(campaign)
    for number, run in enumerate((first, second)):
        campaign.start(run, number)
    finish(first, 60)
    campaign.end(0)
    campaign.show("Terminating processes on user request, this might take some time.")
    finish(second, 60)
    assert campaign.close().startswith("2 of 4 runs done, ")


def test_a_run_that_was_submitted_is_a_line_from_its_record(campaign):
    run = left(campaign)[0]
    assert campaign.show("Provided remote nodes: 5", event="resources_info", nodes=5) == ""
    campaign.start(run)
    finish(run, 60, "oom", "no memory")
    assert campaign.end().startswith(f"run 1/4  {campaign.plan.labels[run.id]}: oom (no memory)")


def test_an_error_is_shown_in_full_with_the_log(campaign):
    with open("loss.log", "w") as file:
        file.writelines(f"line {number}\n" for number in range(100))
    printed = campaign.show("Error in rule draw_figure", logging.ERROR, event="job_error", **ERROR)
    assert "Error in rule draw_figure:" in printed and "python draw" in printed
    assert "line 99" in printed and "line 0" in printed
    assert "message: None" not in printed and "runs.parquet" not in printed


def test_an_attempt_that_the_scheduler_ended_is_one_line_with_its_state(campaign, program):
    run = left(campaign)[0]
    campaign.start(run)
    campaign.show(event="resources_info", nodes=9)
    log = run_record.folder(run.id) / "train.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text('{"event": "launch", "job": {"scheduler": "slurm", "id": "7"}}\n')
    values = ERROR | {"event": "job_error", "rule_name": "train"}
    for state in ("PREEMPTED", "OUT_OF_MEMORY"):
        program("squeue", f"7|{state}")
        campaign.start(run)
        (line,) = campaign.show(level=logging.ERROR, **values).splitlines()
        assert line.endswith(f": Slurm ended job 7: {state}") and line.startswith("run 1/4  lenet5")
    program("squeue", "7|FAILED")
    campaign.start(run)
    assert "Error in rule train" in campaign.show(level=logging.ERROR, **values)


def test_a_log_that_a_job_has_printed_is_not_printed_again(campaign):
    with open("loss.log", "w") as file:
        file.write("the reason")
    error = ERROR | {"shellcmd": "python draw 2>&1 | tee loss.log >&2"}
    printed = campaign.show("", logging.ERROR, event="job_error", **error)
    assert "Error in rule draw_figure:" in printed and "the reason" not in printed
    campaign.show("", event="resources_info", nodes=5)  # submitted, it has printed it elsewhere
    assert "the reason" in campaign.show("", logging.ERROR, event="job_error", **error)


def test_the_end_counts_the_runs_that_this_machine_can_do(campaign):
    failed, skipped, *_ = left(campaign)
    campaign.plan.skipped[skipped.id] = "no GPU"
    for run, status in ((failed, "oom"), (skipped, "skipped")):
        campaign.start(run)
        finish(run, 60, status, "no memory")
        campaign.end()
    assert campaign.close() == "1 of 3 runs done, 1 of them failed, 0 s\n"


def test_the_bar_counts_runs_as_they_start_and_end(study, capfd):
    finish(study.runs[0], 60)
    campaign = Campaign(capfd)
    first, second, _ = left(campaign)
    # It gets less while a busy machine takes seconds for these lines.
    assert " 1/4 runs · 3 left · 3 min to go" in campaign.live.bar(99)
    campaign.start(first, 7)
    label = campaign.plan.labels[first.id]
    assert campaign.live.bar(200).endswith(f" · 1 running · 2 left · 3 min to go · {label}")
    write(first, steps=2)
    assert campaign.live.bar(200).endswith(f"{label}: step 2/100")
    campaign.show(logging.ERROR, event="job_error", **ERROR | {"jobid": 7, "log": []})
    assert "1/4 runs · 3 left" in campaign.live.bar(99)  # it may start again
    campaign.start(first, 7)
    (run_record.folder(first.id) / "train.jsonl").unlink()
    finish(first, 30, "oom", "no memory")
    campaign.end(7)
    campaign.start(second, 8)
    assert "2/4 runs · 1 failed · 1 running · 1 left" in campaign.live.bar(99)
    assert len(campaign.live.bar(40)) == 40


def test_a_submitted_run_waits_until_it_writes_its_log(campaign):
    campaign.show(event="resources_info", nodes=5)
    run = left(campaign)[0]
    campaign.start(run)
    assert "1 in the queue · 3 left · time to go not known yet" in campaign.live.bar(99)
    write(run)
    assert "1 running · 3 left" in campaign.live.bar(99)


def test_the_bar_is_drawn_while_nothing_but_runs_is_at_work(study, capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    campaign = Campaign(capfd)
    first = left(campaign)[0]
    assert os.environ["DLBENCH_BAR"] == "1"
    assert campaign.start(number=1, rule_name="fetch_dataset") == "\r\x1b[K"
    assert "0/4 runs" not in campaign.start(first, 2)
    assert "\r\x1b[Kfetch_dataset: done, 0 s\n" in (ended := campaign.end(1))
    assert ended.endswith("\r") and "0/4 runs · 1 running" in ended
    assert campaign.close().endswith("\r\x1b[K") and "DLBENCH_BAR" not in os.environ


FLAGS = {
    "printshellcmds": False, "nocolor": False, "quiet": {Quietness.RULES}, "debug_dag": False,
    "verbose": False, "show_failed_logs": False, "stdout": False, "dryrun": False,
}  # fmt: skip


@pytest.fixture
def handler(study, capfd):
    """Makes the handler of a start with some options. It shows records, and returns the lines."""
    planning.plan_of_start(SETTINGS, True)

    def make(**flags):
        made = LogHandler(SimpleNamespace(**FLAGS | flags), None)

        def emit(msg="", level=logging.INFO, **values):
            made.emit(logging.makeLogRecord({"msg": msg, "levelno": level, **values}))
            return capfd.readouterr().err

        emit.handler = made
        return emit

    yield make
    planning._plan_by_settings.clear()


def test_a_campaign_has_our_lines_unless_other_ones_are_asked_for(handler, monkeypatch):
    plugin = LoggerPluginRegistry().get_plugin("dlbench")
    assert plugin.log_handler is LogHandler and plugin.cli_prefix == "logger-dlbench"
    emit, quiet = handler(), handler(quiet={Quietness.ALL})
    assert emit("Building DAG of jobs...") == ""
    assert emit("17 jobs", event="run_info") == quiet("17 jobs", event="run_info") == ""
    assert emit("Trying to restart job 3.") == "Trying to restart job 3.\n"
    assert quiet("Trying to restart job 3.") == ""
    of_snakemake = handler(quiet={Quietness.HOST})
    assert of_snakemake("Job stats: 17", event="run_info") == "Job stats: 17\n"
    monkeypatch.delitem(sys.modules, "dlbench.plan.planning")  # another workflow
    assert handler()("Job stats: 17", event="run_info") == "Job stats: 17\n"


def test_a_dry_run_has_the_table_of_jobs_once_and_nothing_of_snakemake_beside_it(handler):
    emit = handler(dryrun=True)
    assert emit("SNAKEMAKE", event="workflow_started") == ""
    assert emit("Job stats: 17", event="run_info") == "Job stats: 17\n"
    assert emit("Job stats: 17", event="run_info") == emit("Reasons:\n    input files") == ""
    assert emit("This was a dry-run") == "This was a dry-run\n"


def test_a_dry_run_with_details_and_a_verbose_one_are_snakemakes_own(handler):
    for flags in ({"dryrun": True}, {"verbose": True}):
        emit = handler(quiet=None, **flags)
        assert emit("Building DAG of jobs...") == "Building DAG of jobs...\n"
        assert emit("Job stats: 17", event="run_info") == "Job stats: 17\n"
        assert emit("Select jobs to execute...") == "Select jobs to execute...\n"


def test_what_comes_before_the_workflow_is_not_lost_if_that_never_starts(handler, capfd):
    emit = handler()
    assert emit("the config is wrong", logging.ERROR) == "the config is wrong\n"
    assert emit("Unlocked working directory.") == "Unlocked working directory.\n"
    emit.handler.close()
    emit.handler.close()


def test_a_misspelt_target_is_reported_with_all_targets(handler):
    rules = "".join(path.read_text() for path in REPOSITORY.glob("rules/*.smk"))
    shown = handler()("MissingRuleException:\nNo rule to produce tabels", logging.ERROR)
    targets = {*re.findall(r"^rule ([a-z]+):", rules, re.M)} - {"train"}
    assert shown.startswith("MissingRuleException:\nNo rule to produce tabels\nTargets: all, ")
    assert targets < {*re.findall(r"\w+", shown)}


def test_a_start_that_ended_meanwhile_is_no_traceback(handler):
    error = "Traceback ...\nFileNotFoundError: ... '/x/.snakemake/locks/0.input.lock'"
    message = "another start here ended while this one planned: start again\n"
    assert handler()(error, logging.ERROR) == message


def test_a_broken_event_ends_our_lines_and_not_the_campaign(handler):
    emit = handler()
    emit("", event="run_info")
    printed = emit("Finished jobid: 3", event="job_finished")  # without its job_id
    assert "dlbench: its lines end here" in printed and "KeyError: 'job_id'" in printed
    assert "Finished jobid: 3" in printed
    assert emit("Select jobs to execute...") == "Select jobs to execute...\n"
