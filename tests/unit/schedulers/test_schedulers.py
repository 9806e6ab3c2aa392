"""What schedulers say, read from what their programs print."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.log import event_fields
from dlbench.schedulers import JobState, lsf, pbs, sge, slurm


def test_slurms_partitions_are_read_with_their_limits(program):
    program(
        "sinfo",
        "cpu*|up|1:00:00|3|8|8000|(null)|idle|1-infinite\n"
        "cpu*|up|1:00:00|1|8|8000|(null)|draining\n"
        "cpu*|up|1:00:00|2|8|8000|(null)|idle~\n"
        "cpu*|up|1:00:00|1|8|8000|(null)|idle*\n"
        "gpu|up|2-00:00:00|2|64|256000|gpu:a100:4(S:0-1),nvme:1|mixed|1-2\n"
        "gpu|up|2-00:00:00|1|32|128000|gpu:v100:2|allocated\n"
        "old|down|infinite|1|8|8000|(null)|down|1\n"
        "none|up|infinite|0|0|0|(null)|n/a",
    )
    found = slurm.queues()
    assert found["cpu"].default and found["cpu"].maximum("gpus") == 0
    assert (found["cpu"].count(), found["cpu"].count(up=True)) == (7, 5)
    assert found["none"].count() == 0
    assert [found[name].nodes_per_job for name in ("cpu", "gpu", "old")] == [None, 2, 1]
    assert found["cpu"].time_limit_s == 3600
    gpu = found["gpu"]
    assert (gpu.count(), gpu.maximum("gpus"), gpu.maximum("cores")) == (3, 4, 64)
    assert (gpu.count(gpus=4), gpu.count(gpus=2), gpu.count(gpus=4, cores=65)) == (2, 3, 0)
    assert gpu.time_limit_s == 2 * 24 * 3600
    assert not found["old"].up and found["old"].time_limit_s is None


def test_a_job_that_slurm_still_shows_counts_as_it_stands_now(program):
    program("sacct", "7|COMPLETED\n8|CANCELLED by 0\n9|OUT_OF_MEMORY\n11|PENDING")
    program("squeue", "10|TIMEOUT\n11|RUNNING")
    assert slurm.job_states({"7", "8", "9", "10", "11", "12"}) == {
        "7": JobState("COMPLETED", "ok"),
        "8": JobState("CANCELLED by 0", "interrupted"),
        "9": JobState("OUT_OF_MEMORY", "oom"),
        "10": JobState("TIMEOUT", "timeout"),
        "11": JobState("RUNNING", "running"),
    }


@pytest.mark.parametrize(
    ("scheduler", "programs"),
    [(slurm, ["sacct", "squeue"]), (pbs, ["qstat"]), (lsf, ["bjobs", "bhist"])],
)
def test_nothing_is_known_of_jobs_where_the_scheduler_does_not_answer(scheduler, programs, program):
    for each in programs:
        program(each, script="#!/bin/sh\necho cannot connect to server >&2\nexit 1\n")
    assert scheduler.job_states({"7", "8"}) == {}


def test_a_scheduler_that_does_not_answer_is_named_with_what_it_says(program, monkeypatch):
    program("sinfo", script="#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    with pytest.raises(Error, match=r"sinfo failed .*Unable to contact slurm controller"):
        slurm.queues()
    program("sinfo", script="#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(schedulers, "TIMEOUT_S", 0.2)
    with pytest.raises(Error, match=r"did not answer within 0\.2 s"):
        slurm.queues()


@pytest.mark.parametrize(
    ("scheduler", "variables"),
    [
        (lsf, {"LSB_MCPU_HOSTS": "n1 4 n2 4"}),
        (lsf, {"LSB_HOSTS": "n1 n1 n2 n2"}),
        (lsf, {"LSB_DJOB_HOSTFILE": "n1\nn1\nn2\nn2\n"}),  # of a large job
        (pbs, {"PBS_NODEFILE": "n1\nn1\nn2\nn2\n"}),
        (sge, {"PE_HOSTFILE": "n1 8 all.q@n1 UNDEFINED\nn2 8 all.q@n2 UNDEFINED\n"}),
        (slurm, {"SLURM_JOB_NODELIST": "n[1-2]"}),
    ],
)
def test_the_nodes_of_a_job_are_in_its_variables_or_a_file(scheduler, variables, tmp_path):
    ((variable, text),) = variables.items()
    if text.endswith("\n"):
        (tmp_path / "nodes").write_text(text)
        text = str(tmp_path / "nodes")
    assert scheduler.hosts({variable: text}) == ["n1", "n2"]
    assert scheduler.hosts({}) == [] and scheduler.job_states(set()) == {}
    # A job of Grid Engine on one node has no file.
    assert sge.hosts({"JOB_ID": "7", "HOSTNAME": "n3"}) == ["n3"]


def test_a_job_is_of_the_scheduler_with_the_longest_variable():
    found = [{"SLURM_JOB_ID": "17"}, {"JOB_ID": "7"}, {"JOB_ID": "7", "SLURM_JOB_ID": "8"}, {}]
    jobs = [("slurm", "17"), ("sge", "7"), ("slurm", "8"), None]
    assert [schedulers.job(variables) for variables in found] == jobs


def test_slurm_is_asked_for_gpus_by_node_and_for_the_node_of_a_run():
    request = schedulers.Job(
        name="run", nodes=2, tasks=8, cores_per_task=2, memory_mb=4000, time_min=10,
        gpus_per_node=4, gpu_request="gpu:a100", exclusive=True, extra="--hint=nomt", node="n3",
        resources={"slurm_partition": "gpu", "mem_mb": 4000},
    )  # fmt: skip
    command = slurm.submission(request, "logs")
    assert command[:4] == ["sbatch", "--parsable", "--job-name=run", "--output=logs/%j.log"]
    wanted = "--time=10 --nodes=2 --ntasks-per-node=4 --cpus-per-task=2 --mem=4000 --exclusive "
    wanted += "--gpus-per-node=a100:4 --nodelist=n3 --partition=gpu --hint=nomt"
    assert set(wanted.split()) <= set(command)
    # Its answer has the id of the job after any greeting and before its cluster.
    assert slurm.job_id("welcome to our site\n17;here\n") == "17"


def test_jobs_of_a_folder_by_the_executor_slurm_are_those_of_our_rules(program, tmp_path):
    program("squeue", "\n".join([
        f"5|rule_train_wildcards_lenet5-b4|{tmp_path}",
        f"6|rule_dlbench_convert_dataset_wildcards_digits|{tmp_path}",
        "8|rule_train_wildcards_lenet5-b4|/another",
        f"9|rule_theirs_wildcards_x|{tmp_path}",
        f"10|(null)|{tmp_path}",
    ]))  # fmt: skip
    found = {"5": "lenet5-b4", "6": "digits"}
    assert slurm.jobs_of_folder(tmp_path) == found
    (tmp_path / schedulers.WATCHED).mkdir(parents=True)
    (tmp_path / schedulers.WATCHED / "3").write_text("cnn12-b8")
    assert schedulers.runs_of_jobs("slurm", tmp_path) == found | {"3": "cnn12-b8"}
    assert schedulers.runs_of_jobs("pbs", tmp_path) == {"3": "cnn12-b8"}


def test_accounting_is_asked_for_jobs_only_that_the_queue_has_forgotten(program, tmp_path):
    program("squeue", "7|RUNNING")
    arguments = tmp_path / "arguments"
    program("sacct", script=f'#!/bin/sh\necho "$*" >{arguments}\necho "8|CANCELLED by 0"\n')
    found = {job: fate.status for job, fate in slurm.job_states({"7", "8"}).items()}
    assert found == {"7": "running", "8": "interrupted"}
    assert arguments.read_text().endswith("--jobs 8\n")


def test_runs_of_one_job_take_turns_and_those_of_others_do_not_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PYTHONPATH", str(Path(schedulers.__file__).parents[2]))
    program = "from dlbench import schedulers\nprint('asks', flush=True)\n"
    program += f"schedulers.take_turn({str(tmp_path)!r}); print('has it', flush=True)"
    command = [sys.executable, "-c", program]
    with schedulers.take_turn(str(tmp_path)):
        environment = os.environ | {"SLURM_JOB_ID": "8"}
        other = subprocess.run(command, env=environment, check=True, capture_output=True)
        assert b"has it" in other.stdout
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert waiting.stdout.readline() == "asks\n"
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
    assert waiting.wait(10) == 0 and waiting.stdout.read() == "has it\n"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert schedulers.take_turn(str(tmp_path)) is None


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
