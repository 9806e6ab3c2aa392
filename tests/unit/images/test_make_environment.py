"""make_environment: environments can be moved, and their packages are listed."""

import json
import subprocess
from pathlib import Path

import pytest
import tomllib

from dlbench.common import own_code, tools
from dlbench.images import make_image
from dlbench.study import trainer_environments
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
