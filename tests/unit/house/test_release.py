"""A release: its versions agree, of the library and of the packages that it needs."""

import re

import tomllib
import yaml

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
