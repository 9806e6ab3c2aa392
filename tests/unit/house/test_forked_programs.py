"""Programs that tests fork from a process with their packages behave like those that they start."""

import json
import os
import signal
import subprocess
import sys

import pytest

from support.programs import forked

PROGRAM = """
import json, os, sys
import beside
print(json.dumps({
    "words": sys.argv, "folder": os.getcwd(), "variables": sorted(os.environ.items()),
    "name": __name__, "file": __file__, "path": sys.path[0], "input": sys.stdin.read(),
    "beside": beside.__file__, "cores": sorted(os.sched_getaffinity(0)),
}))
print("an error", file=sys.stderr)
if "fail" in sys.argv:
    raise ValueError("failed")
sys.exit(3)
"""


STARTS = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: None)
children = [
    subprocess.Popen(
        [sys.executable, "child.py", str(number)],
        env=os.environ | {"NUMBER": str(number)},
        preexec_fn=lambda: os.umask(0o27),
    )
    for number in range(3)
]
print([child.wait() for child in children])
"""
CHILD = r"""
import atexit, os, signal, sys
def report(*values):
    os.write(1, f"{values}\n".encode())
report(sys.argv, os.environ["NUMBER"], oct(os.umask(0)), __name__)
report(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "decimal" in sys.modules)
atexit.register(report, "ends")
if sys.argv[1] == "0":
    sys.exit("stops")
if sys.argv[1] == "1":
    raise ValueError("fails")
"""


@pytest.fixture
def python(monkeypatch, tmp_path):
    """A path of Python that no other test uses."""
    path = tmp_path / "python"
    path.symlink_to(sys.executable)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return path


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").touch()
    return tmp_path / "program.py"


def both(command, **options):
    """The finished process of a command that is started, and of one that is forked."""
    options.setdefault("env", dict(os.environ))  # without what C libraries have set
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    started = subprocess.run(list(map(str, command)), check=False, text=True, **streams, **options)
    forked.run(command, ["decimal"], **options)  # the first one is started, too
    return started, forked.run(command, ["decimal"], **options)


def test_a_forked_program_has_its_own_words_folder_variables_and_exit_code(
    python, program, tmp_path
):
    folder = tmp_path / "folder"
    folder.mkdir()
    variables = os.environ | {"MINE": "a b"}
    started, found = both([python, program, "a b", "$x"], cwd=folder, env=variables)
    assert json.loads(found.stdout) == json.loads(started.stdout)
    assert found.stderr == started.stderr == "an error\n"
    assert found.returncode == started.returncode == 3
    assert '"a b", "$x"' in found.stdout and str(folder) in found.stdout


def test_a_forked_program_keeps_to_the_cores_that_it_is_given(python, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    shows = tmp_path / "shows.py"
    shows.write_text("import os; print(sorted(os.sched_getaffinity(0)))\n")
    for given, wanted in ((cores[-1:], cores[-1:]), (None, cores), (cores[:1], cores[:1])):
        assert forked.run([python, shows], [], cores=given).stdout == f"{wanted}\n"
    assert sorted(os.sched_getaffinity(0)) == cores


def test_a_forked_module_is_found_where_it_is_started(python, program, tmp_path):
    started, found = both([python, "-m", "program", "x"], cwd=tmp_path)
    assert json.loads(found.stdout) == json.loads(started.stdout)
    assert found.returncode == started.returncode == 3


def test_what_a_forked_program_does_not_catch_is_told_and_its_exit_code_is_1(python, program):
    started, found = both([python, program, "fail"])
    assert found.returncode == started.returncode == 1
    assert found.stderr.splitlines()[-1] == started.stderr.splitlines()[-1] == "ValueError: failed"
    together = forked.run([python, program, "fail"], ["decimal"], together=True)
    assert together.stdout == found.stdout + found.stderr and together.stderr is None


def test_packages_are_imported_once_and_those_that_there_are_not_are_left_to_the_program(
    python, tmp_path
):
    shows = tmp_path / "shows.py"
    shows.write_text("import os, sys; print('decimal' in sys.modules, os.getppid())\n")
    output = [forked.run([python, shows], ["none_such", "decimal"]).stdout for _ in range(3)]
    assert output[0] == f"False {os.getpid()}\n"
    assert output[1] == output[2] != output[0] and output[1].startswith("True ")


def test_a_forked_program_that_takes_too_long_is_killed(python, tmp_path):
    sleeps = tmp_path / "sleeps.py"
    sleeps.write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)\n")
    quick = tmp_path / "quick.py"
    quick.write_text("print('quick')\n")
    forked.run([python, quick], [])
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([python, sleeps], [], timeout=0.5)
    assert forked.run([python, quick], []).stdout == "quick\n"  # the others go on


def test_programs_that_a_deep_fork_starts_are_forks_that_end_on_their_own(python, tmp_path):
    for name, text in {"starts.py": STARTS, "child.py": CHILD}.items():
        (tmp_path / name).write_text(text)
    found = {}
    for deep in (False, True):
        for _ in range(2):  # the first one is started
            ended = forked.run([python, "starts.py"], ["decimal"], cwd=tmp_path, deep=deep)
        output = ended.stdout.splitlines()
        assert output[-1] == "[1, 1, 0]" and ended.returncode == 0, ended
        assert output.count(f"(True, {deep})") == output.count("('ends',)") == 3
        found[deep] = sorted(line.replace(f"True, {deep}", "") for line in output)
        errors = ended.stderr.splitlines()
        assert "stops" in errors and "ValueError: fails" in errors
    assert found[True] == found[False]


def test_a_started_fork_gets_signals_and_another_runs_beside_it(python, tmp_path):
    waits = tmp_path / "waits.py"
    waits.write_text("import signal; print('waits', flush=True); signal.pause()\n")
    quick = tmp_path / "quick.py"
    quick.write_text("import sys; print('decimal' in sys.modules)\n")
    first, second = (forked.start([python, waits], ["decimal"]) for _ in range(2))
    assert second.poll() is None
    assert forked.run([python, quick], ["decimal"]).stdout == "False\n"  # there is one at a time
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == process.poll() == -signal.SIGTERM
    assert forked.run([python, quick], ["decimal"]).stdout == "True\n"
