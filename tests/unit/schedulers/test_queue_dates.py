"""When a job was submitted and started, by what each scheduler prints; real ones: tests/cluster."""

import time

import pytest

from dlbench import schedulers
from dlbench.common import plugins
from dlbench.log import event_fields

ASKED = {
    "slurm": ("squeue", "2026-11-21T01:00:00|2026-11-21T01:30:05"),
    "pbs": ("qstat", "Job Id: 7\n    qtime = Sat Nov 21 01:00:00 2026\n"
            "    stime = Sat Nov 21 01:30:05 2026\n"),
    "sge": (
        "qstat",
        "<?xml version='1.0'?><detailed_job_info><JB_submission_time>1795222800"
        "</JB_submission_time><JAT_start_time>1795224605</JAT_start_time></detailed_job_info>",
    ),
}  # fmt: skip
AT = "2026-11-21T{}.000000Z"
UTC = {"submitted_at": AT.format("01:00:00"), "started_at": AT.format("01:30:05")}


def queue_dates(name, **variables):
    """What a run in job 7 records of it."""
    environ = {plugins.constants("schedulers", name)["JOB_ID"]: "7", **variables}
    return schedulers.queue_dates(environ | schedulers.job_variables(environ))


@pytest.fixture(autouse=True)
def greenwich(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", ASKED)
def test_the_dates_of_a_job_are_those_that_its_scheduler_prints(program, name):
    program(*ASKED[name])
    dates = queue_dates(name)
    assert dates == UTC
    assert all(map(event_fields.DATE.accepts, dates.values()))
    if name == "sge":  # that of Univas says milliseconds
        text = ASKED[name][1].replace("1795222800", "1795222800000").replace("4605<", "4605000<")
        program("qstat", text)
        assert queue_dates(name) == UTC


def test_dates_are_in_the_time_zone_of_the_machine(program, monkeypatch):
    program(*ASKED["slurm"])
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    assert queue_dates("slurm")["submitted_at"] == AT.format("00:00:00")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slurm", ""),
        ("slurm", "N/A|N/A"),
        ("slurm", "2026-11-21T01:30:00|2026-11-21T01:00:00"),
        ("pbs", "Job Id: 7\n    job_state = R\n"),
        ("sge", "<?xml version='1.0'?><unknown_jobs></unknown_jobs>"),
        ("lsf", ""),
    ],
)
def test_where_a_scheduler_says_nothing_useful_a_run_has_no_queue(program, name, text):
    program(ASKED.get(name, ("bjobs",))[0], text)
    assert queue_dates(name) == {}
    assert (
        queue_dates(name, DLBENCH_QUEUED=f"{name} 6 2026-11-21 2026-11-22") == {}
    )  # of another job
    # One that fails keeps no run from being trained.
    program("squeue", script="#!/bin/sh\necho slurm_load_jobs error >&2\nexit 1\n")
    assert queue_dates("slurm") == {}


def test_a_job_is_asked_for_once_and_its_nodes_where_their_variables_were_removed(program):
    program(*ASKED["slurm"])
    line = "JobId=7 JobName=x NumNodes=2 NumCPUs=8 NumTasks=4 ReqNodeList=(null) NodeList={}"
    program("scontrol", line.format("n[1-2]"))
    environ = {"SLURM_JOB_ID": "7"}
    environ |= schedulers.job_variables(environ)
    assert plugins.load("schedulers", "slurm").hosts(environ) == ["n1", "n2"]
    assert environ["SLURM_TASKS_PER_NODE"] == "2(x2)" and schedulers.queue_dates(environ) == UTC
    assert schedulers.job_variables(environ) == {}
    program("squeue", script="#!/bin/sh\nexit 1\n")
    del environ["SLURM_JOB_NODELIST"], environ["SLURM_NODELIST"]
    program("scontrol", line.format("(null)"))
    assert schedulers.job_variables(environ) == {} and schedulers.queue_dates(environ) == UTC
    assert schedulers.job_variables({}) == {}
