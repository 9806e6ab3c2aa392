"""The command dlbench as users start it."""

import ast
import getpass
import os
import pwd
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.command import dispatch
from dlbench.common import own_code
from support.machines.paths import REPOSITORY

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
