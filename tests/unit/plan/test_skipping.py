"""site: which runs a machine cannot do, and why."""

import dataclasses
import os

import pytest

from dlbench.common import tools
from dlbench.plan import site_devices, skipping
from dlbench.plan.site_devices import Devices
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.studies.site_facts import SITE

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)
TWO_CORES = Devices("cpu", None, cores=2, nodes=2)


def reason(devices=TWO_CORES, **changes):
    return skipping.cannot_run(dataclasses.replace(RUN, **changes), devices)


def test_one_device_is_no_problem():
    assert reason() is None


def test_two_cpu_devices_need_two_cores():
    mirrored = {"strategy": "mirrored", "devices_per_node": 2}
    assert reason(**mirrored) is None
    assert reason(Devices("cpu", None, cores=1), **mirrored) == (
        "needs 2 cores (2 CPU devices of 1); a node of this site offers 1"
    )
    assert "needs 4 cores" in reason(threads_per_device=2, **mirrored)
    assert reason(Devices("cpu", None, cores=1, cores_quota=1.5), **mirrored) == (
        "needs 2 cores (2 CPU devices of 1); a node of this site offers 1: its control group has "
        "a quota of 1.5 cores of CPU time"
    )


def test_a_strategy_that_the_framework_lacks_is_skipped_with_those_that_it_has():
    assert reason(framework="jax", strategy="mirrored", devices_per_node=2) == (
        "strategy mirrored is one of tensorflow, not of jax; on these devices jax has: sharded"
    )


def test_a_field_that_a_framework_lacks_is_no_choice():
    assert reason(framework="jax") is None
    assert "compiles every step with XLA" in reason(framework="jax", xla=True)
    assert "compile is a field of framework pytorch" in reason(compile=True)
    assert reason(framework="pytorch", compile=True) is None


def test_updates_that_a_run_cannot_have_are_skipped_with_the_reason():
    assert "8 cannot be cut into 3" in reason(accumulate_steps=3)
    assert "needs a weight_decay" in reason(optimizer="adamw")
    mirrored = {"strategy": "mirrored", "devices_per_node": 2}
    assert "before they are added up" in reason(clip_norm=1.0, **mirrored)
    assert reason(accumulate_steps=4, optimizer="adamw", weight_decay=0.1, **mirrored) is None


def test_processes_of_ddp_need_a_launcher_that_has_them_meet():
    spread = {"framework": "pytorch", "strategy": "ddp", "devices_per_node": 2}
    assert "needs a launcher such as torchrun, found none" in reason(**spread)
    for launcher in ("torchrun", "local", "srun", "mpirun"):
        assert reason(**spread, launcher=launcher) is None
    assert "this machine only, not on 2 nodes" in reason(**spread, nodes=2, launcher="torchrun")
    assert "needs launcher srun" in reason(**spread, nodes=2, launcher="mpirun")
    assert (
        reason(launcher="torchrun") == "launcher torchrun is pytorch's; this run is of tensorflow"
    )


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


def test_what_the_site_says_of_its_devices_counts():
    message = reason(Devices("gpu", 4, cores=2), strategy="mirrored", devices_per_node=8)
    assert message == "needs 8 gpu devices per node; this site has 4"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices_per_node": 2}, "single drives one device; 2 need mirrored or horovod"),
        ({"strategy": "mirrored", "nodes": 2}, "mirrored stays on one node"),
        (
            {"strategy": "horovod", "devices_per_node": 2},
            "needs a launcher such as horovodrun, found none",
        ),
    ],
)
def test_a_strategy_says_what_it_cannot_do(changes, message):
    assert message in reason(**changes)


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer_environments.has_package.cache_clear()
    message = reason(strategy="horovod", launcher="horovodrun")
    trainer_environments.has_package.cache_clear()
    assert message.startswith("horovod is not installed in envs/train")
    command = tools.dlbench_command("environment envs/train --extra horovod")
    assert message.endswith(f"install it with: {command}")


def test_a_reader_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("jax", "train"):
        (tmp_path / "envs" / name).mkdir(parents=True)
        (tmp_path / "envs" / name / "pyproject.toml").symlink_to(
            REPOSITORY / "envs" / name / "pyproject.toml"
        )
    grain = {"dataset": "digits", "framework": "jax", "input": "grain"}
    trainer_environments.has_package.cache_clear()
    message, elsewhere = (reason(environment=name, **grain) for name in ("jax", "train"))
    usual = reason(**grain | {"environment": "jax", "input": "auto"})
    trainer_environments.has_package.cache_clear()
    command = tools.dlbench_command("environment envs/jax --extra grain")
    assert message == f"grain is not installed in envs/jax; install it with: {command}"
    assert elsewhere == (
        "envs/train has no grain, and offers none as an extra; environments that do: jax"
    )
    assert usual is None


def test_an_environment_that_cannot_have_a_package_is_named_with_those_that_can():
    message = reason(strategy="horovod", launcher="horovodrun", environment="train-latest")
    assert message == (
        "envs/train-latest has no horovod, and offers none as an extra; environments that do: "
        "train, train-cuda"
    )


def test_given_devices_win_over_what_the_machine_has():
    given = SITE | {"device": "gpu", "devices_per_node": 8}
    found = site_devices.devices(given)
    assert (found.kind, found.per_node) == ("gpu", 8)
    automatic = site_devices.devices(SITE | {"devices_per_node": "auto"})
    assert (automatic.kind, automatic.per_node) == ("cpu", None)
    assert automatic.cores >= 1


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A machine on which the driver lists as many GPUs as it is told."""

    def list_them(count):
        program = tmp_path / "nvidia-smi"
        lines = "".join(f"echo 'GPU {number}: NVIDIA A100 (UUID: x)'\n" for number in range(count))
        program.write_text(f"#!/bin/sh\necho header\n{lines}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        site_devices._gpus.cache_clear()

    yield list_them
    site_devices._gpus.cache_clear()


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
    ],
)
def test_auto_is_answered_by_the_machine(gpus, count, device, per_node, found):
    gpus(count)
    devices = site_devices.devices(SITE | {"device": device, "devices_per_node": per_node})
    assert (devices.kind, devices.per_node) == found


def test_a_machine_without_a_driver_has_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    site_devices._gpus.cache_clear()
    devices = site_devices.devices(SITE | {"device": "auto", "devices_per_node": "auto"})
    site_devices._gpus.cache_clear()
    assert devices.kind == "cpu"


def test_cores_are_those_this_process_may_use():
    given = SITE | {"devices_per_node": "auto"}
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert site_devices.devices(given).cores == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_cores_count_where_devices_are_cpus_of_this_machine_only():
    mirrored = {"strategy": "mirrored", "devices_per_node": 2, "threads_per_device": 8}
    assert "needs 16 cores" in reason(**mirrored)
    assert reason(Devices("gpu", 2, cores=2), **mirrored) is None


def test_a_package_that_is_installed_is_no_reason_to_skip(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    python = trainer_environments.trainer_python("train")
    package = python.parents[1] / "lib/python3.11/site-packages/horovod/__init__.py"
    for path in (python, package):
        path.parent.mkdir(parents=True)
        path.touch()
    trainer_environments.has_package.cache_clear()
    found = reason(strategy="horovod", launcher="horovodrun", devices_per_node=2)
    # A copy on a machine that has not the Python is made anew, without what was beside the pins.
    python.unlink()
    python.symlink_to("/a/python/of/another/machine")
    trainer_environments.has_package.cache_clear()
    copied = reason(strategy="horovod", launcher="horovodrun", devices_per_node=2)
    trainer_environments.has_package.cache_clear()
    assert found is None
    assert copied.startswith("horovod is not installed")


def test_a_launcher_says_that_it_stays_on_this_machine():
    message = reason(strategy="horovod", launcher="horovodrun", nodes=2)
    assert message == "launcher horovodrun starts processes on this machine only, not on 2 nodes"


def test_tf32_is_for_gpus():
    assert reason(precision="tf32") == (
        "precision tf32 is one of NVIDIA's GPUs; the devices of this site are CPUs"
    )
    assert reason(Devices("gpu", 1, cores=2), precision="tf32") is None
    assert reason(precision="bfloat16") is None


def test_cuda_graphs_are_for_gpus(monkeypatch):
    fields = {"framework": "pytorch", "compile": True, "compile_mode": "cuda_graphs"}
    assert reason(**fields) == (
        "compile_mode cuda_graphs needs GPUs; the devices of this site are CPUs"
    )
    assert reason(Devices("gpu", 1, cores=2), **fields) is None
    # What another program makes of the field is its own matter.
    monkeypatch.setitem(skipping.other_trainers._trainers, "theirs", {"command": ["true"]})
    assert reason(**fields, trainer="theirs") is None


def test_the_launcher_of_tf_distribute_stays_on_this_machine():
    assert reason(strategy="multiworker", launcher="local", devices_per_node=2) is None
    assert reason(strategy="multiworker", launcher="local", nodes=2) == (
        "launcher local starts processes on this machine only, not on 2 nodes"
    )
    assert reason(strategy="parameter_server", launcher="srun", nodes=2) is None


def test_copies_need_devices_of_their_own():
    assert reason(copies_per_node=2) is None
    assert reason(copies_per_node=3) == (
        "needs 3 cores (3 copies on 1 CPU devices of 1); a node of this site offers 2"
    )
    four = Devices("gpu", 4, cores=2)
    assert reason(four, copies_per_node=4) is None
    mirrored = {"strategy": "mirrored", "devices_per_node": 2}
    assert reason(four, copies_per_node=3, **mirrored) == (
        "needs 6 gpu devices per node (3 copies on 2); this site has 4"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"strategy": "multiworker", "launcher": "local"},
            "copies_per_node needs a strategy of one process without a launcher",
        ),
        ({"launcher": "srun"}, "found strategy single with launcher srun"),
    ],
)
def test_what_is_more_than_one_process_cannot_be_packed(changes, message):
    assert message in reason(Devices("gpu", 8, cores=2), copies_per_node=2, **changes)


@pytest.mark.parametrize(
    ("runtime", "lacking"),
    [
        ("apptainer", "apptainer or singularity"),
        ("podman", "podman"),
        ("docker", "docker"),
        ("charliecloud", "ch-run"),
        ("udocker", "udocker"),
    ],
)
def test_a_runtime_that_is_not_installed_is_named(tmp_path, monkeypatch, runtime, lacking):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert reason(runtime=runtime) == (
        f"runtime {runtime}: {lacking} is not on the path of this machine"
    )
    for name in lacking.split(" or "):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert reason(runtime=runtime) is None


def test_a_package_of_the_image_counts_in_a_container_not_that_of_the_environment(
    tmp_path, monkeypatch
):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert reason(strategy="horovod", launcher="mpirun", runtime="podman") is None


def test_the_directive_stays_on_one_node():
    horovod = {"strategy": "horovod", "launcher": "srun", "nodes": 2, "runtime": "apptainer"}
    assert reason(runtime_options="start=directive", **horovod) == (
        "start: directive enters an image on one node only; the run has 2 nodes"
    )


def test_a_run_on_more_nodes_than_the_site_lends_is_skipped():
    horovod = {"strategy": "horovod", "launcher": "srun"}
    assert reason(**horovod, nodes=3) == "needs 3 nodes; this site has 2 (site.nodes)"


def test_the_cores_of_a_node_may_be_given_since_runs_start_elsewhere():
    assert site_devices.devices(SITE | {"cores_per_node": 64}).cores == 64
