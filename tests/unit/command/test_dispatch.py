"""The command dlbench as users start it."""

import ast
import functools
import getpass
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.command import dispatch
from dlbench.common import own_code
from support.machines.paths import REPOSITORY
from support.programs import in_process

FOLDER = REPOSITORY / "workflow_scripts/dlbench"
INSTALLED = Path(sys.executable).with_name("dlbench")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_without_a_command_it_lists_all_on_one_screen(capsys):
    assert dispatch.main([]) == dispatch.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert len(lines) // 2 <= 30 and max(map(len, lines)) <= 80
    assert all(any(f" {name} " in line for line in lines) for name in dispatch.names())


def test_it_says_its_version_and_where_its_snakefile_is(capsys):
    assert dispatch.main(["--version"]) == dispatch.main(["where"]) == 0
    assert capsys.readouterr().out == f"dlbench {own_code.version()}\n{REPOSITORY}\n"


def test_a_user_without_a_name_is_called_by_the_number(monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")
    assert dispatch.main(["--version"]) == 0
    assert getpass.getuser() == str(os.getuid())


def test_an_unknown_word_gets_the_nearest_command_and_bad_input_ends_with_one_line(
    tmp_path, capsys
):
    nearest = {"statsu": "status", "forget_runs.py": "forget", "check_site": "check-site"}
    absent = str(tmp_path / "absent")
    for words, message in (
        *(([word], f"no command '{word}' (did you mean '{nearest[word]}'?)") for word in nearest),
        (["qqq"], "error: dlbench has no command 'qqq'; dlbench --help lists them"),
        (["doctor", absent], f"error: {absent}: "),
    ):
        assert dispatch.main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


def test_no_command_is_imported_but_the_one_that_is_asked_for_and_no_package():
    code = (
        "import sys; from dlbench.command import dispatch; dispatch.main([sys.argv[1]]);"
        "print([name for name in sys.modules if name.partition('.')[0] not in "
        "sys.stdlib_module_names])"
    )
    for word in ("--help", "statsu"):
        command = [sys.executable, "-S", "-c", code, word]
        finished = run(*command, env={"PYTHONPATH": str(FOLDER.parent)})
        loaded = ast.literal_eval(finished.stdout.splitlines()[-1])
        ours = {"__main__", "dlbench", "dlbench.common", "dlbench.command"}
        ours |= {
            f"dlbench.common.{name}" for name in ("command_line", "phrases", "plugins", "terminal")
        }
        assert set(loaded) <= ours | {"dlbench.command.dispatch"}
    code = "import sys; from dlbench.command import dispatch; dispatch.load('verify')"
    code += "; print(*sys.modules)"
    finished = run(sys.executable, "-S", "-c", code, env={"PYTHONPATH": str(FOLDER.parent)})
    of_commands = {name for name in finished.stdout.split() if name.startswith("dlbench.command.")}
    assert of_commands == {f"dlbench.command.{n}" for n in ("archives", "dispatch", "starting")}


def test_each_function_with_arguments_is_a_listed_command():
    for file, (_, group) in dispatch.GROUPS.items():
        tree = ast.parse((FOLDER / "command" / f"{file}.py").read_bytes())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        commands = {name for name in functions if f"add_{name}" in functions}
        assert commands <= {dispatch.load(name).run.__name__ for name in group}


def test_a_reader_that_has_enough_is_no_error():
    command = f"{shlex.join([sys.executable, str(FOLDER)])} datasets | head -n 1"
    finished = run("bash", "-c", command)
    assert finished.stderr == ""
    assert finished.stdout.startswith("name ")


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, FOLDER],
        [sys.executable, "-m", "dlbench"],
        pytest.param(
            [INSTALLED],
            marks=pytest.mark.skipif(not INSTALLED.exists(), reason="it is not installed"),
        ),
    ],
    ids=["folder", "module", "installed"],
)
def test_it_is_started_in_three_ways(command, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    finished = run(*command, "datasets", "--json", cwd=tmp_path, env=environment)
    assert '"name": "digits"' in finished.stdout, finished.stderr


def test_columns_of_a_table_have_their_units_and_meanings(capsys):
    assert dispatch.main(["columns"]) == 0
    assert "accounts: Where the wall time of own runs went" in capsys.readouterr().out
    assert dispatch.main(["columns", "runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "step_time_mad_s (s): 1.4826 x median absolute deviation" in lines
    assert dispatch.main(["columns", "acounts"]) == 2
    assert "no table 'acounts' (did you mean 'accounts'?); there" in capsys.readouterr().err


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
