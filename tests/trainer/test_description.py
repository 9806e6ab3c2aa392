"""A real run describes this machine as its own tools do."""

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
from dlbench.records import costs
from support.trainers.training_runs import events, train

PLANTED = "pl4nted-s3cret"

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    """(log, folder of lists of packages) of a run with secrets in its environment."""
    folder = tmp_path_factory.mktemp("one")
    variables = {
        "WANDB_API_KEY": PLANTED, "HF_TOKEN": PLANTED, "NCCL_DEBUG": "WARN",
        "LOADEDMODULES": "CUDA/12.1", "EBROOTCUDA": "/home/me/CUDA",
        "XLA_FLAGS": f"--xla_dump_to=https://me:{PLANTED}@host/x",
    }  # fmt: skip
    log, packages = folder / "train.jsonl", folder / "packages"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        finished = train(log, flags=["--packages", str(packages)], steps=2, warmup_steps=1)
    assert finished.returncode == 0, finished.stderr
    return log, packages


def test_processor_and_memory_are_as_lscpu_and_the_kernel_know_them(described):
    if not shutil.which("lscpu"):
        pytest.skip("lscpu is not on this machine")
    (machine,) = events(described[0], "machine")
    said = machine["hardware"]
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


def test_a_run_says_its_software_cores_items_and_settings_and_no_secret(described):
    log, packages = described
    kinds = [event["event"] for event in event_log.read(log)]
    assert kinds[:5] == ["begin", "stage", "stage", "run_start", "machine"]
    (start,), (machine,) = events(log, "run_start"), events(log, "machine")
    said = machine["software"]
    assert (said["tensorflow"], said["keras"]) == (tf.__version__, keras.__version__)
    assert said["kernel"] == os.uname().release
    cuda = tf.sysconfig.get_build_info()["is_cuda_build"]
    assert said["tensorflow_build"]["is_cuda_build"] is cuda
    assert said["origin"]["module"] == {"CUDA": "12.1"}
    assert said["origin"]["EBROOTCUDA"] == "/home/(user)/CUDA"
    (kept,) = packages.iterdir()
    assert kept.stem == said["packages_sha256"] == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert f"numpy=={metadata.version('numpy')}" in kept.read_text().splitlines()
    assert machine["present"]["cpus"] == start["cores"]
    assert machine["limits"]["cpus"] == len(start["cores"])
    assert start["item_shape"] == [32, 32, 1]  # of synthetic items, the model's
    assert PLANTED not in log.read_text()
    assert machine["variables"]["NCCL_DEBUG"] == "WARN"
    assert machine["variables"]["XLA_FLAGS"] == "--xla_dump_to=https://(hidden)@host/x"
    assert costs.describe(log).startswith("step 3/3, ")
