"""The versions of Python for which the lock files have all packages."""

import tomllib
from packaging.specifiers import SpecifierSet

from support.machines.paths import REPOSITORY

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
