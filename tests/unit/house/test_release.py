"""Versions: of the library, of its packages, and of the Pythons that environments fit."""

import re

import tomllib
import yaml
from packaging.specifiers import SpecifierSet

from dlbench import __version__
from support.machines.paths import REPOSITORY


def test_the_citation_has_the_version_of_the_library():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == __version__


def test_the_pins_of_conda_are_those_of_the_lock_file():
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text())
    locked = {package["name"]: package.get("version") for package in lock["package"]}
    conda = yaml.safe_load((REPOSITORY / "envs/workflow.yaml").read_text())
    pins = [re.split("=+", line) for line in conda["dependencies"] if isinstance(line, str)]
    for name, version in pins:
        if name not in ("python", "uv"):
            assert locked[name] == version, name
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w.-]", line)[0] for line in project["dependencies"]}
    needed = {name for name in needed if not name.startswith("snakemake")}
    assert needed <= {name for name, _ in pins}


PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROJECTS = [
    path.parent for path in (REPOSITORY / "uv.lock", *sorted(REPOSITORY.glob("envs/*/uv.lock")))
]


def read(project, name):
    return tomllib.loads((project / name).read_text(encoding="utf-8"))


def fits(project, python):
    return SpecifierSet(read(project, "pyproject.toml")["project"]["requires-python"]).contains(
        f"{python}.0"
    )


def test_the_workflow_and_jax_have_every_python_and_tensorflow_those_that_it_has_wheels_for():
    assert all(fits(REPOSITORY, python) for python in PYTHONS)
    fitting = {path.name: [one for one in PYTHONS if fits(path, one)] for path in PROJECTS[1:]}
    assert fitting["jax"] == fitting["pytorch"] == fitting["archive"] == list(PYTHONS)
    assert fitting["train"] == ["3.11", "3.12"]
