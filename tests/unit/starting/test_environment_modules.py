"""Environment modules, by a command `module` as sites define it."""

import os

import pytest

from dlbench import Error
from dlbench.starting import start_command

# What Lmod and Tcl modules have in common, in a few lines; installed as a login shell's start file.
PROFILE = """
module() {
    case "$2" in
        mpi/4.1)
            export MPI_HOME=/opt/mpi PATH="/opt/mpi/bin:$PATH"
            export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}mpi/4.1" ;;
        silent) return 0 ;;
        *) echo "Unable to locate a modulefile for '$2'" >&2; return 1 ;;
    esac
}
"""


@pytest.fixture
def environ(tmp_path):
    (tmp_path / ".bash_profile").write_text(PROFILE)
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "KEPT": "a\nb"}


def test_a_module_changes_the_environment_and_leaves_the_rest(environ):
    found = start_command.load_modules(["mpi/4.1"], environ)
    assert found["MPI_HOME"] == "/opt/mpi" and "/opt/mpi/bin" in found["PATH"].split(":")
    assert found["KEPT"] == "a\nb" and "DLBENCH_PYTHON" not in found


def test_no_modules_change_nothing(environ):
    assert start_command.load_modules([], environ) == environ


@pytest.mark.parametrize("name", ["mpi/9", "silent"])
def test_a_module_that_cannot_be_loaded_is_an_error_also_where_none_is_told(environ, name):
    with pytest.raises(Error, match=f"module load mpi/4.1 {name} failed.*site.modules"):
        start_command.load_modules(["mpi/4.1", name], environ)


def test_a_machine_without_modules_says_so(tmp_path):
    with pytest.raises(Error, match="no command module on this machine"):
        start_command.load_modules(["mpi"], {"HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_names_are_no_shell(environ, tmp_path):
    with pytest.raises(Error):
        start_command.load_modules([f"$(touch {tmp_path}/ran)"], environ)
    assert not (tmp_path / "ran").exists()
