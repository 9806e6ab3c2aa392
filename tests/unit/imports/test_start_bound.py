"""start_bound: processes of other programs get cores, GPUs and the address of rank 0."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.imports import start_bound
from dlbench.starting import start_command
from dlbench.study.runs import Run

PROGRAM = Path(__file__).parents[3] / "workflow_scripts/start_bound.py"
RUN = Run(
    model="m", dataset="d", batch_per_device=1, steps=1, trainer="theirs", framework="pytorch",
    strategy="ddp", devices_per_node=2, launcher="mpirun",
)  # fmt: skip
SAYS = """
import json, os
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
         "CUDA_VISIBLE_DEVICES", "DLBENCH_LOG", "A")
print(json.dumps({**{n: os.environ.get(n) for n in names}, "cores": [*os.sched_getaffinity(0)]}))
"""
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MASTER_PORT", "DLBENCH_COPY")


@pytest.fixture
def started(tmp_path):
    """A function that starts a program bound. Returns (what it says, errors)."""

    def start(run, *flags, command=(sys.executable, "-S", "-c", SAYS), **variables):
        environment = {k: v for k, v in os.environ.items() if k not in VARIABLES} | variables
        finished = subprocess.run(
            words(run, tmp_path, *flags) + list(command),
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = json.loads(finished.stdout) if finished.stdout else None
        return said, finished.stderr

    return start


def words(run, folder, *flags):
    spec = json.dumps(run.values())
    log = f"--log={folder / 'train.jsonl'}"
    return [sys.executable, PROGRAM, "--spec", spec, log, f"--output={folder}", *flags, "--"]


def of(**changes):
    return Run(**{**RUN.values(), "launcher": "none", "strategy": "mirrored", **changes})


def test_a_process_on_cpus_gets_the_cores_of_its_devices_and_knows_where_to_log(started, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    said, _ = started(of(devices_per_node=1), DLBENCH_LOG="")  # as of a launcher that hands none on
    assert said["DLBENCH_LOG"] == str(tmp_path / "logged.jsonl")
    assert said["cores"] == cores[:1] and said["OMP_NUM_THREADS"] == "1"
    bound = json.loads((tmp_path / ".bound-0.json").read_text())
    assert bound["cores"] == cores[:1] and bound["binding"] is None


def test_without_binding_and_by_the_run_s_own_word_no_process_is_bound(started):
    every = sorted(os.sched_getaffinity(0))
    said, _ = started(of(devices_per_node=1), "--site-binding=none")
    assert said["cores"] == every and said["OMP_NUM_THREADS"] is None
    assert started(of(devices_per_node=1, binding="none"))[0]["cores"] == every


def test_a_node_with_too_few_cores_says_so(started):
    said, errors = started(of(devices_per_node=512))
    assert said is None and "needs 512 cores" in errors
    # And a program that is not there is named.
    _, errors = started(of(devices_per_node=1), command=("no-such-program",))
    assert "no-such-program cannot be started: No such file or directory" in errors


@pytest.mark.parametrize(
    ("which", "visible", "first", "expected"),
    [
        ("node", None, None, "0,1"),
        ("node", "3,5,6", 1, "3,5"),  # the run has two of the job's three
        ("own", "3,5,6", 1, "5"),
        ("own", "3,5", None, "5"),  # not known which there are
        ("own", "6", 0, "6"),  # its task sees its own alone
    ],
)
def test_ranks_see_the_gpus_of_the_run_or_their_own(which, visible, first, expected, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")  # so that it is restored
    if not visible:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    start_bound._show_gpus(RUN, start_bound.Place(1, 1), 1, first, which)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_a_process_on_gpus_gets_all_cores_and_sees_those_of_the_run(started):
    """No GPU is here, so which ones there are is not known."""
    said, errors = started(of(), "--device=gpu", CUDA_VISIBLE_DEVICES="3,5,6")
    assert said["CUDA_VISIBLE_DEVICES"] == "3,5", errors
    assert said["OMP_NUM_THREADS"] == str(len(said["cores"]))


def test_the_place_of_a_process_is_what_its_launcher_says():
    assert start_bound.place_of(
        of(launcher="srun"), {"SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
    ) == (3, 1)
    assert start_bound.place_of(RUN, {}) is None  # another MPI than ours
    task = {"cluster": {}, "task": {"type": "ps", "index": 0}}
    assert start_bound.place_of(of(launcher="local"), {"TF_CONFIG": json.dumps(task)}) is None
    assert start_bound.place_of(of(copies_per_node=2), {"DLBENCH_COPY": "1"}) == (1, 1)


@pytest.mark.skipif(not shutil.which("mpirun"), reason="no mpirun")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_ranks_under_mpirun_have_their_cores_and_find_the_first_rank(tmp_path):
    def bound(program):
        return [*map(str, words(RUN, tmp_path)), *program]

    program = [sys.executable, "-S", "-c", SAYS]
    command = start_command.build(RUN, program, None, "cpu", (), bound).command
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = finished.stdout.replace("}{", "}\n{").splitlines()  # of two ranks at once
    said = sorted(map(json.loads, filter(None, lines)), key=lambda one: one["RANK"])
    assert [one["RANK"] for one in said] == ["0", "1"], finished.stderr
    assert {one["WORLD_SIZE"] for one in said} == {"2"}
    assert len({one["MASTER_PORT"] for one in said}) == 1
    assert not set(said[0]["cores"]) & set(said[1]["cores"])
