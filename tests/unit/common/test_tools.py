"""tools: external programs, and why they failed."""

import re
import shlex
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import tools
from support.images.image_files import program

pytestmark = pytest.mark.usefixtures("place")


def test_what_a_failed_command_said_is_in_the_error(capfd):
    program("tool", "echo one; echo two >&2; echo; printf '\\377\\n'; exit 4")
    with pytest.raises(Error) as error:
        tools.run(["tool", "a"])
    assert str(error.value) == "tool failed (exit code 4): one | two | \ufffd"  # no text
    assert capfd.readouterr().err == "+ tool a\none\ntwo\n\n\ufffd\n"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("write /x: no space left on device", "a disk is full; APPTAINER_TMPDIR"),
        ("mkdir cache: Permission denied", "a folder may not be there or not be writable: APPT"),
        ("exec /bin/sh: exec format error", "the image is for another kind of processor"),
        ("unauthorized: authentication required", "the registry wants a login, or the name is mi"),
    ],
)
def test_a_known_failure_has_its_likely_cause(said, hint):
    program("tool", f"echo '{said}'; echo a; echo b; echo c; echo d; echo e; exit 255")
    with pytest.raises(Error) as error:
        tools.run(["tool"])
    assert f"exit code 255): {said}; {hint}" in str(error.value)


def test_the_first_line_about_an_error_is_the_reason_and_not_what_comes_last():
    said = """INFO:    Extracting local image, will not be able to mount EXT3
    WARNING: Skipping mount /etc/hosts: failed
    ERROR:   unpackSIF failed: extract command failed: WARNING: Skipping mount /etc/localtime
    set_attributes: failed to change uid and gids on /etc/gshadow, because Invalid argument
    FATAL:   While performing build: exit status 2
    created 0 fifos
    created 2 hardlinks"""
    program("tool", f"cat << END\n{said}\nEND\nexit 2")
    with pytest.raises(Error, match=r" 2\): set_attributes: failed .*, because Invalid argument$"):
        tools.run(["tool"])


def test_a_command_that_is_not_there_is_named():
    with pytest.raises(Error, match="no-such-tool is not on the path of this machine"):
        tools.run(["no-such-tool", "x"])


# uv: the README's commands put it into a folder that is not on the path.


def executable(path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).touch(0o755)
    return str(Path(path).absolute())


def test_the_uv_that_runs_us_is_taken_before_others(monkeypatch):
    theirs, on_path = executable("there/uv"), executable("bin/uv")
    monkeypatch.setenv("UV", theirs)
    assert tools.find_uv() == theirs
    monkeypatch.setenv("UV", "/no/longer/there")
    assert tools.find_uv() == on_path


def test_without_one_on_the_path_it_is_that_of_the_readme(monkeypatch):
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(tools, "OUR_UV", Path(".uv/bin/uv").absolute())
    with pytest.raises(Error, match="uv is not found: the first command"):
        tools.find_uv()
    assert tools.uv_command("sync") == "uv sync"
    assert executable(".uv/bin/uv") == tools.find_uv()


def test_people_are_told_the_command_that_works_where_they_are(monkeypatch, tmp_path):
    monkeypatch.setenv("UV", executable("a b/uv"))
    assert tools.uv_command("sync --extra slurm") == "'a b/uv' sync --extra slurm"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tools.uv_command("sync") == f"'{tmp_path}/a b/uv' sync"
    executable("../bin/uv")
    assert tools.uv_command("sync") == "uv sync"


def test_a_command_of_snakemake_names_the_workflow_where_its_folder_is_another_one(monkeypatch):
    assert re.search(r"uv'? run snakemake -n$", tools.snakemake_command("-n"))
    monkeypatch.setattr(tools.own_code, "in_project_folder", lambda: False)
    command = tools.snakemake_command("-n")
    assert f"--snakefile {shlex.quote(f'{tools.own_code.PROJECT}/Snakefile')} -n" in command


def test_an_installed_dlbench_names_the_programs_beside_its_python(monkeypatch, tmp_path):
    monkeypatch.setattr(tools.own_code, "is_wheel", lambda: True)
    monkeypatch.setattr(tools.own_code, "in_project_folder", lambda: False)
    monkeypatch.setattr(tools.sys, "executable", f"{tmp_path}/a v/bin/python")
    assert tools.dlbench_command("status") == "'a v/bin/dlbench' status"
    assert tools.snakemake_command("").startswith("'a v/bin/snakemake' --snakefile ")
    install = "'a v/bin/python' -m pip install 'dlbench[storage]'"
    assert tools.install_command("storage") == install
    executable("a v/bin/dlbench")
    monkeypatch.setenv("PATH", f"{tmp_path}/a v/bin")
    assert tools.dlbench_command("status") == "dlbench status"


def test_an_installed_dlbench_has_a_uv_beside_its_python(monkeypatch, tmp_path):
    monkeypatch.setattr(tools.own_code, "is_wheel", lambda: True)
    monkeypatch.setattr(tools.sys, "executable", f"{tmp_path}/v/bin/python")
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(tools, "OUR_UV", Path(".uv/bin/uv").absolute())
    with pytest.raises(Error, match="v/bin/python -m pip install uv` installs it"):
        tools.find_uv()
    assert executable("bin/uv") == tools.find_uv()
    assert executable("v/bin/uv") == tools.find_uv()
