"""What runs wait for in the queue, on the terminal and in status."""

import time

import pytest

from dlbench.campaign import status
from dlbench.cluster import cluster_job
from dlbench.plan import standing
from dlbench.schedulers import lsf, pbs, sge, slurm

LIMIT = "QOSMaxWallDurationPerJobLimit"
HELD = "launch failed requeued held"
QSTAT = """<job_info><queue_info/><job_info>
<job_list><JB_job_number>5</JB_job_number><state>qw</state></job_list>
<job_list><JB_job_number>6</JB_job_number><state>Eqw</state></job_list>
<job_list><JB_job_number>9</JB_job_number><state>qw</state></job_list>
</job_info></job_info>"""
QSTAT_J = """#!/bin/sh
case "$*" in
    *-xml*) cat <<'END'
{listed}
END
    ;;
    *6*) echo 'error reason    1:          can not find an unused add_grp_id' ;;
    *) echo 'scheduling info:            (Collecting of scheduler job information is turned off)' ;;
esac
"""


def queue(program, *jobs):
    """A Slurm with these jobs, (id, run, reason), of the workflow in this folder."""
    for name in slurm.PROGRAMS:
        program(name)
    cluster_job.FOLDER.mkdir(parents=True, exist_ok=True)
    for job_id, run, _ in jobs:
        (cluster_job.FOLDER / job_id).write_text(run)
    lines = [f"{job_id}|{reason}" for job_id, _, reason in jobs]
    program("squeue", "\n".join([*lines, f"8|{LIMIT}"]))  # one of somebody else's


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_reason_that_does_not_pass_by_itself_is_told_once(here, program):
    queue(program, ("5", "a", LIMIT), ("6", "b", LIMIT), ("7", "c", "Priority"))
    reported = set()
    (line,) = standing.new_reasons("slurm", here, reported)
    assert line == (
        f"Slurm does not start job 5 of a and 1 other job: {LIMIT}; "
        "dlbench status shows what each run waits for"
    )
    queue(program, ("5", "a", LIMIT), ("7", "c", HELD))
    (line,) = standing.new_reasons("slurm", here, reported)
    assert line.startswith(f"Slurm does not start job 7 of c: {HELD}; ")
    assert standing.new_reasons("slurm", here, reported) == []


def test_reasons_are_told_on_the_terminal_while_a_campaign_goes_on(here, program, capsys):
    queue(program, ("5", "a", LIMIT))
    standing.start_reporting("slurm", here, every_s=3600)
    told, until = "", time.monotonic() + 20
    while not told and time.monotonic() < until:
        time.sleep(0.01)
        told = capsys.readouterr().err
    assert told.startswith(f"Slurm does not start job 5 of a: {LIMIT}; ")


def test_where_slurm_does_not_answer_nothing_is_told(here, program):
    program("squeue", script="#!/bin/sh\nexit 1\n")
    assert standing.new_reasons("slurm", here, set()) == []


def test_status_says_what_a_pending_run_waits_for(study, program):
    first, second, *_ = study.runs
    queue(program, ("5", first.id, LIMIT), ("6", second.id, "Priority"))
    reasons = {r["message"]: r["state"] for r in status.report(study)["reasons"]}
    assert reasons == {
        f"Slurm has not started job 5: {LIMIT}": "pending",
        "Slurm has not started job 6: Priority": "pending",
    }


def test_pbs_says_why_in_a_comment(program):
    program("qstat", "\n".join([
        "Job Id: 5", "    job_state = Q",
        "    comment = Can Never Run: Insufficient amount of queue resource: ncpus",
        "Job Id: 6", "    job_state = H", "Job Id: 7", "    job_state = R",
    ]))  # fmt: skip
    reason = "Can Never Run: Insufficient amount of queue resource: ncpus"
    assert pbs.waiting({"5", "6", "7"}) == {"5": reason, "6": "state H"}
    assert not reason.startswith(pbs.NORMAL_REASONS)


def test_grid_engine_says_why_of_jobs_in_an_error_state(program):
    program("qstat", script=QSTAT_J.format(listed=QSTAT))
    found = {"5": "state qw", "6": "can not find an unused add_grp_id"}
    assert sge.waiting({"5", "6"}) == found


def test_lsf_says_why_of_its_pending_jobs(program):
    program("bjobs", "5|User has reached the pending job limit;\n6|x")
    assert lsf.waiting({"5"}) == {"5": "User has reached the pending job limit;"}
