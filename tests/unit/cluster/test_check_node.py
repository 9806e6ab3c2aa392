"""check_node: the job that checks a site, how it is submitted, and what its nodes report."""

import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from dlbench import schedulers
from dlbench.cluster import check_site
from dlbench.cluster.check_site import Remark
from dlbench.common import plugins
from support.machines.nvidia_smi import NvidiaSmi
from support.machines.paths import REPOSITORY

ASKED = schedulers.Job(
    name="check_site",
    nodes=2,
    tasks=2,
    cores_per_task=8,
    memory_mb=1000,
    time_min=5,
    gpus_per_node=4,
    gpu_request="gpu:a100",
    exclusive=False,
    extra="--comment=x",
    resources={
        "slurm_partition": "gpu", "slurm_account": "mine", "constraint": "ib", "queue": "gpu.q",
        "account": "mine", "pe": "smp", "lsf_queue": "gpu", "mem_mb": 600,
    },
)  # fmt: skip
EXPECTED = {
    "cores": 8, "gpus": 4, "latency_s": 5, "modules": [], "packages": {"py": "snakemake"},
    "environments": ["pytorch", "jax"], "own_name": True,
}  # fmt: skip
ROUND = {"round_trip_s": 0.1, "offset_s": 0.0}
REPORT = {
    "host": "n1", "token": "t", "rounds": [ROUND, ROUND, ROUND], "modules": None, "cores": 8,
    "pythons": {"py": ["3.11.7", True]}, "gpus": 4, "driver": "580.95.05",
    "programs": [[["apptainer"], "apptainer"]],
    "mpi": [["/usr/bin/mpirun", "Open MPI 4.1.4", True]],
    "srun_mpi": "MPI types: none pmix", "mpi_type": "pmix",
    "tmpdir": {"folder": "/tmp", "free_mb": 9999}, "images": {},
    "others": {"unknown": {}, "connection": None, "own": ""},
}  # fmt: skip
LOST = {"unknown": {"n2": "Name or service not known"}, "connection": None, "own": ""}
NAMELESS = {"unknown": {}, "connection": None, "own": "?"}
CLOSED = {"unknown": {}, "connection": "n2 port 5: timed out", "own": ""}


def test_a_node_that_has_all_has_nothing_to_fix():
    found = list(check_site.remarks_on_nodes([REPORT], EXPECTED))
    assert {finding.mark for finding in found} == {"ok"}
    assert all(finding.text.startswith("n1: ") for finding in found)


def test_what_holds_for_several_nodes_is_said_once():
    found = list(
        check_site.remarks_on_nodes([REPORT, REPORT | {"host": "n2", "cores": 2}], EXPECTED)
    )
    assert Remark("ok", "n1, n2: 9999 MiB are free for temporary files in /tmp") in found
    assert [f.text.split(":")[0] for f in found if f.mark == "fix"] == ["n2"]


def test_the_own_name_of_a_node_is_not_looked_at_where_nothing_listens_there():
    found = check_site.remarks_on_nodes(
        [REPORT | {"others": NAMELESS}], EXPECTED | {"own_name": False}
    )
    assert not [finding for finding in found if finding.mark != "ok" or "own name" in finding.text]


def test_a_driver_that_nvidia_smi_does_not_tell_is_passed_over():
    told = [f.text for f in check_site.remarks_on_nodes([REPORT | {"driver": None}], EXPECTED)]
    assert not any("driver" in text for text in told)


SLOW = {"round_trip_s": 8.0, "offset_s": 0.0}


@pytest.mark.parametrize(
    "changed, mark, said",
    [
        ({"token": None}, "fix", "does not see what is written into the results here"),
        ({"rounds": [ROUND, None, ROUND]}, "fix", "was not seen there"),
        ({"rounds": [ROUND, SLOW, ROUND]}, "fix", "set latency-wait to 16 in the profile"),
        ({"rounds": [{"round_trip_s": 0.2, "offset_s": 2.0}]}, "fix", "clock is -2.00 s"),
        ({"modules": "module load x failed"}, "fix", "n1: module load x failed"),
        ({"pythons": {"py": [None, "no such file"]}}, "fix", "cannot be started: no such file"),
        ({"pythons": {"py": ["3.11.7", False]}}, "fix", "py has no snakemake"),
        ({"cores": 2}, "fix", "asks for 8 cores may use 2"),
        ({"gpus": 2}, "fix", "nvidia-smi lists 2 GPUs in a job that asks for 4"),
        ({"gpus": None}, "fix", "no NVIDIA driver"),
        ({"driver": "535.104.05"}, "fix", "n1: envs/pytorch has CUDA 13"),
        ({"driver": "535.104.05"}, "fix", "`environment: pytorch-cuda12`"),
        ({"programs": [[["apptainer", "singularity"], None]]}, "fix", "apptainer or singularity"),
        ({"mpi": []}, "fix", "no mpirun on the path"),
        ({"mpi": [["/x/mpirun", "libx.so missing", False]]}, "fix", "does not work: libx.so"),
        ({"srun_mpi": "MPI types: none"}, "fix", "srun knows no protocol of MPI"),
        ({"mpi_type": "none"}, "fix", "export SLURM_MPI_TYPE=pmix"),
        ({"mpi_type": "pmi2"}, "fix", "srun speaks pmi2 to MPI and knows pmix:"),
        ({"tmpdir": {"folder": "/x", "error": "read-only"}}, "fix", "cannot be written: read-only"),
        ({"tmpdir": {"folder": "/x", "free_mb": 5}}, "fix", "5 MiB are free"),
        ({"images": {"a": [255, "FATAL: no"]}}, "fix", "image a does not start"),
        ({"others": LOST}, "fix", "n1: does not know n2 (Name or service not known): runs across"),
        ({"others": CLOSED}, "fix", "cannot connect to another node at n2 port 5: timed out"),
        ({"others": NAMELESS}, "fix", "does not know its own name (?), where JAX listens"),
    ],
)
def test_what_a_node_lacks_is_said_with_what_to_do(changed, mark, said):
    found = [f for f in check_site.remarks_on_nodes([REPORT | changed], EXPECTED) if f.mark != "ok"]
    assert [f.mark for f in found] == [mark], found
    assert said in found[0].text


def test_a_node_says_what_it_has_and_how_files_come_through(tmp_path):
    request = {
        "token": "t", "python": sys.executable, "pythons": {sys.executable: "snakemake", "no": "x"},
        "modules": [], "programs": [["sh"], ["nothing", "no"]], "mpi": [],
        "srun_mpi": False, "tmpdir": str(tmp_path), "images": {"a": ["echo", "Python 3.9"]},
        "nodes": 1,
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    NvidiaSmi(tmp_path / "bin")
    ended = threading.Event()
    ahead_s = 100.0

    def answer():
        while not ended.wait(0.01):
            for hello in tmp_path.glob("hello.*.json"):
                reply = tmp_path / hello.name.replace("hello", "answer")
                if not reply.exists():
                    part = tmp_path / "part"
                    part.write_text(json.dumps({"time": time.time() + ahead_s}))
                    part.rename(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        command = [sys.executable, REPOSITORY / check_site.PROGRAM, tmp_path]
        path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
        subprocess.run(command, check=True, timeout=60, env={**os.environ, "PATH": path})
    finally:
        ended.set()
        thread.join()
    report = json.loads(next(tmp_path.glob("report.*.json")).read_text())
    assert report["token"] == "t" and len(report["rounds"]) == 3
    for found in report["rounds"]:
        assert found["offset_s"] == pytest.approx(ahead_s, abs=found["round_trip_s"])
    assert report["pythons"][sys.executable] == [".".join(map(str, sys.version_info[:3])), True]
    assert report["pythons"]["no"][0] is None
    assert (report["gpus"], report["driver"]) == (2, "550.54.15")
    assert report["programs"] == [[["sh"], "sh"], [["nothing", "no"], None]]
    assert report["tmpdir"]["free_mb"] >= 0 and report["images"]["a"] == [0, "Python 3.9"]


@pytest.mark.parametrize(
    ("addresses", "pattern", "unknown"),
    [
        ({}, None, ["one.invalid", "two.invalid"]),
        ({"one.invalid": "127.0.0.1"}, None, ["two.invalid"]),
        ({"one.invalid": "127.0.0.1", "two.invalid": "127.0.0.1"}, "{node}-ib0", []),
    ],
)
def test_nodes_look_one_another_up_and_connect(addresses, pattern, unknown, tmp_path):
    names = ("one.invalid", "two.invalid")
    request = {"nodes": 2, "addresses": addresses, "node_address": pattern}
    script = (
        "import json, sys; import check_node; _, folder, me, request = sys.argv\n"
        "print(json.dumps(check_node.find_others(folder, me, json.loads(request))))"
    )
    arguments = [sys.executable, "-c", script, tmp_path]
    nodes = [
        subprocess.Popen(
            [*arguments, name, json.dumps(request)],
            cwd=(REPOSITORY / check_site.PROGRAM).parent,
            env=os.environ | {"SLURMD_NODENAME": name},
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    for node in nodes:
        found = json.loads(node.communicate(timeout=60)[0])
        assert sorted(found["unknown"]) == unknown and all(found["unknown"].values())
        assert found["connection"] is None


def test_a_node_that_alone_has_come_says_what_it_found(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str((REPOSITORY / check_site.PROGRAM).parent))
    import check_node

    monkeypatch.setattr(check_node, "FILE_TIMEOUT_S", 0.1)
    request = {"nodes": 2, "addresses": {"n1.invalid": "localhost"}, "node_address": None}
    monkeypatch.setenv("SLURMD_NODENAME", "n1.invalid")
    found = check_node.find_others(str(tmp_path), "n1", request)
    assert found["unknown"] == {} and found["connection"] is None
    assert check_node.find_others(str(tmp_path), "n1", request | {"nodes": 1}) is None


@pytest.mark.parametrize(("code", "seen"), [(0, [REPORT]), (1, [])])
def test_files_of_a_job_that_appear_late_are_waited_for_unless_it_failed(
    code, seen, monkeypatch, tmp_path
):
    monkeypatch.setattr(check_site, "LATE_FILES_S", 0.1)
    (tmp_path / "submitted.out").write_text("17\n")
    late = threading.Timer(1, (tmp_path / "report.n1.json").write_text, [json.dumps(REPORT)])
    late.start()
    ended = SimpleNamespace(poll=lambda: code, returncode=code)
    assert check_site._wait_for_reports(ended, tmp_path, 1, 30, latency_s=60) == seen
    late.join()


def test_how_each_scheduler_submits_a_job_and_waits_for_it(program):
    program("qconf", "gpu gpu INT <= YES HOST 0 0")
    found = {
        name: plugins.load("schedulers", name).wait_command(ASKED, "/f/job.sh", "/f")
        for name in plugins.names("schedulers")
    }
    assert found["slurm"] == [
        "sbatch", "--parsable", "--job-name=check_site", "--output=/f/job.out", "--no-requeue",
        "--time=5", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=1000",
        "--gpus-per-node=a100:4", "--partition=gpu", "--account=mine", "--constraint=ib",
        "--comment=x", "--wait", "/f/job.sh",
    ]  # fmt: skip
    assert found["sge"][0] == "qsub" and "gpu.q" in found["sge"]
    assert found["sge"][-3:] == ["-sync", "y", "/f/job.sh"]
    assert found["pbs"][0] == "qsub" and found["pbs"][-3:] == ["-W", "block=true", "/f/job.sh"]
    assert found["lsf"][:4] == ["bsub", "-K", "-o", "/f/job.out"]
    asked = " ".join(found["lsf"])
    assert "-J check_site " in asked and "-W 5 " in asked and "-q gpu -n 16 -R span[ptile=" in asked
    assert found["lsf"][-2:] == ["sh", "/f/job.sh"]
