"""processes: what runs left behind whose supervisor was killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.log import attempts
from dlbench.starting import processes
from support.machines.paths import REPOSITORY

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# It ends with its parent, its trainer does not: as under udocker's proot.
LAUNCHER = f"import subprocess; subprocess.Popen({SLEEPER}, start_new_session=True).wait()"
SUPERVISOR = f"""
import sys
from pathlib import Path
from dlbench.starting import processes
from dlbench.starting import supervisor
log, processes.VARIABLE = Path(sys.argv[1]), sys.argv[2]
supervisor.supervise(supervisor.SupervisedRun(
    log=log, messages=log.with_name("messages"), label="x", position="", launch={{}},
    time_limit_s=600, last_attempt=True, command=(sys.executable, "-c", {LAUNCHER!r}),
))
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """A function that starts a supervised run: (its supervisor, pid of its trainer, its log).

    Their variable is one of the test's own: runs of other tests look for leftovers, too.
    """
    supervisors, logs, variable = [], [], f"DLBENCH_TEST_{tmp_path.name}"
    monkeypatch.setattr(processes, "VARIABLE", variable)

    def one(name):
        log = tmp_path / name / "train.jsonl"
        supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, log, variable],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")},
        )
        supervisors.append(supervisor)
        logs.append(log)
        deadline = time.monotonic() + 60
        while not (trainer := trainer_of(log)):
            assert time.monotonic() < deadline and supervisor.poll() is None
            time.sleep(0.1)
        return supervisor, trainer, log

    yield one
    for supervisor in supervisors:
        supervisor.terminate()
        supervisor.wait()
    # A supervisor ends its launcher, whose trainer is in a session of its own.
    for trainer in filter(None, map(trainer_of, logs)):
        os.kill(trainer, signal.SIGKILL)


def trainer_of(log):
    for path in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (path / "cmdline").read_text().split("\0")
            if arguments[:-1] == SLEEPER and str(log) in (path / "environ").read_text():
                return int(path.name)
        except OSError:
            continue
    return None


def kill(supervisor):
    supervisor.kill()
    supervisor.wait()


def test_the_trainer_of_a_killed_supervisor_is_ended_and_no_other(start, capfd):
    killed, _, orphans = start("killed")
    _, supervised, log = start("supervised")
    kill(killed)
    processes.end_leftovers()
    assert trainer_of(log) == supervised
    assert trainer_of(orphans) is None
    assert "of killed attempts are ended (killed)" in capfd.readouterr().err
    processes.end_leftovers()
    assert capfd.readouterr().err == ""


@pytest.mark.ci
def test_what_an_attempt_leaves_that_came_to_its_end_is_let_be(start):
    supervisor, trainer, log = start("ended")  # as a service that others use by now
    kill(supervisor)
    attempts.unlink_open_log(log)
    processes.end_leftovers()
    assert trainer_of(log) == trainer
    attempts.link_open_log(log)
    processes.end_leftovers()
    assert trainer_of(log) is None


@pytest.mark.ci
def test_what_another_node_supervises_is_let_be(start, monkeypatch):
    supervisor, trainer, log = start("remote")
    kill(supervisor)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processes, "_kernel", lambda: "another/pid:[1]")
        processes.end_leftovers()
    assert trainer_of(log) == trainer
    processes.end_leftovers()


@pytest.mark.ci
def test_beside_what_cannot_be_ended_nothing_is_started(start, monkeypatch):
    supervisor, trainer, _ = start("stuck")
    kill(supervisor)
    with monkeypatch.context() as stuck:
        stuck.setattr(processes, "TIMEOUT_S", 0.1)
        stuck.setattr(os, "kill", lambda *_: None)
        with pytest.raises(
            Error, match=rf"{trainer} of a killed attempt \(stuck\) cannot be ended"
        ):
            processes.end_leftovers()
    processes.end_leftovers()
