"""make_environment: environments can be moved, and their packages are listed."""

import json
import subprocess

import pytest
import tomllib

from dlbench.common import tools
from dlbench.images import make_environment
from support.machines.paths import REPOSITORY


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
        make_environment.make_environment(tmp_path, output=tmp_path / "packages.json")
        assert json.loads((tmp_path / "packages.json").read_text())["packages"] == {}
    # Else scripts in .venv/bin would name the Python of this folder, wherever they are.
    assert "relocatable = true" in (tmp_path / ".venv/pyvenv.cfg").read_text()
