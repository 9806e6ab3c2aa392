"""What PBS says, after the texts in its manuals, and what is asked of it."""

from dataclasses import replace

import pytest

from dlbench import schedulers
from dlbench.schedulers import JobState, pbs

ASKED = schedulers.Job(
    name="smk.convert_dataset", nodes=2, tasks=8, cores_per_task=4, memory_mb=64000,
    time_min=90, gpus_per_node=4, gpu_request="gpu", exclusive=True, extra="-W umask=022",
)  # fmt: skip
SERVER = """Server: pbs
    server_state = Active
    default_queue = workq"""
QUEUES = """Queue: workq
    queue_type = Execution
    enabled = True
    started = True
    resources_max.walltime = 24:00:00

Queue: gpu
    queue_type = Execution
    enabled = True
    started = False

Queue: submit
    queue_type = Route
    enabled = True
    started = True
"""
NODES = """n1
     Mom = n1
     state = free
     resources_available.mem = 263804336kb
     resources_available.ncpus = 64

n2
     Mom = n2
     state = state-unknown,down
     resources_available.mem = 256gb
     resources_available.ncpus = 32

g1
     Mom = g1
     queue = gpu
     resources_available.ncpus = 128
     resources_available.ngpus = 4
"""


def job(job_id="7.pbs", state="F", **fields):
    lines = [f"Job Id: {job_id}", "    Job_Name = smk.train", f"    job_state = {state}"]
    lines += [f"    {key.replace('__', '.')} = {value}" for key, value in fields.items()]
    lines += ['    Variable_List = PBS_O_HOME=/home/u,PBS_O_SAID="a = b",PBS_O_PATH=/us', "\tr/bin"]
    return "\n".join(lines) + "\n"


def qstat(**texts):
    """The program, which says one thing or another by its options."""
    patterns = {"servers": "*-B*", "queues": "*-Q*", "jobs": "*"}
    cases = [f"{patterns[name]}) cat <<'END'\n{text}\nEND\n;;\n" for name, text in texts.items()]
    return f'#!/bin/sh\ncase "$*" in\n{"".join(cases)}esac\n'


def test_queues_are_read_with_the_nodes_that_serve_them(program):
    program("qstat", script=qstat(servers=SERVER, queues=QUEUES))
    program("pbsnodes", NODES)
    found = pbs.queues()
    assert set(found) == {"workq", "gpu"}
    workq, gpu = found["workq"], found["gpu"]
    assert workq.default and workq.up and workq.time_limit_s == 24 * 3600
    assert (workq.count(), workq.maximum("cores"), workq.maximum("gpus")) == (2, 64, 0)
    assert workq.maximum("memory_mb") == 262144
    assert workq.count(up=True) == workq.count(cores=64) == 1
    assert not gpu.up and gpu.time_limit_s is None
    assert (gpu.count(up=True), gpu.maximum("cores"), gpu.maximum("gpus")) == (1, 128, 4)
    assert gpu.maximum("memory_mb") is None


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"state": "Q"}, "running"),
        ({"state": "E"}, "running"),
        ({"Exit_status": 0}, "ok"),
        ({"state": "C", "exit_status": 0}, "ok"),
        ({"Exit_status": 271}, "failed"),
        ({}, "failed"),
        ({"Exit_status": -29}, "timeout"),
        ({"Exit_status": 271, "comment": "job killed: walltime 3620 exceeded limit 3600"},
         "timeout"),
        ({"Exit_status": 271, "resources_used__walltime": "01:00:09",
          "Resource_List__walltime": "01:00:00"}, "timeout"),
        ({"Exit_status": -27}, "oom"),
        ({"Exit_status": 137, "comment": "Job exceeded mem limit"}, "oom"),
    ],
)  # fmt: skip
def test_how_a_job_stands_or_ended_is_read(fields, status, program):
    program("qstat", script=qstat(jobs=job(**fields)))
    assert pbs.job_states({"7.pbs"})["7.pbs"].status == status


@pytest.mark.parametrize(
    ("case", "fields", "asked", "state"),
    [
        ("*9.pbs*) echo qstat: Unknown Job Id 9.pbs >&2; exit 153;;", {"Exit_status": 0}, "9.pbs",
         JobState("F, exit status 0", "ok")),
        # Torque's option -x means XML.
        ("*-x*) echo '<Data><Job></Job></Data>';;", {"state": "C", "exit_status": 1}, "7.pbs",
         JobState("C, exit status 1", "failed")),
    ],
    ids=["others are known where one is not", "Torque is asked again"],
)  # fmt: skip
def test_jobs_are_known_whatever_an_option_does(case, fields, asked, state, program):
    answer = f"*) cat <<'END'\n{job(**fields)}END\n"
    program("qstat", script=f'#!/bin/sh\ncase "$*" in\n{case}\n{answer}esac\n')
    assert pbs.job_states({"7.pbs", asked}) == {"7.pbs": state}


def test_a_job_is_submitted_with_what_it_asks_for():
    words = "qsub -V -S /bin/sh -r n -j oe -o logs/ -N smk.convert_dat "
    words += "-l select=2:ncpus=16:mpiprocs=4:mem=64000mb:ngpus=4 -l place=scatter:excl "
    assert pbs.submission(ASKED, "logs") == f"{words}-l walltime=1:30:00 -W umask=022".split()


def test_queue_account_node_and_kind_of_gpu_are_named_where_they_are_given():
    given = {"queue": "gpu", "account": "a", "project": "p"}
    asked = replace(ASKED, resources=given, nodes=1, tasks=4, gpu_request="gpu:a100", extra="")
    asked = replace(asked, exclusive=False, node="n3")
    command = pbs.submission(asked, "logs")
    words = "-q gpu -A a -P p -l select=1:ncpus=16:mpiprocs=4:mem=64000mb:host=n3:ngpus=4:"
    words += "gpu_type=a100 -l place=scatter -l walltime=1:30:00"
    assert command[command.index("smk.convert_dat") + 1 :] == words.split()
    without = pbs.submission(replace(asked, gpus_per_node=0), "logs")
    assert not any("gpu" in word for word in without[without.index("-l") :])
    # Several nodes that are named have a chunk each.
    asked = replace(ASKED, node="n[3,5]", extra="")
    command = pbs.submission(asked, "logs")
    each = "1:ncpus=16:mpiprocs=4:mem=64000mb:host=n{}:ngpus=4"
    assert f"select={each.format(3)}+{each.format(5)}" in command
