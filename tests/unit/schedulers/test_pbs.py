"""What PBS says, after the texts in its manuals, and what is asked of it."""

from dataclasses import replace

import pytest

from dlbench.cluster import cluster_job
from dlbench.schedulers import JobState, pbs

ASKED = cluster_job.JobRequest(
    name="smk.convert_dataset",
    nodes=2,
    tasks_per_node=4,
    cores_per_node=16,
    memory_mb=64000,
    minutes=90,
    gpus_per_node=4,
    gpu_request="gpu",
    exclusive=True,
    extra=("-W", "umask=022"),
    resources={},
)
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


def qstat(servers="", queues="", jobs=""):
    """The program, which says one thing or another by its options."""
    cases = {"*-B*": servers, "*-Q*": queues, "*": jobs}
    cases_text = "".join(
        f"{pattern}) cat <<'END'\n{text}\nEND\n;;\n" for pattern, text in cases.items()
    )
    return f'#!/bin/sh\ncase "$*" in\n{cases_text}esac\n'


def test_queues_are_read_with_the_nodes_that_serve_them(program):
    program("qstat", script=qstat(SERVER, QUEUES))
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
        ({"state": "R"}, "running"),
        ({"state": "E"}, "running"),
        ({"Exit_status": 0}, "ok"),
        ({"state": "C", "exit_status": 0}, "ok"),
        ({"Exit_status": 1}, "failed"),
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


def test_the_others_are_known_where_one_job_is_not(program):
    program(
        "qstat",
        script='#!/bin/sh\ncase "$*" in\n'
        "*9.pbs*) echo qstat: Unknown Job Id 9.pbs >&2; exit 153;;\n"
        f"*) cat <<'END'\n{job(Exit_status=0)}END\nesac\n",
    )
    assert pbs.job_states({"7.pbs", "9.pbs"}) == {"7.pbs": JobState("F, exit status 0", "ok")}


def test_torque_whose_option_x_means_xml_is_asked_again(program):
    program(
        "qstat",
        script="#!/bin/sh\ncase \"$*\" in\n*-x*) echo '<Data><Job></Job></Data>';;\n"
        f"*) cat <<'END'\n{job(state='C', exit_status=1)}END\nesac\n",
    )
    assert pbs.job_states({"7.pbs"}) == {"7.pbs": JobState("C, exit status 1", "failed")}


def test_nothing_is_known_of_jobs_where_the_server_does_not_answer(program):
    program("qstat", script="#!/bin/sh\necho cannot connect to server pbs >&2\nexit 1\n")
    assert pbs.job_states({"7.pbs", "8.pbs"}) == {}


def test_a_job_is_submitted_with_what_it_asks_for():
    assert pbs.submission(ASKED, "logs") == [
        "qsub", "-V",
        "-S", "/bin/sh",
        "-r", "n",
        "-j", "oe",
        "-o", "logs/",
        "-N", "smk.convert_dat",
        "-l", "select=2:ncpus=16:mpiprocs=4:mem=64000mb:ngpus=4",
        "-l", "place=scatter:excl",
        "-l", "walltime=1:30:00",
        "-W", "umask=022",
    ]  # fmt: skip


def test_queue_account_node_and_kind_of_gpu_are_named_where_they_are_given():
    given = {"queue": "gpu", "account": "a", "project": "p", "node": "n3"}
    asked = replace(
        ASKED, resources=given, nodes=1, gpu_request="gpu:a100", exclusive=False, extra=()
    )
    command = pbs.submission(asked, "logs")
    assert command[command.index("smk.convert_dat") + 1 :] == [
        "-q", "gpu",
        "-A", "a",
        "-P", "p",
        "-l", "select=1:ncpus=16:mpiprocs=4:mem=64000mb:host=n3:ngpus=4:gpu_type=a100",
        "-l", "place=scatter",
        "-l", "walltime=1:30:00",
    ]  # fmt: skip
    without = pbs.submission(replace(asked, gpus_per_node=0), "logs")
    assert not any("gpu" in word for word in without[without.index("-l") :])


def test_nodes_that_are_named_have_a_chunk_each():
    asked = replace(ASKED, resources={"node": "n[3,5]"}, extra=())
    command = pbs.submission(asked, "logs")
    each = "1:ncpus=16:mpiprocs=4:mem=64000mb:host=n{}:ngpus=4"
    assert f"select={each.format(3)}+{each.format(5)}" in command


def test_the_nodes_of_a_job_are_in_its_node_file(tmp_path):
    file = tmp_path / "nodes"
    file.write_text("n1\nn1\nn2\nn2\n")
    assert pbs.hosts({"PBS_NODEFILE": str(file)}) == ["n1", "n2"]
