"""own_code: paths of our files, missing packages, and which version this is."""

import base64
import hashlib
import subprocess
from pathlib import Path

import pytest

from dlbench import __version__
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


def test_a_file_that_a_config_names_is_that_of_the_user_before_ours(as_it_is, here):
    name = "studies/README.md"
    assert own_code.user_or_project_path(name) == REPOSITORY / name
    (here / "studies").mkdir()
    (here / name).touch()
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
    assert {"page.css", "page.html.jinja", "site.css"} <= names
    assert not [name for name in names if name.endswith(".py")]


FILES = {"dlbench_workflow/Snakefile": "rule all:\n", "dlbench_workflow/rules/a.smk": "# a\n"}


def recorded(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def commit_all(folder):
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "theirs"]):
        subprocess.run(["git", "-C", folder, *author, *words], check=True)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """The folder in which pip has installed a small wheel, in somebody's repository."""
    folder = tmp_path / "site packages"
    lines = [f"{name},sha256={recorded(text)},{len(text)}\n" for name, text in FILES.items()]
    lines += ["dlbench.pth,sha256=x,1\n", "dlbench_workflow/rules/a.pyc,,\n"]
    metadata = folder / f"dlbench-{__version__}.dist-info"
    for path, text in [*FILES.items(), (metadata / "RECORD", "".join(lines))]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    commit_all(tmp_path)
    monkeypatch.setattr(own_code, "PROJECT", folder / "dlbench_workflow")
    own_code.wheel_metadata.cache_clear()
    own_code._release.cache_clear()
    yield folder
    own_code.wheel_metadata.cache_clear()


def test_a_wheel_has_the_version_and_the_digest_of_its_files(wheel):
    assert own_code.is_wheel()
    listed = "".join(f"{name}\0sha256={recorded(text)}\n" for name, text in sorted(FILES.items()))
    digest = hashlib.sha256(listed.encode()).hexdigest()[:12]
    assert own_code.release() == f"{__version__}+sha256.{digest}"
    assert own_code.version() == own_code.release()


def test_changed_and_missing_files_of_a_wheel_change_its_release(wheel):
    as_installed = own_code.release()
    (wheel / "dlbench_workflow/Snakefile").write_text("rule none:\n")
    own_code._release.cache_clear()
    changed = own_code.release()
    (wheel / "dlbench_workflow/Snakefile").unlink()
    own_code._release.cache_clear()
    missing = own_code.release()
    assert changed.endswith(".changed") and missing.endswith(".changed")
    assert len({as_installed, changed.removesuffix(".changed"), missing}) == 3


def test_the_commit_of_a_repository_around_a_wheel_is_not_that_of_dlbench(wheel):
    assert own_code.git_state(own_code.PROGRAMS) == {"git_commit": None, "git_dirty": None}
    assert own_code.git_state(wheel)["git_commit"]


def test_a_clone_is_no_release_and_has_its_commit(tmp_path, monkeypatch):
    (tmp_path / "workflow_scripts").mkdir()
    (tmp_path / "workflow_scripts/file").touch()
    commit_all(tmp_path)
    monkeypatch.setattr(own_code, "PROGRAMS", tmp_path / "workflow_scripts")
    state = own_code.git_state(own_code.PROGRAMS)
    monkeypatch.setattr(own_code, "git_state", lambda: state)
    assert own_code.release() is None and not own_code.is_wheel()
    assert own_code.version() == f"{__version__} (commit {state['git_commit'][:12]})"
    # Without git the version stands alone.
    unknown = {"git_commit": None, "git_dirty": None}
    monkeypatch.setattr(own_code, "git_state", lambda: unknown)
    assert own_code.version() == __version__


def test_a_site_that_names_its_queue_in_a_profile_changes_no_code(tmp_path, monkeypatch):
    monkeypatch.setattr(own_code, "PROGRAMS", tmp_path / "workflow_scripts")
    own_code.PROGRAMS.mkdir()
    files = [tmp_path / name for name in ("profiles/slurm/profile.yaml", "rules/train.smk")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    commit_all(tmp_path)
    dirty = [own_code.git_state(own_code.PROGRAMS)["git_dirty"]]
    for file in files:
        file.write_text("ours")
        dirty.append(own_code.git_state(own_code.PROGRAMS)["git_dirty"])
    assert dirty == [False, False, True]
