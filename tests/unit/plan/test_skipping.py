"""skipping: which runs a machine cannot do, and why."""

import dataclasses
import os
from pathlib import Path

import pytest

from dlbench.common import tools
from dlbench.plan import skipping
from dlbench.plan.skipping import Devices
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.studies.site_facts import SITE

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
TWO_CORES = Devices("cpu", None, cores=2, nodes=2)
MIRRORED = {"strategy": "mirrored", "devices_per_node": 2}
HOROVOD = {"strategy": "horovod", "launcher": "horovodrun"}


def reason(devices=TWO_CORES, **changes):
    return skipping.cannot_run(dataclasses.replace(RUN, **changes), devices)


def test_devices_that_are_cpus_need_cores_and_others_are_counted():
    assert reason(**MIRRORED) is None
    assert reason(Devices("cpu", None, cores=1), **MIRRORED) == (
        "needs 2 cores (2 CPU devices of 1); a node of this site offers 1"
    )
    assert "needs 4 cores" in reason(threads_per_device=2, **MIRRORED)
    assert reason(Devices("cpu", None, cores=1, cores_quota=1.5), **MIRRORED) == (
        "needs 2 cores (2 CPU devices of 1); a node of this site offers 1: its control group has "
        "a quota of 1.5 cores of CPU time"
    )
    gpus = Devices("gpu", 4, cores=2)
    assert reason(gpus, threads_per_device=8, precision="tf32", **MIRRORED) is None
    message = reason(gpus, strategy="mirrored", devices_per_node=8)
    assert message == "needs 8 gpu devices per node; this site has 4"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"framework": "jax", "xla": True}, "compiles every step with XLA"),
        ({"framework": "jax", **MIRRORED}, "on these devices jax has: sharded"),
        ({"model": "gpt_tiny", "sequence_length": 257}, "more than the 256 positions of gpt_tiny"),
        ({"devices_per_node": 2}, "single drives one device; 2 need mirrored or horovod"),
        ({**HOROVOD, "launcher": "none"}, "needs a launcher such as horovodrun, found none"),
        ({**HOROVOD, "nodes": 2}, "launcher horovodrun starts processes on this machine only"),
        ({"copies_per_node": 2, "launcher": "srun"}, "found strategy single with launcher srun"),
        ({"accumulate_steps": 3}, "8 cannot be cut into 3"),
        ({"dataset": "digits", "input": "grain"}, "input grain is a reader of jax and pytorch"),
        ({"precision": "tf32"}, "is one of NVIDIA's GPUs; the devices of this site are CPUs"),
        ({"launcher": "torchrun"}, "launcher torchrun is pytorch's; this run is of tensorflow"),
        ({**HOROVOD, "launcher": "srun", "nodes": 3}, "needs 3 nodes; this site has 2 (site.node"),
        (
            {**HOROVOD, "launcher": "srun", "nodes": 2, "runtime": "apptainer"}
            | {"runtime_options": "start=directive"},
            "start: directive enters an image on one node only; the run has 2 nodes",
        ),
    ],
)
def test_whatever_a_run_cannot_have_is_a_reason_to_skip_it(fields, words):
    assert words in reason(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"accumulate_steps": 4, "optimizer": "adamw", "weight_decay": 0.1},
        {"framework": "pytorch", "compile": True},
        {"strategy": "multiworker", "launcher": "local", "devices_per_node": 2},
        {"strategy": "parameter_server", "launcher": "srun", "nodes": 2},
        {"precision": "bfloat16"},
    ],
)
def test_what_can_be_done_here_is_not_skipped(fields):
    assert reason(**fields) is None


def test_processes_of_ddp_need_a_launcher_that_has_them_meet():
    spread = {"framework": "pytorch", "strategy": "ddp", "devices_per_node": 2}
    assert "needs a launcher such as torchrun, found none" in reason(**spread)
    several = ("srun", "mpirun", "mpiexec", "flux")
    for launcher in ("torchrun", "accelerate", "deepspeed", "local", *several):
        assert reason(**spread, launcher=launcher) is None
        across = reason(**spread, nodes=2, launcher=launcher) or ""
        assert ("this machine only, not on 2 nodes" in across) is (launcher not in several)


def test_several_processes_of_sharded_need_a_launcher():
    spread = {"framework": "jax", "strategy": "sharded", "devices_per_node": 2}
    assert reason(**spread) is None
    each = {**spread, "strategy_options": "processes=device"}
    wanted = "need launcher local, srun or kubernetes, found"
    assert f"{wanted} none" in reason(**each)
    assert f"{wanted} mpirun" in reason(**each, launcher="mpirun")
    assert reason(**each, launcher="local") is None


def test_a_power_limit_is_of_gpus_on_the_node_of_who_sets_it():
    gpus = Devices("gpu", 4, cores=8, nodes=2)
    assert reason(gpus, power_limit_w=250) is None
    assert "the devices of this site are CPUs, which are some cores" in reason(power_limit_w=250)
    spread = {"strategy": "horovod", "launcher": "srun", "nodes": 2}
    assert "supervises a run, and this run has others" in reason(gpus, power_limit_w=250, **spread)
    assert "power_limit" not in (reason(gpus, **spread) or "")


def test_a_missing_package_is_named_with_the_command_that_installs_it(alone):
    message = reason(**HOROVOD)
    assert message.startswith("horovod is not installed in envs/train")
    command = tools.dlbench_command("environment envs/train --extra horovod")
    assert message.endswith(f"install it with: {command}")


def test_a_reader_that_is_not_installed_is_named_with_the_command_that_installs_it(alone):
    for name in ("jax", "train"):
        project = Path("envs", name, "pyproject.toml")
        project.parent.mkdir(exist_ok=True)
        project.symlink_to(REPOSITORY / project)
    grain = {"dataset": "digits", "framework": "jax", "input": "grain"}
    command = tools.dlbench_command("environment envs/jax --extra grain")
    assert reason(environment="jax", **grain) == (
        f"grain is not installed in envs/jax; install it with: {command}"
    )
    assert reason(environment="train", **grain) == (
        "envs/train has no grain, and offers none as an extra; environments that do: jax"
    )
    assert reason(**grain | {"environment": "jax", "input": "auto"}) is None


def test_an_environment_that_cannot_have_a_package_is_named_with_those_that_can():
    assert reason(**HOROVOD, environment="train-latest") == (
        "envs/train-latest has no horovod, and offers none as an extra; environments that do: "
        "train, train-cuda"
    )


def test_given_devices_and_cores_win_over_what_the_machine_has():
    found = skipping.devices(SITE | {"device": "gpu", "devices_per_node": 8})
    assert (found.kind, found.per_node) == ("gpu", 8)
    assert skipping.devices(SITE | {"cores_per_node": 64}).cores == 64


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A machine on which the driver lists as many GPUs as it is told."""

    def list_them(count):
        monkeypatch.setenv("PATH", str(tmp_path))
        if count is not None:
            program = tmp_path / "nvidia-smi"
            lines = [f"echo 'GPU {number}: NVIDIA A100 (UUID: x)'\n" for number in range(count)]
            program.write_text(f"#!/bin/sh\necho header\n{''.join(lines)}")
            program.chmod(0o755)
        skipping._gpus.cache_clear()

    yield list_them
    skipping._gpus.cache_clear()


@pytest.mark.parametrize(
    ("count", "device", "per_node", "found"),
    [
        (2, "auto", "auto", ("gpu", 2)),
        (0, "auto", "auto", ("cpu", None)),
        (2, "cpu", "auto", ("cpu", None)),
        (2, "gpu", "auto", ("gpu", 2)),
        (2, "auto", 1, ("gpu", 1)),
        (0, "auto", 4, ("cpu", 4)),
        (0, "gpu", "auto", ("gpu", 0)),
        (None, "auto", "auto", ("cpu", None)),  # without a driver
    ],
)
def test_auto_is_answered_by_the_machine(gpus, count, device, per_node, found):
    gpus(count)
    devices = skipping.devices(SITE | {"device": device, "devices_per_node": per_node})
    assert (devices.kind, devices.per_node) == found


def test_cores_are_those_this_process_may_use():
    given = SITE | {"devices_per_node": "auto"}
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert skipping.devices(given).cores == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_package_that_is_installed_is_no_reason_to_skip(alone):
    python = trainer_environments.trainer_python("train")
    package = python.parents[1] / "lib/python3.11/site-packages/horovod/__init__.py"
    for path in (python, package):
        path.parent.mkdir(parents=True)
        path.touch()
    assert reason(**HOROVOD, devices_per_node=2) is None
    # A copy on a machine that has not the Python is made anew, without what was beside the pins.
    python.unlink()
    python.symlink_to("/a/python/of/another/machine")
    trainer_environments.has_package.cache_clear()
    assert reason(**HOROVOD, devices_per_node=2).startswith("horovod is not installed")


def test_cuda_graphs_are_for_gpus(monkeypatch):
    fields = {"framework": "pytorch", "compile": True, "compile_mode": "cuda_graphs"}
    assert reason(**fields) == (
        "compile_mode cuda_graphs needs GPUs; the devices of this site are CPUs"
    )
    assert reason(Devices("gpu", 1, cores=2), **fields) is None
    # What another program makes of the field is its own matter.
    monkeypatch.setitem(skipping.other_trainers._trainers, "theirs", {"command": ["true"]})
    assert reason(**fields, trainer="theirs") is None


def test_copies_need_devices_of_their_own():
    assert reason(copies_per_node=2) is None
    assert reason(copies_per_node=3) == (
        "needs 3 cores (3 copies on 1 CPU devices of 1); a node of this site offers 2"
    )
    four = Devices("gpu", 4, cores=2)
    assert reason(four, copies_per_node=4) is None
    assert reason(four, copies_per_node=3, **MIRRORED) == (
        "needs 6 gpu devices per node (3 copies on 2); this site has 4"
    )


@pytest.mark.parametrize(
    ("runtime", "lacking"),
    [("apptainer", "apptainer or singularity"), ("charliecloud", "ch-run"), ("udocker", "udocker")],
)
def test_a_runtime_that_is_not_installed_is_named(project, monkeypatch, runtime, lacking):
    monkeypatch.setenv("PATH", str(project))
    assert reason(runtime=runtime) == (
        f"runtime {runtime} is not installed: {lacking} is not on the path of this machine"
    )
    for name in lacking.split(" or "):
        (project / name).write_text("#!/bin/sh\n")
        (project / name).chmod(0o755)
        assert reason(runtime=runtime) is None


def test_a_package_of_the_image_counts_in_a_container_not_that_of_the_environment(
    project, monkeypatch
):
    (project / "podman").write_text("#!/bin/sh\n")
    (project / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(project))
    assert reason(strategy="horovod", launcher="mpirun", runtime="podman") is None
