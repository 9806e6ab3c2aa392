"""starting: the variables of a run reach its launcher, its container and each of its processes."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.common import assignments, plugins
from dlbench.images import trainer_image
from dlbench.starting import start_command
from dlbench.study.runs import Run

GIVEN = assignments.text({"NCCL_ALGO": "Ring", "XLA_FLAGS": "--a=1 --b=it's"})
SET = ["env", "NCCL_ALGO=Ring", "XLA_FLAGS=--a=1 --b=it's"]
RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5, variables=GIVEN)
PLAIN = dataclasses.replace(RUN, variables="")
TRAINER = ["envs/train/.venv/bin/python", "workflow_scripts/train.py", "--log", "it's here"]
FORM = {
    "image": "train", "digest": "sha256:1", "image_id": "build-1", "runtime": "apptainer",
    "runtime_version": "1.4.5", "options": {"start": "command"},
    "prepared": "results/images/train/apptainer/image.sif", "environment": {"PATH": "/opt/bin"},
    "python": "/opt/dlbench/bin/python3", "python_version": "3.11", "architecture": "x86_64",
    "libc": "glibc 2.36", "mpirun": "/opt/bin/mpirun", "mpi": "Open MPI 4.1.8",
    "packages": {"tensorflow": "2.18.1", "horovod": "0.28.1"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marker").write_text("{}")
    monkeypatch.setattr(trainer_image, "MARKER", str(tmp_path / "marker")[1:])
    return tmp_path


def command(run, trainer=TRAINER):
    form = FORM | {"runtime": run.runtime}
    return list(start_command.build(run, list(trainer), form).command)


def launched(run, program):
    environment = Path("envs/train/.venv").absolute()
    return plugins.load("launchers", run.launcher).command(run, program, environment)


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun", "local", "srun", "torchrun"])
def test_a_launcher_and_what_it_starts_get_the_variables(launcher):
    strategy = {"local": "multiworker", "torchrun": "ddp"}.get(launcher, "horovod")
    framework = "pytorch" if launcher == "torchrun" else "tensorflow"
    run = dataclasses.replace(RUN, framework=framework, strategy=strategy, launcher=launcher)
    isolated = list(start_command.ISOLATED)
    inner = [*isolated, *SET, *TRAINER]
    assert command(run) == [*isolated, *SET, *launched(run, inner)]


def test_one_process_gets_them_once():
    assert command(RUN) == [*start_command.ISOLATED, *SET, *TRAINER]


def test_a_program_without_our_environment_gets_them():
    run = dataclasses.replace(RUN, trainer="theirs")
    assert command(run, ["train", "--x"]) == [*SET, "train", "--x"]


def test_a_program_on_several_nodes_gets_those_of_its_log_on_each(place):
    run = dataclasses.replace(
        RUN, trainer="theirs", nodes=2, strategy="horovod", launcher="srun", warmup_steps=3
    )
    path = place / "results/runs" / run.id / "output/logged.jsonl"
    logging = [f"DLBENCH_LOG={path}", "DLBENCH_WARMUP_STEPS=3"]
    assert command(run, ["train"])[-6:] == [*SET, *logging, "train"]


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "docker", "charliecloud"])
def test_a_container_that_a_command_starts_gets_them_outside_and_inside(runtime):
    options = "start=command" if runtime == "apptainer" else ""
    run = dataclasses.replace(RUN, runtime=runtime, runtime_options=options)
    found = command(run)
    assert found[: len(SET)] == SET
    without = command(dataclasses.replace(run, variables=""))
    inside = " ".join(found[len(SET) :])
    assert inside != " ".join(without)
    assert "NCCL_ALGO=Ring" in inside.partition("workflow_scripts/train.py")[0]


def test_inside_a_container_that_the_directive_entered_they_are_set():
    run = dataclasses.replace(RUN, runtime="apptainer")
    plain = command(dataclasses.replace(run, variables=""))
    assert command(run) == [*SET, *plain]
    ranks = {"strategy": "horovod", "devices_per_node": 2, "launcher": "mpirun"}
    run = dataclasses.replace(run, **ranks)
    found = command(run)
    assert found[: len(SET)] == SET
    assert found[-len(SET) - len(plain) :] == [*SET, *plain]


def test_each_copy_gets_them():
    run = dataclasses.replace(RUN, copies_per_node=2)
    found = command(run)
    assert found[-len(SET) - len(TRAINER) :] == [*SET, *TRAINER]


def test_a_process_really_has_them():
    program = [sys.executable, "-c", "import os; print(os.environ['XLA_FLAGS'])"]
    run = dataclasses.replace(RUN, trainer="theirs")
    made = subprocess.run(command(run, program), capture_output=True, text=True, check=True)
    assert made.stdout == "--a=1 --b=it's\n"


def test_a_run_without_variables_is_started_as_before():
    assert "NCCL_ALGO" not in " ".join(command(PLAIN))
    assert command(PLAIN) == [*start_command.ISOLATED, *TRAINER]
