"""Variables of a run reach its launcher, its container and each of its processes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import assignments, networks, plugins
from dlbench.images import trainer_image
from dlbench.starting import start_command
from dlbench.study.runs import Run
from dlbench.trainer import cluster

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


NODES_RUN = Run(
    model="lenet5", dataset="synthetic", batch_per_device=8, steps=3,
    strategy="multiworker", launcher="srun", nodes=2,
)  # fmt: skip

JOB = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2].invalid"}

NODES = "NodeName=n{0}.invalid Arch=x86_64 NodeAddr={1} NodeHostName=n{0} Version=22.05.8"


@pytest.fixture
def scontrol(program):
    program("scontrol", "\n".join(NODES.format(*node) for node in ((1, "10.0.0.1"), (2, "n2.x"))))


def addresses(variables):
    return json.loads(variables.get(cluster.NODE_ADDRESSES, "{}"))


def test_nodes_whose_names_lead_nowhere_have_the_addresses_by_which_slurm_reaches_them(scontrol):
    found = start_command.address_variables(NODES_RUN, None, JOB)
    assert addresses(found) == {"n1.invalid": "10.0.0.1", "n2.invalid": "n2.x"}


def test_where_the_site_says_how_nodes_are_reached_slurm_is_not_asked(monkeypatch):
    monkeypatch.setattr(networks, "unresolved_names", lambda names: {})
    found = start_command.address_variables(NODES_RUN, "{node}-ib0", JOB)
    assert addresses(found) == {name: f"{name}-ib0" for name in ("n1.invalid", "n2.invalid")}


@pytest.mark.parametrize(
    ("run", "environ"),
    [(NODES_RUN, {}), (Run(model="lenet5", dataset="x", batch_per_device=8, steps=3), JOB)],
    ids=["outside of a job", "on one node"],
)
def test_elsewhere_names_are_neither_looked_up_nor_replaced(run, environ, program):
    program("scontrol", script="#!/bin/sh\nexit 1\n")
    assert start_command.address_variables(run, None, environ) == {}


def test_the_nodes_of_a_job_are_reached_past_a_proxy(scontrol):
    found = start_command.address_variables(
        NODES_RUN, None, JOB | {"http_proxy": "http://proxy:8080"}
    )
    exempt = set(found["no_proxy"].split(","))
    assert exempt >= {"localhost", "127.0.0.1", "n1.invalid", "10.0.0.1", "n2.invalid", "n2.x"}


def test_a_slurm_that_does_not_answer_leaves_the_names_as_they_are(program):
    program("scontrol", script="#!/bin/sh\nexit 1\n")
    assert start_command.address_variables(NODES_RUN, None, JOB) == {}


NAMED_RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)


@pytest.mark.parametrize(
    ("node", "variables"),
    [
        (None, {}),
        ("n7", {"DLBENCH_HOST": "n7"}),
        ("n7", {"DLBENCH_HOST": "n7.cluster.example"}),
        ("n7.cluster.example", {"DLBENCH_HOST": "n7"}),
        # As the scheduler calls it.
        ("n7", {"DLBENCH_HOST": "x1c0", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[7]"}),
    ],
)
def test_a_run_is_on_its_node_by_the_name_of_the_machine_or_of_the_scheduler(
    node, variables, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    start_command.check_node(dataclasses.replace(NAMED_RUN, node=node), variables)


def test_a_job_on_another_node_than_was_asked_for_says_so():
    run = dataclasses.replace(NAMED_RUN, node="n7")
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n8"}
    with pytest.raises(start_command.WrongNode, match=r"expected node n7, found .*n8: Slurm was"):
        start_command.check_node(run, variables)


PAIR = dataclasses.replace(NAMED_RUN, node="n[7-8]", nodes=2)


def test_a_run_on_several_named_nodes_is_on_all_of_them_or_says_so():
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[7-8]"}
    start_command.check_node(PAIR, variables)
    variables["SLURM_JOB_NODELIST"] = "n[7,9]"
    found = r"expected node n\[7-8\], found .*n9: Slurm was asked for these nodes and chose others"
    with pytest.raises(start_command.WrongNode, match=found):
        start_command.check_node(PAIR, variables)
    with pytest.raises(start_command.WrongNode, match="only the profile of a cluster sends runs"):
        start_command.check_node(PAIR, {})


# What Lmod and Tcl modules have in common, in a few lines; installed as a login shell's start file.
PROFILE = """
module() {
    case "$2" in
        mpi/4.1)
            export MPI_HOME=/opt/mpi PATH="/opt/mpi/bin:$PATH"
            export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}mpi/4.1" ;;
        silent) return 0 ;;
        *) echo "Unable to locate a modulefile for '$2'" >&2; return 1 ;;
    esac
}
"""


@pytest.fixture
def environ(tmp_path):
    (tmp_path / ".bash_profile").write_text(PROFILE)
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "KEPT": "a\nb"}


def test_a_module_changes_the_environment_and_leaves_the_rest(environ):
    found = start_command.load_modules(["mpi/4.1"], environ)
    assert found["MPI_HOME"] == "/opt/mpi" and "/opt/mpi/bin" in found["PATH"].split(":")
    assert found["KEPT"] == "a\nb" and "DLBENCH_PYTHON" not in found


def test_no_modules_change_nothing(environ):
    assert start_command.load_modules([], environ) == environ


@pytest.mark.parametrize("name", ["mpi/9", "silent"])
def test_a_module_that_cannot_be_loaded_is_an_error_also_where_none_is_told(environ, name):
    with pytest.raises(Error, match=f"module load mpi/4.1 {name} failed.*site.modules"):
        start_command.load_modules(["mpi/4.1", name], environ)


def test_a_machine_without_modules_says_so(tmp_path):
    with pytest.raises(Error, match="no command module on this machine"):
        start_command.load_modules(["mpi"], {"HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_names_are_no_shell(environ, tmp_path):
    with pytest.raises(Error):
        start_command.load_modules([f"$(touch {tmp_path}/ran)"], environ)
    assert not (tmp_path / "ran").exists()
