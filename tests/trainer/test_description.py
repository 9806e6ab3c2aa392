"""Real runs describe this machine as its own tools do, with one process and with two."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from importlib import metadata

import keras
import pytest
import tensorflow as tf

from dlbench.log import event_log
from dlbench.machine import fingerprints
from dlbench.records import progress
from support.trainers.training_runs import TWO_DEVICES, events, train

PLANTED = "pl4nted-s3cret"
STEPS = {"steps": 2, "warmup_steps": 1}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A run of one process, with secrets in its environment: its folder."""
    folder = tmp_path_factory.mktemp("one")
    variables = {
        "WANDB_API_KEY": PLANTED, "HF_TOKEN": PLANTED, "NCCL_DEBUG": "WARN",
        "XLA_FLAGS": f"--xla_dump_to=https://me:{PLANTED}@host/x",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        finished = train(
            folder / "train.jsonl", flags=["--packages", str(folder / "packages")], **STEPS
        )
    assert finished.returncode == 0, finished.stderr
    return folder


def machine(log):
    (found,) = events(log, "machine")
    return found


def test_processor_and_memory_are_as_lscpu_and_the_kernel_know_them(one):
    if not shutil.which("lscpu"):
        pytest.skip("lscpu is not on this machine")
    said = machine(one / "train.jsonl")["hardware"]
    lines = subprocess.run(
        ["lscpu", "--parse=CPU,CORE,SOCKET"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    cpus = [line.split(",") for line in lines if not line.startswith("#")]
    assert said["cpu"]["threads"] == len(cpus)
    assert said["cpu"]["cores"] == len({(core, socket) for _, core, socket in cpus})
    assert said["cpu"]["sockets"] == len({socket for *_, socket in cpus})
    fields = json.loads(
        subprocess.run(["lscpu", "--json"], capture_output=True, text=True, check=True).stdout
    )["lscpu"]
    words = {field["field"].rstrip(":"): field["data"] for field in fields}
    if "Model name" in words and platform.machine() == "x86_64":
        assert said["cpu"]["model"] == words["Model name"]
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    whole_gib = None if said["cpu"]["virtual"] else pytest.approx(pages / 2**30, abs=1)
    assert said["memory"]["gib"] == whole_gib


def test_software_is_that_of_the_trainers_environment(one):
    said = machine(one / "train.jsonl")["software"]
    assert (said["tensorflow"], said["keras"]) == (tf.__version__, keras.__version__)
    assert said["kernel"] == os.uname().release
    cuda = tf.sysconfig.get_build_info()["is_cuda_build"]
    assert said["tensorflow_build"]["is_cuda_build"] is cuda
    (kept,) = (one / "packages").iterdir()
    assert kept.stem == said["packages_sha256"] == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert f"numpy=={metadata.version('numpy')}" in kept.read_text().splitlines()


def test_the_affinity_is_that_of_the_training_process(one):
    said, (start,) = machine(one / "train.jsonl"), events(one / "train.jsonl", "run_start")
    assert said["present"]["cpus"] == start["cores"]
    assert said["limits"]["cpus"] == len(start["cores"])


def test_the_shape_of_synthetic_items_is_that_of_the_model(one):
    (start,) = events(one / "train.jsonl", "run_start")
    assert start["item_shape"] == [32, 32, 1]


def test_settings_are_recorded_and_no_secret_is(one):
    text = (one / "train.jsonl").read_text()
    assert PLANTED not in text
    variables = machine(one / "train.jsonl")["variables"]
    assert variables["NCCL_DEBUG"] == "WARN"
    assert variables["XLA_FLAGS"] == "--xla_dump_to=https://(hidden)@host/x"


def test_gathering_takes_less_than_a_second_and_the_head_of_the_log_stays_as_it_is(one):
    kinds = [event["event"] for event in event_log.read(one / "train.jsonl")]
    assert kinds[:5] == ["begin", "stage", "stage", "run_start", "machine"]
    assert machine(one / "train.jsonl")["gathered_s"] < 1
    assert progress.describe(one / "train.jsonl").startswith("step 3/3, ")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", TWO_DEVICES, ids=lambda how: "-".join(how.values()))
def test_two_devices_have_the_fingerprint_of_one(how, one, tmp_path):
    finished = train(tmp_path / "train.jsonl", devices_per_node=2, **how, **STEPS)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = event_log.rank_paths(tmp_path / "train.jsonl")
    found = fingerprints.provenance([events(log, "machine") for log in logs])
    assert [rank["rank"] for rank in found["ranks"]] == list(range(len(logs)))
    assert {rank["host"] for rank in found["ranks"]} == {platform.node()}
    alone = fingerprints.provenance([events(one / "train.jsonl", "machine")])
    assert fingerprints.columns(found) == fingerprints.columns(alone)
    if how.get("launcher") == "mpirun":
        assert found["libraries"]["mpi"].startswith("Open MPI")
