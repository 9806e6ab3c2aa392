"""start_command: the whole command of a run, its launcher outside and its runtime inside."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import assignments, networks, plugins
from dlbench.images import trainer_image
from dlbench.starting import launchers, start_command
from dlbench.study.runs import Run
from dlbench.trainer import cluster

PATH = os.environ["PATH"]
RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
BARE = "envs/train/.venv/bin/python"
TRAINER = [BARE, "workflow_scripts/train.py", "--log", "it's here"]
INSIDE = [
    "/opt/dlbench/bin/python3", "workflow_scripts/train.py", "--log", "it's here",
    "--image-id", "build-1",
]  # fmt: skip
FORM = {
    "image": "train", "digest": "sha256:1", "image_id": "build-1", "runtime": "apptainer",
    "runtime_version": "apptainer version 1.4.5", "options": {"start": "command"},
    "prepared": "results/images/train/apptainer/image.sif",
    "environment": {"PATH": "/opt/dlbench/bin", "OPAL_PREFIX": "/opt/dlbench"},
    "python": "/opt/dlbench/bin/python3", "python_version": "3.11", "architecture": "x86_64",
    "libc": "glibc 2.36", "mpirun": "/opt/dlbench/bin/mpirun", "mpi": "Open MPI 4.1.8",
    "packages": {"tensorflow": "2.18.1", "horovod": "0.28.1"},
}  # fmt: skip
HOROVOD = {"strategy": "horovod", "devices_per_node": 2}
# The words around Open MPI's mpirun.
AS_ROOT = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
TWO_RANKS = ["-np", "2", "--bind-to", "none"]
RANKS = launchers.with_ranks(dataclasses.replace(RUN, **HOROVOD), [], *launchers.mpirun.RANKS)
HAND_ON = ["-x", "OPAL_PREFIX", "-x", "LD_LIBRARY_PATH"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A workflow's folder on a machine with Apptainer, without any MPI."""
    (tmp_path / "bin").mkdir()
    for name in ("sh", "cat"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    program("bin/apptainer")
    start_command.mpi_version.cache_clear()
    return tmp_path


def program(path, script=""):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def mpirun(version, folder="bin"):
    program(f"{folder}/mpirun", f"echo '{version}'")


def run_of(runtime="apptainer", options="start=command", **changes):
    options = options if runtime == "apptainer" else ""
    return dataclasses.replace(RUN, runtime=runtime, runtime_options=options, **changes)


def start(run, form=FORM, **more):
    return start_command.build(run, list(TRAINER), form, **more)


def enters(hidden=(), binds=(), gpu=()):
    """The words with which Apptainer enters the image of FORM."""
    here = os.getcwd()
    kept_out = [
        "LD_PRELOAD", "PMIX_INSTALL_PREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP",
        "VIRTUAL_ENV",
    ]  # fmt: skip
    return [
        "apptainer",
        "--silent",
        "exec",
        "--no-home",
        f"--pwd={here}",
        f"--bind={here}:{here}:rw",
        *binds,
        "--env=OPAL_PREFIX=/opt/dlbench",
        *gpu,
        FORM["prepared"],
        "env",
        *(word for name in kept_out for word in ("-u", name)),
        *INSIDE,
    ]


# Bare metal.


@pytest.mark.parametrize("launcher", ["none", "mpirun", "horovodrun", "local", "srun"])
def test_on_bare_metal_the_launcher_alone_starts_the_trainer(launcher):
    strategy = {"none": "single", "local": "multiworker"}.get(launcher, "horovod")
    run = dataclasses.replace(RUN, strategy=strategy, launcher=launcher)
    environment = Path("envs/train/.venv").absolute()
    bare = ["env", "-u", "PYTHONHOME", "-u", "PYTHONPATH", "PYTHONNOUSERSITE=1"]
    trainer = [*bare, *TRAINER]
    command = plugins.load("launchers", launcher).command(run, trainer, environment)
    # The launcher is a program of the environment's Python, too, or may start one.
    command = command if launcher == "none" else [*bare, *command]
    assert start(run, None) == start_command.Start(tuple(command), None, {})
    assert not start_command.contained(run)


@pytest.mark.parametrize(
    ("expected", "launcher", "changes", "environ"),
    [
        (True, "local", {"strategy": "multiworker"}, {}),
        (True, "horovodrun", {}, {}),
        (True, "mpirun", {}, {}),
        (True, "mpirun", {"runtime": "apptainer"}, {}),
        (False, "mpirun", {"runtime": "apptainer", "runtime_options": "start=command"}, {}),
        (False, "mpirun", {"runtime": "podman"}, {}),
        (False, "mpirun", {"nodes": 2}, {}),
        (False, "mpirun", {"trainer": "other"}, {}),
        (False, "mpirun", {}, {"SLURM_JOB_ID": "7"}),
        (True, "horovodrun", {}, {"SLURM_JOB_ID": "7"}),
        (False, "srun", {}, {}),
        (False, "none", {"strategy": "mirrored"}, {}),
    ],
)  # fmt: skip
def test_servers_of_several_processes_on_this_machine_need_nothing_but_loopback(
    expected, launcher, changes, environ
):
    run = dataclasses.replace(RUN, **({"launcher": launcher} | HOROVOD | changes))
    assert start_command.may_be_unreachable(run, environ) == expected


# The launcher outside, the runtime inside.


def test_one_process_enters_the_image_itself():
    started = start(run_of())
    assert list(started.command) == enters()
    assert started.cleanup is None
    assert started.container == {
        "start": "command",
        "launcher_mpi": None,
        **{key: FORM[key] for key in start_command.LOGGED},
    }


def test_binds_and_gpus_are_passed_to_the_runtime():
    for name in ("a b", "ro"):
        Path(name).mkdir()
    here = os.getcwd()
    found = start(run_of(), binds=[f"{here}/a b", f"{here}/ro:/input:ro"], device="gpu")
    binds = [f"--bind={here}/a b:{here}/a b:rw", f"--bind={here}/ro:/input:ro"]
    assert list(found.command) == enters(binds=binds, gpu=["--nv"])


def test_mpirun_of_the_path_is_taken_where_it_fits():
    mpirun("mpirun (Open MPI) 4.1.8")
    mpirun("mpirun (Open MPI) 4.1.9", "envs/train/.venv/bin")
    started = start(run_of(launcher="mpirun", **HOROVOD))
    assert list(started.command) == [*AS_ROOT, "mpirun", *TWO_RANKS, *RANKS, *enters()]
    assert started.container["launcher_mpi"] == "Open MPI 4.1.8"


@pytest.mark.parametrize(
    "other", ["mpirun (Open MPI) 4.1.4", "HYDRA build details:\n Version: 4.2", None, "nonsense"]
)
def test_else_that_of_our_own_environment_with_its_libraries(other):
    if other:
        mpirun(other)
    mpirun("mpirun (Open MPI) 4.1.8", "envs/train/.venv/bin")
    ours = Path("envs/train/.venv").absolute()
    started = start(run_of(launcher="mpirun", **HOROVOD))
    libraries = [f"OPAL_PREFIX={ours}", f"LD_LIBRARY_PATH={ours}/lib"]
    mine = [*AS_ROOT, *libraries, f"{ours}/bin/mpirun", *TWO_RANKS, *HAND_ON]
    assert list(started.command) == [*mine, *RANKS, *enters()]


def test_where_no_mpi_fits_both_sides_are_named():
    mpirun("mpirun (Open MPI) 4.1.4")
    mpirun("Intel(R) MPI Library for Linux* OS, Version 2021.9", "envs/train/.venv/bin")
    with pytest.raises(Error) as error:
        start(run_of(launcher="mpirun", **HOROVOD))
    message = str(error.value)
    assert message.startswith("image train has Open MPI 4.1.8; to start its processes this machine")
    assert f"{Path('bin/mpirun').absolute()} (Open MPI 4.1.4)" in message
    assert "(Intel(R) MPI 2021.9)" in message


def test_where_there_is_no_mpi_at_all_it_is_said():
    with pytest.raises(Error, match="needs the same MPI, as new or newer, and has: none"):
        start(run_of(launcher="mpirun", **HOROVOD))


def test_an_image_without_mpi_cannot_be_started_by_it():
    mpirun("mpirun (Open MPI) 4.1.8")
    with pytest.raises(Error, match="image train has no mpirun: its processes cannot speak MPI"):
        start(run_of(launcher="mpirun", **HOROVOD), FORM | {"mpi": None})


def test_horovodrun_gets_all_as_one_word():
    found = start(run_of(launcher="horovodrun", **HOROVOD)).command
    assert found[:-1] == ("horovodrun", "--gloo", "-np", "2", "-H", "localhost:2", "sh", "-c")
    assert shlex.split(found[-1]) == ["exec", *enters()]
    program("envs/train/.venv/bin/horovodrun")
    found = start(run_of(launcher="horovodrun", **HOROVOD)).command
    # Not the script, which in a copy of the environment would start the original's Python.
    python = str(Path("envs/train/.venv/bin/python3").absolute())
    assert found[:4] == (python, "-m", "horovod.runner.launch", "--gloo")


def test_local_processes_and_srun_enter_one_by_one():
    run = run_of(strategy="multiworker", launcher="local", devices_per_node=2)
    program = [sys.executable, os.path.relpath(start_command.START_PROCESSES)]
    assert list(start(run).command) == [*program, "--jobs", "worker=2", "--", *enters()]
    run = run_of(launcher="srun", nodes=2, **HOROVOD)
    assert list(start(run).command) == [
        "srun", "--nodes=2", "--ntasks=4", "--distribution=block,NoPack", "--cpu-bind=none",
        "--kill-on-bad-exit=1", "--overlap", *enters(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("device", "each"), [("cpu", ["--cores-each", "1"]), ("gpu", ["--gpus-each", "1"])]
)
def test_each_copy_enters_the_image_by_itself(device, each):
    gpu = ["--nv"] if device == "gpu" else []
    started = start(run_of(copies_per_node=3), device=device)
    program = [sys.executable, os.path.relpath(start_command.START_PROCESSES), "--copies", "3"]
    assert list(started.command) == [*program, *each, "--", *enters(gpu=gpu)]


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_containers_of_engines_are_named_after_the_run_and_ended(runtime):
    run = run_of(runtime)
    started = start(run, FORM | {"options": {}})
    assert f"--label=dlbench.run={run.id}" in started.command[2]
    assert started.cleanup[-1] == run.id


@pytest.mark.parametrize(
    ("runtime", "more"),
    [("apptainer", False), ("podman", False), ("docker", False), ("udocker", True),
     ("charliecloud", True)],
)  # fmt: skip
def test_what_this_machine_says_of_its_programs_is_hidden(runtime, more):
    options = {"udocker": {"execmode": "P2"}}.get(runtime, {})
    form = FORM | {"options": options, "environment": {"PYTHONPATH": "/image"}}
    arguments = " ".join(start(run_of(runtime), form).command)
    hidden = "-u LD_PRELOAD -u OPAL_PREFIX -u PMIX_INSTALL_PREFIX -u PYTHONHOME -u PYTHONSTARTUP "
    assert f"env {hidden}-u VIRTUAL_ENV " + ("-u LD_LIBRARY_PATH " if more else "") in arguments
    assert "-u PYTHONPATH" not in arguments


@pytest.mark.parametrize("bind", ["/no/such/folder", "/no/such/folder:/x:ro"])
def test_a_folder_that_is_not_there_is_named(bind):
    with pytest.raises(Error) as error:
        start(run_of(), binds=[bind])
    assert str(error.value) == (
        "/no/such/folder is to be bound into the container but is not on this machine"
    )


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_folder_that_no_runtime_can_bind_is_refused(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(Error, match=f"{name}: a path with , or : in it cannot be seen in a"):
        start(run_of())


def test_an_image_without_horovod_lacks_it():
    form = FORM | {"packages": FORM["packages"] | {"horovod": None}}
    with pytest.raises(
        trainer_image.Unusable, match=r"horovod is not in the image train \(sha256:1\)"
    ):
        start(run_of(launcher="horovodrun", **HOROVOD), form)


# The container directive.


@pytest.mark.parametrize(
    ("runtime", "options", "changes", "expected"),
    [
        ("bare", "", {}, False),
        ("podman", "", {}, False),
        ("apptainer", "", {}, True),
        ("apptainer", "start=directive", {}, True),
        ("apptainer", "start=command", {}, False),
        ("apptainer", "", HOROVOD | {"launcher": "mpirun"}, True),
        ("apptainer", "", HOROVOD | {"launcher": "srun", "nodes": 2}, False),
        ("apptainer", "", {"copies_per_node": 2}, False),
        ("apptainer", "start=directive", {"copies_per_node": 2}, True),
    ],
)
def test_the_directive_starts_what_shares_a_node_unless_it_is_told(
    runtime, options, changes, expected
):
    assert start_command.by_directive(run_of(runtime, options, **changes)) == expected


@pytest.fixture
def entered(monkeypatch, tmp_path):
    """As if the container directive had entered the image."""
    (tmp_path / "marker").write_text("{}")
    monkeypatch.setattr(trainer_image, "MARKER", str(tmp_path / "marker")[1:])


def test_inside_already_the_launcher_is_that_of_the_image(entered):
    started = start(run_of(options=""))
    assert list(started.command) == INSIDE
    assert started.container["start"] == "directive"
    run = run_of(options="", launcher="mpirun", **HOROVOD)
    assert list(start(run).command) == [*AS_ROOT, "mpirun", *TWO_RANKS, *RANKS, *INSIDE]
    own = Path("opt").absolute()
    program("opt/bin/mpirun")
    python = f"{own}/bin/python3"
    assert list(start(run, FORM | {"python": python}).command) == [
        *AS_ROOT,
        *(f"OPAL_PREFIX={own}", f"LD_LIBRARY_PATH={own}/lib"),
        *(f"{own}/bin/mpirun", *TWO_RANKS, *HAND_ON, *RANKS),
        *(python, *INSIDE[1:]),
    ]


def test_where_the_directive_did_nothing_it_is_said_how_it_is_asked_for():
    with pytest.raises(start_command.NotEntered) as error:
        start(run_of(options=""))
    assert "--software-deployment-method apptainer" in str(error.value)
    assert "runtime_options: {start: command}" in str(error.value)


# Which MPI may start which.


@pytest.mark.parametrize(
    ("outside", "inside", "expected"),
    [
        ("Open MPI 4.1.8", "Open MPI 4.1.8", True),
        ("Open MPI 4.1.8", "Open MPI 4.1.4", True),
        ("Open MPI 5.0.3", "Open MPI 4.1.8", True),
        ("Open MPI 4.1.10", "Open MPI 4.1.9", True),
        ("Open MPI 4.1.4", "Open MPI 4.1.8", False),
        ("Open MPI 4.1", "Open MPI 4.1.1", False),
        ("MPICH 4.2", "Open MPI 4.1.8", False),
        ("Open MPI 4.1.8", "MPICH 4.2", False),
        ("Intel(R) MPI 2021.9", "MPICH 4.2", False),
        ("nonsense", "Open MPI 4.1.8", False),
        ("Open MPI", "Open MPI 4.1.8", False),
        ("", "Open MPI 4.1.8", False),
    ],
)
def test_an_mpirun_starts_processes_of_the_same_mpi_that_is_not_newer(outside, inside, expected):
    assert start_command.fits(outside, inside) == expected


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("mpirun (Open MPI) 4.1.4\\n\\nReport bugs to http://www.open-mpi.org/", "Open MPI 4.1.4"),
        ("mpirun (Open MPI) 5.0.3rc1", "Open MPI 5.0.3"),
        ("HYDRA build details:\\n  MPICH Version: 4.0.2", "MPICH 4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 2023", "Intel(R) MPI 2021.9"),
        ("slurm 23.02", None),
        ("", None),
    ],
)
def test_an_mpirun_is_asked_which_it_is(said, version):
    program("bin/mpirun", f"printf '{said}'")
    assert start_command.mpi_version("bin/mpirun") == version


def test_an_mpirun_that_cannot_be_started_has_no_version():
    Path("bin/mpirun").write_text("no program")
    assert start_command.mpi_version("bin/mpirun") is None
    assert start_command.mpi_version("bin/none") is None


def test_the_environments_own_mpirun_is_asked_with_its_own_libraries():
    program("env/bin/mpirun", 'echo "Open MPI $OPAL_PREFIX" | grep -q env && echo Open MPI 4.1')
    program("env/bin/mpirun", '[ "$OPAL_PREFIX" = env ] && echo Open MPI 4.1')
    assert start_command.mpi_version("env/bin/mpirun") is None
    assert start_command.mpi_version("env/bin/mpirun", Path("env")) == "Open MPI 4.1"


# Variables of a run reach its launcher, its container and each of its processes.

GIVEN = assignments.text({"NCCL_ALGO": "Ring", "XLA_FLAGS": "--a=1 --b=it's"})
SET = ["env", "NCCL_ALGO=Ring", "XLA_FLAGS=--a=1 --b=it's"]
WITH_VARIABLES = dataclasses.replace(RUN, variables=GIVEN)


def command_of(run, trainer=TRAINER):
    form = FORM | {"runtime": run.runtime}
    return list(start_command.build(run, list(trainer), form).command)


def launched(run, program):
    environment = Path("envs/train/.venv").absolute()
    return plugins.load("launchers", run.launcher).command(run, program, environment)


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun", "local", "srun", "torchrun"])
def test_a_launcher_and_what_it_starts_get_the_variables(launcher):
    strategy = {"local": "multiworker", "torchrun": "ddp"}.get(launcher, "horovod")
    framework = "pytorch" if launcher == "torchrun" else "tensorflow"
    run = dataclasses.replace(
        WITH_VARIABLES, framework=framework, strategy=strategy, launcher=launcher
    )
    isolated = list(start_command.ISOLATED)
    inner = [*isolated, *SET, *TRAINER]
    assert command_of(run) == [*isolated, *SET, *launched(run, inner)]


def test_one_process_gets_them_once():
    assert command_of(WITH_VARIABLES) == [*start_command.ISOLATED, *SET, *TRAINER]


def test_a_program_without_our_environment_gets_them():
    run = dataclasses.replace(WITH_VARIABLES, trainer="theirs")
    assert command_of(run, ["train", "--x"]) == [*SET, "train", "--x"]


def test_a_program_on_several_nodes_gets_those_of_its_log_on_each(place):
    theirs = {"trainer": "theirs", "nodes": 2, "strategy": "horovod", "launcher": "srun"}
    run = dataclasses.replace(WITH_VARIABLES, **theirs, warmup_steps=3)
    path = place / "results/runs" / run.id / "output/logged.jsonl"
    logging = [f"DLBENCH_LOG={path}", "DLBENCH_WARMUP_STEPS=3"]
    assert command_of(run, ["train"])[-6:] == [*SET, *logging, "train"]


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "docker", "charliecloud"])
def test_a_container_that_a_command_starts_gets_them_outside_and_inside(runtime):
    options = "start=command" if runtime == "apptainer" else ""
    run = dataclasses.replace(WITH_VARIABLES, runtime=runtime, runtime_options=options)
    found = command_of(run)
    assert found[: len(SET)] == SET
    without = command_of(dataclasses.replace(run, variables=""))
    inside = " ".join(found[len(SET) :])
    assert inside != " ".join(without)
    assert "NCCL_ALGO=Ring" in inside.partition("workflow_scripts/train.py")[0]


def test_inside_a_container_that_the_directive_entered_they_are_set(entered):
    run = dataclasses.replace(WITH_VARIABLES, runtime="apptainer")
    plain = command_of(dataclasses.replace(run, variables=""))
    assert command_of(run) == [*SET, *plain]
    ranks = {"strategy": "horovod", "devices_per_node": 2, "launcher": "mpirun"}
    run = dataclasses.replace(run, **ranks)
    found = command_of(run)
    assert found[: len(SET)] == SET
    assert found[-len(SET) - len(plain) :] == [*SET, *plain]


def test_each_copy_gets_them():
    run = dataclasses.replace(WITH_VARIABLES, copies_per_node=2)
    found = command_of(run)
    assert found[-len(SET) - len(TRAINER) :] == [*SET, *TRAINER]


def test_a_process_really_has_them(monkeypatch):
    monkeypatch.setenv("PATH", PATH)
    program = [sys.executable, "-c", "import os; print(os.environ['XLA_FLAGS'])"]
    run = dataclasses.replace(WITH_VARIABLES, trainer="theirs")
    made = subprocess.run(command_of(run, program), capture_output=True, text=True, check=True)
    assert made.stdout == "--a=1 --b=it's\n"


def test_a_run_without_variables_is_started_as_before():
    assert "NCCL_ALGO" not in " ".join(command_of(RUN))
    assert command_of(RUN) == [*start_command.ISOLATED, *TRAINER]


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
    [(NODES_RUN, {}), (RUN, JOB)],
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
    start_command.check_node(dataclasses.replace(RUN, node=node), variables)


def test_a_job_on_another_node_than_was_asked_for_says_so():
    run = dataclasses.replace(RUN, node="n7")
    variables = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n8"}
    with pytest.raises(start_command.WrongNode, match=r"expected node n7, found .*n8: Slurm was"):
        start_command.check_node(run, variables)


PAIR = dataclasses.replace(RUN, node="n[7-8]", nodes=2)


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
    return {"HOME": str(tmp_path), "PATH": PATH, "KEPT": "a\nb"}


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
        start_command.load_modules(["mpi"], {"HOME": str(tmp_path), "PATH": PATH})


def test_names_are_no_shell(environ, tmp_path):
    with pytest.raises(Error):
        start_command.load_modules([f"$(touch {tmp_path}/ran)"], environ)
    assert not (tmp_path / "ran").exists()
