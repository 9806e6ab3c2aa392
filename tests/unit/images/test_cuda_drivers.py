"""make_image: environments that need a newer driver, and their making."""

import json
import subprocess
from pathlib import Path

import pytest
import tomllib

from dlbench.common import own_code, tools
from dlbench.images import make_image, trainer_image
from dlbench.study import trainer_environments
from support.machines.paths import REPOSITORY

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


@pytest.mark.parametrize("whose", ["workflow", "trainer"])
def test_environments_are_made_to_be_moved_and_copied(tmp_path, whose):
    ours = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["uv"]
    settings = ["package = false"]
    if whose == "workflow":
        settings += [f"preview-features = {ours['preview-features']}"]
    (tmp_path / "pyproject.toml").write_text(
        "\n".join(['[project]\nname = "empty"\nversion = "0"\n[tool.uv]', *settings])
    )
    subprocess.run([tools.find_uv(), "lock", "--quiet", "--offline"], cwd=tmp_path, check=True)
    if whose == "workflow":
        subprocess.run([tools.find_uv(), "sync", "--offline"], cwd=tmp_path, check=True)
    else:
        make_image.make_environment(tmp_path, output=tmp_path / "packages.json")
        assert json.loads((tmp_path / "packages.json").read_text())["packages"] == {}
    # Else scripts in .venv/bin would name the Python of this folder, wherever they are.
    assert "relocatable = true" in (tmp_path / ".venv/pyvenv.cfg").read_text()


def test_an_installed_dlbench_makes_them_in_the_working_folder(tmp_path, monkeypatch):
    project = tmp_path / "installed here/envs/empty"
    project.mkdir(parents=True)
    text = '[project]\nname = "empty"\nversion = "0"\n[tool.uv]\npackage = false\n'
    (project / "pyproject.toml").write_text(text)
    subprocess.run([tools.find_uv(), "lock", "--quiet", "--offline"], cwd=project, check=True)
    monkeypatch.setattr(own_code, "is_wheel", lambda: True)
    monkeypatch.setattr(own_code, "in_project_folder", lambda: False)
    monkeypatch.setattr(own_code, "PROJECT", project.parents[1])
    (tmp_path / "my work").mkdir()
    monkeypatch.chdir(tmp_path / "my work")
    before = set(project.rglob("*"))
    make_image.make_environment(Path("envs/empty"), output=Path("packages.json"))
    assert trainer_environments.is_installed("empty")
    assert trainer_environments.trainer_python("empty") == Path("envs/empty/.venv/bin/python")
    assert json.loads(Path("packages.json").read_text())["packages"] == {}
    assert set(project.rglob("*")) == before
