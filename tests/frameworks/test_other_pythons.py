"""The trainer by hand on another Python than the project's, with JAX and Keras alone."""

import subprocess

import pytest

from dlbench.common import tools
from support.machines import pythons
from support.trainers.framework_runs import JAX
from support.trainers.training_runs import LEARNING, events

# By version of Python. NumPy is an old one where there is a JAX that takes it.
PACKAGES = {
    "3.10": ("jax==0.6.2", "keras==3.12.0", "numpy==1.26.4"),
    "3.12": ("jax==0.6.2", "keras==3.12.0", "numpy==1.26.4"),
    "3.13": ("jax==0.10.2", "keras==3.15.1", "numpy==2.4.6"),
}


@pytest.fixture(scope="module")
def other():
    """(version, path) of another Python of this machine."""
    for version in PACKAGES:
        if path := pythons.find(version):
            return version, path
    pytest.skip(f"this machine has no Python of version {', '.join(PACKAGES)}")


def test_a_python_with_jax_keras_and_numpy_alone_trains_and_learns(other, digits, tmp_path):
    version, path = other
    python = tmp_path / "environment/bin/python"
    for words in (
        ["venv", "--quiet", "--python", path, python.parents[1]],
        ["pip", "install", "--quiet", "--python", python, *PACKAGES[version]],
    ):
        subprocess.run([tools.find_uv(), *words], check=True)
    log = tmp_path / "train.jsonl"
    JAX.trained(log, python, digits, batch_per_device=32, **{**LEARNING, "epochs": 2})
    versions = events(log, "run_start")[0]["versions"]
    assert versions["python"].startswith(f"{version}.")
    wanted = dict(package.split("==") for package in PACKAGES[version])
    assert {name: versions[name] for name in wanted} == wanted
    scores = [event["top1"] for event in events(log, "eval")]
    assert scores[0] < 0.3 < 0.6 < scores[-1]
