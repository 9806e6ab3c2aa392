"""What check-site finds out about a Slurm's queue: limits, what is forgotten, what is done."""

from pathlib import Path

import pytest
import yaml

from dlbench.cluster import check_site
from dlbench.study import config
from support.machines.paths import REPOSITORY, without_a_space
from support.runs.ended_runs import finish
from support.studies.site_facts import CONFIG

BLOCK = {"name": "block", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
         "steps": 10}  # fmt: skip
BY_SRUN = BLOCK | {"strategy": "multiworker", "launcher": "srun", "devices_per_node": 1}
FACTS = {"name": "here", "device": "cpu", "cores_per_node": 1, "devices_per_node": 1,
         "memory_mb_per_node": 8000, "interconnect": "none", "storage": "a disk"}  # fmt: skip
SETTINGS = ["slurm_partition=cpu", "slurm_account=mine", "mem_mb=600"]
# As sbatch --wait: the job's number first, then the job, here on this machine.
SBATCH = """#!/bin/sh
echo 17
for script; do case $script in --output=*) out=${script#--output=} ;; esac; done
sh "$script" >"$out" 2>&1
"""
ACCOUNTS = """#!/bin/sh
case "$*" in
    *qos*) printf 'normal|||%s\\nshort|00:05:00|cpu=4,node=1|\\nnight|00:01:00||2\\n' "$JOBS" ;;
    *MaxWall*)
        printf 'mine||normal|%s||\\n' "$MOST"
        printf 'mine|night|night|00:01:00||\\nother||night|00:01:00||\\n' ;;
    *) echo mine ;;
esac
"""
SRUN = """#!/bin/sh
echo "$@" >srun.words
echo 'srun: error: task 0 launch failed: Unspecified' >&2
exit 1
"""


@pytest.fixture
def place(tmp_path, monkeypatch, program):
    """A workflow's folder on a machine with a Slurm whose jobs run here; all is in order."""
    for name in ("envs", "workflow_scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    without_a_space(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    study(BLOCK)
    write("site.yaml", {"site": FACTS})
    profile()
    program("sinfo", "cpu*|up|1:00:00|3|8|8000|(null)|idle")
    program("sbatch", script=SBATCH)
    program("sacctmgr", "mine")
    for name in ("squeue", "scancel", "sacct"):
        program(name)
    return tmp_path


def write(path, content):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(yaml.safe_dump(content))


def study(block):
    write("config.yaml", CONFIG | {"matrix": [block], "figures": [], "repeats": 2})


def profile(*settings, **changed):
    content = {
        "executor": "cluster-generic",
        "cluster-generic-submit-cmd": "run slurm",
        "default-resources": [*SETTINGS, *settings],
        "latency-wait": 60,
    }
    write("home/snakemake/slurm/config.yaml", content | changed)


def texts(mark, with_job=False):
    found = check_site.remarks("slurm", [], with_job, 20)
    return [remark.text for remark in found if remark.mark == mark]


def test_limits_of_qos_and_associations_are_looked_at(place, program, monkeypatch):
    program("sacctmgr", script=ACCOUNTS)
    program("scontrol", "PartitionName=cpu QoS=N/A TotalCPUs=24")
    assert texts("fix") == []
    profile("qos=short")
    short = "asks for 16 minutes, and QOS short has 5 (lower time_limit_s"
    (found,) = texts("fix")
    assert found.startswith(short)
    profile()
    monkeypatch.setenv("MOST", "00:10:00")
    (found,) = texts("fix")
    assert "16 minutes, and the association with account mine has 10 " in found
    assert "2 jobs, as lenet5 synthetic batch" in found
    monkeypatch.delenv("MOST")
    program("scontrol", "PartitionName=cpu QoS=short TotalCPUs=24")
    (found,) = texts("fix")
    assert found.startswith(short)


def test_a_limit_on_the_jobs_in_the_queue_is_compared_with_those_of_the_profile(
    place, program, monkeypatch
):
    program("sacctmgr", script=ACCOUNTS)
    program("scontrol", "PartitionName=cpu QoS=N/A TotalCPUs=24")
    monkeypatch.setenv("JOBS", "3")
    profile(jobs=3)
    assert not [text for text in texts("note") if "jobs: " in text]
    profile(jobs=50)
    (found,) = [text for text in texts("note") if "jobs: " in text]
    assert found.startswith(
        "QOS normal has 3 jobs in the queue at most, and the profile has jobs: 5"
    )


def test_runs_that_are_done_are_not_counted_as_to_train(place):
    assert "2 runs to train, of at most 16 min" in texts("ok")
    first, second = config.study_from_files(["config.yaml"]).runs
    finish(first)
    assert "1 run to train, of at most 16 min" in texts("ok")
    finish(second)
    assert "nothing to train: 2 runs done" in texts("ok")


def test_the_job_starts_its_processes_as_runs_by_srun_are_started(place, program):
    program("srun", script=SRUN)
    study(BY_SRUN)
    (found,) = texts("fix", with_job=True)
    assert found.startswith("job 17 of the check could not start its processes, as those of runs ")
    assert "task 0 launch failed: Unspecified; Slurm's default protocol of MPI may not" in found
    assert "--mpi" not in (place / "srun.words").read_text()
