"""Programs that tests fork from a process with their packages behave like those that they start."""

import json
import os
import sys

import pytest

from support.programs import forked

CORE = max(os.sched_getaffinity(0))
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


@pytest.mark.parametrize("arguments", [["a b", "$x"], ["-m", "program", "x"], ["fail"]])
def test_a_forked_program_does_what_a_started_one_does(python, program, tmp_path, arguments):
    how = {"cwd": tmp_path, "env": os.environ | {"MINE": "a b"}, "cores": [CORE]}
    command = [python, *arguments] if "-m" in arguments else [python, program, *arguments]
    started, found = (forked.run(command, ["decimal"], **how) for _ in range(2))
    assert json.loads(found.stdout) == json.loads(started.stdout)
    assert found.returncode == started.returncode == (1 if "fail" in arguments else 3)
    assert found.stderr.splitlines()[-1] == started.stderr.splitlines()[-1]


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
        # Three write at once, so that one's line may stand within another's.
        assert "stops" in ended.stderr and "ValueError: fails" in ended.stderr
    assert found[True] == found[False]
