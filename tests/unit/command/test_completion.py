"""dlbench completion: what bash, zsh and fish need to complete commands and options."""

import functools
import os
import re
import shutil
import subprocess

import pytest

from dlbench.command import commands
from support.programs import in_process


@functools.cache  # it imports all commands
def completion(shell):
    return in_process.dlbench("completion", shell)


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


def test_files_and_folders_are_completed_where_they_are_expected():
    pytest.importorskip("shtab")
    found = re.findall(
        r"^_shtab_dlbench_(\S+)_COMPGEN=_shtab_compgen_(\w+)$", completion("bash").stdout, re.M
    )
    kinds = dict(found)
    assert (kinds["status___configfile"], kinds["verify_pos_0"]) == ("files", "files")
    assert kinds["verify_dataset_pos_0"] == "dirs"
    assert not {"status___json", "status___study", "rederive___own_code"} & kinds.keys()


def needs(shell):
    return pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not installed")


@needs("fish")
def test_fish_completes_commands_options_values_and_files(tmp_path):
    pytest.importorskip("shtab")
    (tmp_path / "dlbench.fish").write_text(completion("fish").stdout)
    (tmp_path / "study.zip").touch()
    asked = ("sta", "status --js", "completion fi", "verify stu", "rederive --ow")
    script = "source dlbench.fish\n" + "".join(f"complete -C 'dlbench {line}'\n" for line in asked)
    done = subprocess.run(
        ["fish", "--no-config"],
        input=script,
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    completed = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert completed == ["status", "--json", "fish", "study.zip", "--own-code"]


ZSH = """
zmodload zsh/zpty
zpty typed zsh -f -i
zpty -w typed 'PS1=; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
zpty -w typed 'dlbench() { print -r -- "completed: $*" }'
for line in $@; do zpty -w typed "dlbench $line"$'\t'; done
zpty -w typed 'print "that is a""ll"'
while zpty -r typed line; do print -r -- $line; [[ $line == *'that is all'* ]] && break; done
"""


@needs("zsh")
def test_zsh_completes_commands_options_values_and_files(tmp_path):
    pytest.importorskip("shtab")
    (tmp_path / "_dlbench").write_text(completion("zsh").stdout)
    (tmp_path / "study.zip").touch()
    asked = ("statu", "status --js", "completion fi", "verify stu", "rederive --ow")
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", *asked],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path), "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    completed = re.findall(r"^completed: (.*?)\s*$", done.stdout, re.MULTILINE)
    assert completed == [
        "status",
        "status --json",
        "completion fish",
        "verify study.zip",
        "rederive --own-code",
    ]


def test_a_shell_that_is_none_of_them_is_refused():
    finished = completion("csh")
    assert finished.returncode == 2
    assert "invalid choice: 'csh'" in finished.stderr
