"""cuda_drivers: environments that need a newer driver are named, with those that do instead."""

import pytest

from dlbench.images import trainer_image
from dlbench.study import trainer_environments

EVERY = trainer_environments.environments()
OF_PROGRAMS = ["huggingface", "lightning", "torchtitan"]


def test_the_cuda_of_an_environment_is_that_of_its_wheels():
    cuda = {name: trainer_image.cuda_of(name) for name in EVERY}
    major = {name: version.partition(".")[0] for name, version in cuda.items() if version}
    ours = {"jax-cuda": "12", "pytorch": "13", "pytorch-cuda12": "12", "train-cuda": "12"}
    assert major == ours | dict.fromkeys(OF_PROGRAMS, "13")
    assert trainer_image.cuda_of("an image") is None


@pytest.mark.parametrize(
    ("driver", "named"),
    [
        ("580.95.05", []),
        ("535.104.05", ["pytorch", *OF_PROGRAMS]),
        ("515.105.01", ["jax-cuda", "pytorch", "pytorch-cuda12", "train-cuda", *OF_PROGRAMS]),
        ("no version", []),
    ],
)
def test_environments_are_named_whose_cuda_is_too_new_for_a_driver(driver, named):
    found = list(trainer_image.misfits([*EVERY, "an image"], driver))
    assert [misfit.environment for misfit in found] == sorted(named)


def test_the_variant_that_fits_is_named_with_how_it_is_made(monkeypatch):
    monkeypatch.setattr(trainer_environments, "is_installed", lambda name: False)
    (misfit,) = trainer_image.misfits(["pytorch", "pytorch"], "535.104.05")
    assert "needs driver 580.65.06 or newer, and there is 535.104.05" in misfit.reason
    assert "`environment: pytorch-cuda12`" in misfit.remedy
    assert "dlbench environment envs/pytorch-cuda12" in misfit.remedy
    monkeypatch.setattr(trainer_environments, "is_installed", lambda name: True)
    (misfit,) = trainer_image.misfits(["pytorch"], "535.104.05")
    assert "make_environment" not in misfit.remedy


def test_where_no_variant_fits_the_driver_is_to_be_updated():
    of_programs = ((name, "535.104.05") for name in OF_PROGRAMS)
    for environment, driver in (("pytorch", "470.57.02"), *of_programs):
        (misfit,) = trainer_image.misfits([environment], driver)
        assert misfit.remedy.startswith("update the driver: no environment in envs/")
