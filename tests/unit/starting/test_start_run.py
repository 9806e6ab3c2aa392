"""start_run and supervisor, with real trainers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench.log import event_log
from dlbench.starting import start_command, start_unreachable
from dlbench.study.runs import Run
from support.machines.node_names import NAME
from support.machines.node_names import node as node
from support.machines.processes import alive
from support.programs import in_process
from support.trainers.watched_runs import DATE, PYTHON

pytestmark = pytest.mark.usefixtures("impatient")

PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "start_run.py"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}
SLEEPS = "import time; time.sleep(60)"


def arguments(folder, python, *flags):
    own = ["--log", folder / "train.jsonl", "--messages", folder / "messages", "--position=1/2"]
    return [*own, f"--spec={json.dumps(SPEC)}", *flags, "--", *PYTHON, python]


def command(folder, python, *flags):
    return [sys.executable, PROGRAM, *arguments(folder, python, *flags)]


def start(folder, python, *flags):
    return in_process.program("start_run.py", *arguments(folder, python, *flags))


def record(folder):
    return json.loads((folder / "run.json").read_text())


def outcome(folder):
    return record(folder)["status"], record(folder)["message"]


def test_a_trainer_that_writes_its_end_is_believed(tmp_path):
    log = tmp_path / "train.jsonl"
    end = f'{{"event": "run_end", "status": "oom", "message": "full", "t_utc": "{DATE}"}}'
    trainer = f"import sys; open({str(log)!r}, 'a').write({end!r} + chr(10)); sys.exit(1)"
    line = command(tmp_path, trainer, '--made-from={"code": "abc"}')
    finished = subprocess.run(line, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert outcome(tmp_path) == ("oom", "full")
    assert record(tmp_path)["made_from"] == {"code": "abc"}
    isolated = start_command.ISOLATED
    assert next(event_log.read(log))["command"][: len(isolated) + 1] == [*isolated, sys.executable]


def test_the_trainer_gets_the_flags_of_the_run_where_its_command_says_so(tmp_path):
    line = [*arguments(tmp_path, "import sys; print(sys.argv[1:])"), "{flags}", "--data", "a b"]
    assert in_process.program("start_run.py", *line).returncode == 0
    assert str([*Run(**SPEC).flags(), "--data", "a b"]) in (tmp_path / "messages").read_text()


@pytest.mark.parametrize("asked", ["auto", "host"])
def test_processes_of_one_node_have_a_network_of_their_own_unless_it_is_not_wanted(tmp_path, asked):
    spec = SPEC | {"strategy": "multiworker", "launcher": "local", "devices_per_node": 2}
    tell = "import os, sys; sys.exit(os.readlink('/proc/self/ns/net'))"
    start(tmp_path, tell, f"--spec={json.dumps(spec)}", f"--network={asked}")
    own = asked == "auto" and start_unreachable.possible()
    assert record(tmp_path)["provenance"]["network"] == ("loopback" if own else "host")
    ours = os.readlink("/proc/self/ns/net")
    assert (ours in (tmp_path / "messages").read_text()) != own


@pytest.mark.ci
@pytest.mark.parametrize("asked", ["auto", "host"])
def test_servers_that_listen_by_name_need_an_address_behind_it(tmp_path, node, asked):
    spec = SPEC | {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    line = command(tmp_path, "", f"--spec={json.dumps(spec)}", f"--network={asked}")
    assert subprocess.run(node(line), capture_output=True, check=False).returncode == 0
    status, message = outcome(tmp_path)
    if asked == "auto" and start_unreachable.possible():
        assert record(tmp_path)["provenance"]["network"] == "loopback"
    else:
        assert status == "skipped" and record(tmp_path)["provenance"]["network"] is None
        assert f"needs an address of this machine behind its name {NAME} (hostname)" in message


def test_a_run_that_names_another_node_is_skipped_with_what_was_found(tmp_path):
    spec = json.dumps(SPEC | {"node": "n3"})
    finished = start(tmp_path, "raise SystemExit('trained')", f"--spec={spec}")
    assert finished.returncode == 0
    status, message = outcome(tmp_path)
    assert status == "skipped" and message.startswith("expected node n3, found ")
    assert message.endswith("sends runs to other nodes (docs/clusters.md)")


def test_a_crash_is_recorded_with_its_last_words_at_the_last_attempt(tmp_path):
    crash = "import sys; sys.exit('what a pity')"
    finished = start(tmp_path, crash, "--attempt=1", "--attempts=2")
    assert finished.returncode == 1
    assert not (tmp_path / "run.json").exists()
    assert not (tmp_path / "train.jsonl").exists()
    finished = start(tmp_path, crash, "--attempt=2", "--attempts=2")
    assert finished.returncode == 0
    silent = "the trainer ended without a word before its first step (exit code 1): what a pity"
    assert outcome(tmp_path) == ("failed", silent)
    assert (tmp_path / "train.attempt1.jsonl").is_file()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.ci)]
)
def test_an_interrupted_run_is_no_result(tmp_path, number):
    supervisor = subprocess.Popen(command(tmp_path, SLEEPS), stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "messages")
    supervisor.send_signal(number)
    _, messages = supervisor.communicate(timeout=20)
    assert supervisor.returncode != 0
    assert f"interrupted (stopped by signal {number.name}), " in messages
    assert messages.endswith("; the next start trains it anew\n")
    assert not (tmp_path / "run.json").exists()


# The workflow is killed at once, or by start_run.py itself before it looks at the trainer.
AT_ONCE = """
import os, runpy, signal, sys, time
from dlbench.starting import processes

def start_and_kill(*arguments, start=processes.start):
    trainer = start(*arguments)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.5)
    return trainer

processes.start = start_and_kill
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.ci
@pytest.mark.parametrize("killed_at_once", [False, True])
def test_the_trainer_ends_when_the_workflow_is_gone(killed_at_once, tmp_path):
    pid = tmp_path / "pid"
    trainer = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid())); {SLEEPS}"
    python, *arguments = map(str, command(tmp_path, trainer))
    python = [python, "-c", AT_ONCE] if killed_at_once else [python]
    workflow = subprocess.Popen(
        ["sh", "-c", '"$@"; true', "sh", *python, *arguments],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(PROGRAM.parent)},
    )
    wait_for(pid)
    if not killed_at_once:
        workflow.kill()
    workflow.wait()
    deadline = time.monotonic() + 40
    while alive(int(pid.read_text() or 0)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not (tmp_path / "run.json").exists()


def wait_for(path):
    deadline = time.monotonic() + 20
    while not (path.is_file() and (path.name != "pid" or path.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_was_refused_before_is_in_the_record_and_told_no_longer(tmp_path):
    output = {"by": "Slurm", "message": "Invalid account", "times": 2, "t_utc": "2026"}
    note = tmp_path / "refused.json"
    note.write_text(json.dumps(output))
    start(tmp_path, "raise SystemExit(3)")
    assert record(tmp_path)["provenance"]["refused"] == output
    assert not note.exists()


def test_a_skipped_run_has_a_record_and_starts_nothing(tmp_path):
    marker = tmp_path / "started"
    finished = start(tmp_path, f"open({str(marker)!r}, 'w')", "--skip=no such device")
    assert finished.returncode == 0
    assert outcome(tmp_path) == ("skipped", "no such device")
    assert finished.stderr == ""  # the start has a line for all runs with this reason
    assert not marker.exists()
    assert record(tmp_path)["provenance"]["network"] is None


def test_nothing_is_left_of_an_earlier_attempt(tmp_path):
    for rank in range(2):
        event_log.EventLog(event_log.rank_path(tmp_path / "train.jsonl", rank)).close()
    os.truncate(tmp_path / "train.jsonl", 0)
    start(tmp_path, "pass")
    assert [path.name for path in event_log.rank_paths(tmp_path / "train.jsonl")] == ["train.jsonl"]


FORM = {
    "image": "train", "digest": "sha256:1", "image_id": "build-1", "runtime": "apptainer",
    "runtime_version": "1.4", "options": {"start": "command"}, "prepared": "x.sif",
    "environment": {}, "python": sys.executable, "libc": "glibc 2.36", "mpi": None,
    "packages": {"tensorflow": "2.18.1", "horovod": None},
}  # fmt: skip

CONTAINED = {"runtime": "apptainer", "runtime_options": "start=command"}

# Enters nothing, and says that it was asked to.
APPTAINER = """#!/bin/sh
echo entered >> entered
while [ "$1" != x.sif ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def contained(tmp_path, monkeypatch):
    """A function that starts a run in a container of a runtime that enters nothing."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apptainer").write_text(APPTAINER)
    (tmp_path / "bin/apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def run(python, *flags, form=FORM, **changes):
        (tmp_path / "form.json").write_text(json.dumps(form))
        spec = json.dumps(SPEC | CONTAINED | changes)
        return start(tmp_path, python, "--form=form.json", f"--spec={spec}", *flags)

    return run


def ends(folder, status):
    """A trainer that writes its end, and the words that it was given."""
    end = f'{{"event": "run_end", "status": "{status}", "message": "told", "t_utc": "{DATE}"}}'
    return (
        f"import sys; open({str(folder / 'words')!r}, 'w').write(' '.join(sys.argv));"
        f"open({str(folder / 'train.jsonl')!r}, 'a').write({end!r} + chr(10)); sys.exit(1)"
    )


def test_a_run_in_a_container_is_entered_and_says_in_which_image(tmp_path, contained):
    made_from = '--made-from={"code": "abc", "image": "i", "environment": null}'
    finished = contained(ends(tmp_path, "oom"), made_from)
    assert finished.returncode == 0, finished.stderr
    assert outcome(tmp_path) == ("oom", "told")
    assert (tmp_path / "entered").is_file()
    assert (tmp_path / "words").read_text().endswith("--image-id build-1")
    # The image was made after the workflow had begun.
    expected = {"code": "abc", "image": "i", "environment": "sha256:1"}
    assert record(tmp_path)["made_from"] == expected
    container = next(event_log.read(tmp_path / "train.jsonl"))["container"]
    assert container["digest"] == "sha256:1"
    assert (container["start"], container["options"]) == ("command", {"start": "command"})


def test_a_run_whose_image_lacks_a_package_is_skipped_with_the_reason(tmp_path, contained):
    horovod = {"strategy": "horovod", "launcher": "horovodrun"}
    finished = contained(ends(tmp_path, "ok"), '--made-from={"environment": null}', **horovod)
    assert finished.returncode == 0, finished.stderr
    assert outcome(tmp_path) == ("skipped", "horovod is not in the image train (sha256:1)")
    # Else it would be another image's at the next look.
    assert record(tmp_path)["made_from"] == {"environment": "sha256:1"}
    assert not (tmp_path / "entered").exists()


def test_what_prevents_the_start_is_recorded_as_a_failure(tmp_path, contained):
    finished = contained(ends(tmp_path, "ok"), "--bind=/no/such", "--attempt=1", "--attempts=2")
    assert finished.returncode == 0, finished.stderr
    reason = "/no/such is to be bound into the container but is not on this machine"
    assert outcome(tmp_path) == ("failed", reason)
    assert not (tmp_path / "entered").exists()


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_a_missing_or_damaged_form_is_a_failure_with_its_reason(tmp_path, contained, content):
    if content is not None:
        (tmp_path / "other.json").write_text(content)
    finished = contained(ends(tmp_path, "ok"), f"--form={tmp_path / 'other.json'}")
    assert finished.returncode == 0
    assert outcome(tmp_path)[0] == "failed"
    assert "other.json is missing or damaged: make the image again" in outcome(tmp_path)[1]


def test_where_the_directive_did_nothing_there_is_no_result(tmp_path, contained):
    finished = contained(ends(tmp_path, "ok"), runtime_options="")
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: Snakemake's container directive did not enter")
    assert not (tmp_path / "run.json").exists()


def test_a_container_that_may_be_left_is_removed(tmp_path, contained):
    podman = tmp_path / "bin/podman"
    script = """case $1 in ps) echo c1;; rm) echo "$@" >> removed;; run) sleep 60;; esac"""
    podman.write_text(f"#!/bin/sh\n{script}\n")
    podman.chmod(0o755)
    form = FORM | {"options": {}}
    changes = {"runtime": "podman", "runtime_options": ""}
    contained("pass", "--time-limit-s=0.3", form=form, **changes)
    assert outcome(tmp_path)[1].startswith("stopped at time_limit_s, 0.3 s")
    assert (tmp_path / "removed").read_text() == "rm --force c1\n"


def test_the_exit_code_of_the_runtime_is_in_the_failure(tmp_path, contained):
    (tmp_path / "bin/apptainer").write_text("#!/bin/sh\necho FATAL: no such image >&2; exit 255\n")
    contained("pass")
    status, message = outcome(tmp_path)
    assert status == "failed"
    assert "exit code 255" in message
    assert "FATAL: no such image" in message


IMPORTED = """
import sys
before = set(sys.modules)
import start_run
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(name for name in new if "cython" not in name))
"""


def test_what_starts_a_run_inside_needs_numpy_and_what_python_310_has():
    scripts = Path(start_command.__file__).parents[2]
    finished = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=scripts, capture_output=True, text=True, check=True
    )
    new = set(finished.stdout.split())
    assert new - sys.stdlib_module_names == {"dlbench", "numpy", "start_run"}
    assert "tomllib" not in new


def test_a_planned_second_attempt_is_made_in_the_same_process_where_that_is_wanted(tmp_path):
    marker = tmp_path / "tried"
    dies_once = (
        f"import os, sys; t = {str(marker)!r}; d = os.path.exists(t); open(t, 'w'); sys.exit(not d)"
    )
    flags = ("--attempts=2", "--attempt", "1")
    assert start(tmp_path, dies_once, *flags).returncode == 1
    marker.unlink()
    line = command(tmp_path, dies_once, *flags, "--repeat-here")
    finished = subprocess.run(line, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count(": starts") == 2
    assert finished.stderr.count("; it is tried again") == 1
    assert outcome(tmp_path)[0] == "failed"  # the second one wrote no log, and is the last


def test_an_attempt_that_was_stopped_from_outside_is_not_made_again(tmp_path):
    line = command(tmp_path, SLEEPS, "--attempts=2", "--repeat-here")
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.rstrip().endswith(": starts"):
            break
    process.terminate()
    output = process.stderr.read()
    assert process.wait() == 1 and ": starts" not in output
    assert "interrupted" in output


@pytest.fixture
def jobs(here):
    """A function that starts a job of the run as Snakemake does: outputs are removed first."""
    log = Path("results/runs", Run.from_json(json.dumps(SPEC)).id, "train.jsonl")
    messages = Path("results/logs/train", f"{log.parent.name}.log")

    def job(python, *flags):
        for path in (log, log.with_name("run.json"), messages):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        words = [f"--log={log}", f"--messages={messages}", f"--spec={json.dumps(SPEC)}", *flags]
        return in_process.program("start_run.py", *words, "--", *PYTHON, python)

    job.log, job.messages = log, messages
    return job


def trains(log, number):
    """A trainer that ends out of memory, and says which it is."""
    end = f'{{"event": "run_end", "status": "oom", "message": "{number}", "t_utc": "{DATE}"}}'
    writes = f"open({str(log)!r}, 'a').write({end!r} + chr(10))"
    return f"print('trainer {number}'); {writes}; raise SystemExit(1)"


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_run_that_was_recorded_is_not_trained_again(jobs, attempt):
    """Also where the scheduler itself starts the job once more, unknown to Snakemake."""
    made_from = '--made-from={"code": "abc"}'
    assert jobs(trains(jobs.log, 1), made_from).returncode == 0
    before = jobs.log.read_bytes(), outcome(jobs.log.parent)
    finished = jobs(trains(jobs.log, 2), made_from, f"--attempt={attempt}", "--attempts=2")
    assert finished.returncode == 0, finished.stderr
    assert (jobs.log.read_bytes(), outcome(jobs.log.parent)) == before
    assert jobs.messages.read_text() == "trainer 1\n"
    assert "an earlier job of this start recorded it" in finished.stderr


def test_a_run_that_was_skipped_is_trained_by_a_later_job(jobs):
    jobs("", "--skip=no such device")
    jobs(trains(jobs.log, 1))
    assert outcome(jobs.log.parent) == ("oom", "1")


def test_a_log_without_a_record_is_put_aside_whatever_it_says(jobs):
    """Of a job that was killed as it read the log of its run."""
    jobs(trains(jobs.log, 1))
    Path("results/recorded", jobs.log.parent.name).rename("elsewhere")
    os.link(jobs.log, jobs.log.with_name("train.open.jsonl"))
    before = jobs.log.read_bytes()
    jobs(trains(jobs.log, 2))
    assert outcome(jobs.log.parent) == ("oom", "2")
    assert (jobs.log.parent / "train.attempt1.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("states", "code", "words"),
    [
        (["PREEMPTED"], 1, "it is tried again"),
        (["PREEMPTED", "FAILED"], 0, "failed"),
        (["CANCELLED by 0", "NODE_FAIL", "PREEMPTED"], 1, "it is tried again"),
        (["CANCELLED by 0"] * 4, 1, "attempt 4: Slurm ended job 4: CANCELLED by 0); the next"),
        (["FAILED", "FAILED"], 1, "attempt 2: Slurm ended job 2: FAILED); the next start of"),
        (["PREEMPTED", "OUT_OF_MEMORY", "OUT_OF_MEMORY"], 0, "oom (its job 3 was ended: OUT_OF"),
    ],
)
def test_attempts_count_by_what_ended_them(jobs, states, code, words, monkeypatch, tmp_path):
    """Two of the run's own, and up to two more for what others end."""
    (tmp_path / "bin").mkdir()
    answer = "".join(f"{number}|{state}\\n" for number, state in enumerate(states, start=1))
    for name in ("sacct", "squeue"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nprintf '{answer}'\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    jobs.log.parent.mkdir(parents=True)
    for number in range(1, len(states) + 1):
        launch = {"job": {"scheduler": "slurm", "id": str(number)}, "session": {"id": "s"}}
        kept = jobs.log.with_name(f"train.attempt{number}.jsonl")
        kept.write_text(json.dumps({"event": "launch", **launch}) + "\n")
    limits = f"--attempt={len(states) + 1}", "--attempts=2", "--tries=4", '--session={"id": "s"}'
    finished = jobs("import sys; sys.exit('what a pity')", *limits)
    assert finished.returncode == code, finished.stderr
    assert words in finished.stderr
