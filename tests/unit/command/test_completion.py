"""dlbench completion: what bash, zsh and fish need to complete commands and options."""

import functools
import os
import re
import shutil
import subprocess

import pytest

from dlbench.command import dispatch
from support.programs import in_process


@functools.cache  # it imports all commands
def completion(shell):
    return in_process.dlbench("completion", shell)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_has_all_commands_and_their_options(shell):
    pytest.importorskip("shtab")
    printed = completion(shell).stdout
    assert all(name in printed for name in dispatch.names())
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


ASKED = ("status --js", "completion fi", "verify stu", "rederive --ow")
COMPLETED = ("--json", "fish", "study.zip", "--own-code")


def typed(folder, *command, text=""):
    """What a shell without files of the user prints."""
    environment = os.environ | {"HOME": str(folder)}
    return subprocess.run(
        command, input=text, cwd=folder, env=environment, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip


@needs("fish")
def test_fish_completes_commands_options_values_and_files(tmp_path):
    pytest.importorskip("shtab")
    (tmp_path / "dlbench.fish").write_text(completion("fish").stdout)
    (tmp_path / "study.zip").touch()
    asked = ("sta", *ASKED)
    script = "source dlbench.fish\n" + "".join(f"complete -C 'dlbench {line}'\n" for line in asked)
    done = typed(tmp_path, "fish", "--no-config", text=script)
    assert done.stderr == ""
    completed = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert completed == ["status", *COMPLETED]


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
    done = typed(tmp_path, "env", "TERM=dumb", "zsh", "-f", "-c", ZSH, "zsh", "statu", *ASKED)
    completed = re.findall(r"^completed: (.*?)\s*$", done.stdout, re.MULTILINE)
    words = [line.split()[0] for line in ASKED]
    assert completed == ["status", *map(" ".join, zip(words, COMPLETED, strict=True))]
