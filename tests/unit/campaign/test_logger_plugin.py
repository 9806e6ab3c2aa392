"""Snakemake's logger plugin: who prints what, and that nothing of it ends a campaign."""

import logging
import re
import sys
from types import SimpleNamespace

import pytest
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from dlbench.plan import planning
from snakemake_logger_plugin_dlbench import LogHandler
from support.machines.paths import REPOSITORY
from support.runs.made_runs import SETTINGS

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
