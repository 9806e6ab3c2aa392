"""Containers and images to pass to runtimes."""

import os
import subprocess
from pathlib import Path

from dlbench.common import plugins
from dlbench.images.runtimes import Container, Image

NAMES = [n for n in plugins.names("runtimes") if plugins.load("runtimes", n).CONTAINED]
FOLDER = '/home/me/it\'s a "$(touch hacked)" wörk'
PROGRAM = ["env", "-u", "X", "python", "train.py", "--log", "a b'c", "$(touch hacked)", "; exit 3"]
SETTINGS = {"PATH": "/opt/bin:/bin", "OPAL_PREFIX": "/opt/a b"}
PLACE = "results/images/train/form"
CHOSEN = {"udocker": {"execmode": "P2"}, "apptainer": {"start": "command"}}
BLOCK = {"name": "contained", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8}
BLOCK |= {"warmup_steps": 1, "steps": 5, "runtime": "apptainer"}


def load(name):
    return plugins.load("runtimes", name)


def container(name="apptainer", **changes):
    given = {"image": "/images/x", "folder": FOLDER, "binds": ("/scratch", "/data:/input:ro")}
    given |= {"environment": SETTINGS, "options": CHOSEN.get(name, {}), "name": "lenet5-r1-abc"}
    return Container(**given | changes)


def image(kind="oci", marked=True, name="train"):
    path = {"oci": "results/images/train/oci", "sif": "/big/x.sif", "folder": "/big/root"}[kind]
    return Image(name, kind, Path(path), "sha256:" + "0123456789ab" * 5, "id", marked, {})


def arguments(command, tmp_path, monkeypatch, **variables):
    """Run a command and check that it injects no code. Returns the final program's arguments."""
    monkeypatch.chdir(tmp_path)
    environment = {"PATH": os.environ["PATH"], "SAID": str(tmp_path / "said"), **variables}
    subprocess.run(command, env=environment, check=True)
    assert not (tmp_path / "hacked").exists()
    return (tmp_path / "said").read_text().split("\0")[:-1]
