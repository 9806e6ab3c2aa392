"""The doctor on the driver of this machine's GPUs."""

import os

import pytest

from dlbench.campaign import doctor, doctor_driver
from dlbench.study import trainer_environments
from support.machines.nvidia_smi import NvidiaSmi
from support.runs.healthy_folder import here as here
from support.studies import made_studies
from support.studies.site_facts import SITE

PYTORCH = made_studies.BLOCK | {"framework": "pytorch", "steps": 5}


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A fake nvidia-smi, and environments of which that of PyTorch is installed."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setattr(trainer_environments, "is_installed", lambda name: name == "pytorch")
    return NvidiaSmi(tmp_path / "bin")


def test_an_environment_whose_cuda_is_too_new_for_the_driver_is_a_finding(here, smi):
    smi.set_driver("535.104.05")
    (found,) = doctor.examine()
    assert (found.kind, found.where) == ("driver", "envs/pytorch")
    assert "580.65.06 or newer, and there is 535.104.05" in found.line()
    assert "environment: pytorch-cuda12" in found.repair
    assert found.repair_action is None
    smi.set_driver("580.95.05")
    assert doctor.examine() == []
    smi.break_down()
    assert doctor.examine() == []


@pytest.mark.parametrize(("device", "named"), [("gpu", ["envs/pytorch"]), ("cpu", [])])
def test_of_a_study_the_environments_of_its_runs_count_and_none_on_cpus(device, named, smi):
    smi.set_driver("535.104.05")
    study = made_studies.study(PYTORCH, site=SITE | {"device": device, "devices_per_node": 1})
    assert [problem.where for problem in doctor_driver.problems(study)] == named
