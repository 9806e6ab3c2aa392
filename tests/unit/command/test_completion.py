"""dlbench completion: what bash, zsh and fish need to complete commands and options."""

import subprocess
import sys

import pytest

from dlbench.command import commands
from support.machines.paths import REPOSITORY

DLBENCH = [sys.executable, REPOSITORY / "workflow_scripts/dlbench"]


def completion(shell, *python_options):
    command = [DLBENCH[0], *python_options, DLBENCH[1], "completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_has_all_commands_and_their_options(shell):
    pytest.importorskip("shtab")
    printed = completion(shell).stdout
    assert all(name in printed for name in commands.names())
    assert "rederive" in printed and "own-code" in printed


def test_bash_completes_commands_and_options():
    pytest.importorskip("shtab")
    script = completion("bash").stdout
    script += "\nCOMP_WORDS=(dlbench sta) COMP_CWORD=1; _shtab_dlbench; echo ${COMPREPLY[@]}"
    script += "\nCOMP_WORDS=(dlbench status --j) COMP_CWORD=2; _shtab_dlbench"
    script += "\necho ${COMPREPLY[@]}"
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["status", "--jobs --json"]


def test_a_shell_that_is_none_of_them_is_refused():
    finished = completion("csh")
    assert finished.returncode == 2
    assert "invalid choice: 'csh'" in finished.stderr
