"""own_code: paths of the project's files from its own folder and others; missing packages."""

from pathlib import Path

import pytest

from dlbench.common import own_code
from dlbench.common.own_code import in_project_folder
from support.machines.paths import REPOSITORY


@pytest.fixture
def as_it_is(monkeypatch):
    """Undo the fixture by which other tests assume the project's folder."""
    monkeypatch.setattr(own_code, "in_project_folder", in_project_folder)


def test_our_files_have_their_names_at_home_and_their_absolute_paths_elsewhere(
    as_it_is, tmp_path, monkeypatch
):
    monkeypatch.chdir(REPOSITORY)
    assert own_code.project_path("envs/train") == Path("envs/train")
    monkeypatch.chdir(tmp_path)
    assert own_code.project_path("envs/train") == REPOSITORY / "envs/train"
    (tmp_path / "link").symlink_to(REPOSITORY)  # home is home by a link too
    monkeypatch.chdir(tmp_path / "link")
    assert own_code.in_project_folder()


def test_a_file_that_a_config_names_is_that_of_the_user_before_ours(
    as_it_is, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    name = "studies/README.md"
    assert own_code.user_or_project_path(name) == REPOSITORY / name
    (tmp_path / "studies").mkdir()
    (tmp_path / name).touch()
    assert own_code.user_or_project_path(name) == Path(name)


def test_a_path_that_is_not_there_is_told_with_whose_folder_it_was_looked_for_in(
    as_it_is, tmp_path, monkeypatch
):
    assert own_code.search_hint("studies") == ""  # there is but one
    monkeypatch.chdir(tmp_path)
    assert own_code.search_hint("mine") == f" (paths lead from the working directory, {tmp_path})"
    ours = own_code.search_hint("studies")
    assert f"dlbench's own folder has {own_code.PROJECT / 'studies'}: name that" in ours
    assert own_code.search_hint("/mine") == ""


def test_packages_that_this_python_lacks_are_named(tmp_path, monkeypatch):
    assert own_code.missing_packages() == []
    lines = '["PyYAML>=6", "no-such-package[extra]>=2", "nor.this"]'
    (tmp_path / "pyproject.toml").write_text(f"[project]\ndependencies = {lines}\n")
    monkeypatch.setattr(own_code, "PROJECT", tmp_path)
    assert own_code.missing_packages() == ["no-such-package", "nor.this"]


def test_the_looks_of_rooms_are_their_templates_styles_and_scripts():
    names = {Path(path).name for path in own_code.looks("pages", "report")}
    assert {"page.css", "page.html.jinja", "site.css", "compare.js"} <= names
    assert not [name for name in names if name.endswith(".py")]
