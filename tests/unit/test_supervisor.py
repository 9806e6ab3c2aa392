"""supervisor: how runs end that do not end well, in this process and with real children."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlbench import checkpoints, eventlog, supervisor
from dlbench.supervisor import Watched

PROGRAM = Path(__file__).parents[2] / "workflow_scripts" / "start_run.py"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}
WRITES = """
import json, os, subprocess, sys, time, signal
def write(event, **values):
    with open({log!r}, "a") as log:
        log.write(json.dumps({{"event": event, **values}}) + chr(10))
"""
END = 'write("run_end", status="ok", message="", t_utc="2026", weights_sha256=["0"])\n'
# Without site-packages it starts at once, also on a busy machine.
PYTHON = (sys.executable, "-I", "-S", "-c")
SLEEPER = '[sys.executable, "-c", "import time; time.sleep(60)"]'


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)
    monkeypatch.setattr(supervisor, "GRACE_S", 0.2)


def watched(folder, python, **changes):
    log = folder / "runs" / "run" / "train.jsonl"
    values = {
        "log": log,
        "messages": folder / "messages",
        "command": (*PYTHON, WRITES.format(log=str(log)) + python),
        "label": "lenet5 synthetic",
        "position": "1/2",
        "launch": {"made_from": {}},
        "time_limit_s": 30,
        "last_attempt": True,
    }
    return Watched(**values | changes)


def ends(log):
    return [event for event in eventlog.read(log) if event["event"] == "run_end"]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(path):
    deadline = time.monotonic() + 20
    while not (path.is_file() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_that_ends_well_has_one_end_that_of_the_trainer(tmp_path):
    run = watched(tmp_path, END)
    assert supervisor.supervise(run)
    launch, end = eventlog.read(run.log)
    assert (launch["event"], launch["command"]) == ("launch", list(run.command))
    assert (end["status"], end["weights_sha256"]) == ("ok", ["0"])


def test_a_trainer_that_ignores_the_request_to_stop_is_killed(tmp_path):
    ready = tmp_path / "ready"
    ignores = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(ready)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    assert supervisor.supervise(watched(tmp_path, ignores, time_limit_s=0.5))
    assert not alive(int(ready.read_text()))
    (end,) = ends(tmp_path / "runs/run/train.jsonl")
    assert (end["status"], end["message"]) == ("timeout", "stopped at time_limit_s")


def test_a_trainer_that_hangs_after_its_end_is_a_timeout(tmp_path):
    run = watched(tmp_path, END + "time.sleep(60)", time_limit_s=0.5)
    assert supervisor.supervise(run)
    assert [end["status"] for end in ends(run.log)] == ["ok", "timeout"]
    assert eventlog.ended(run.log)["status"] == "timeout"


def test_what_the_trainer_started_does_not_outlive_it(tmp_path):
    pid = tmp_path / "pid"
    leaves = f"child = subprocess.Popen({SLEEPER})\nopen({str(pid)!r}, 'w').write(str(child.pid))\n"
    assert supervisor.supervise(watched(tmp_path, leaves + END))
    assert not alive(int(pid.read_text()))


def test_an_attempt_that_may_pass_is_kept_aside_and_not_recorded(tmp_path):
    run = watched(tmp_path, "sys.exit(7)", last_attempt=False)
    assert not supervisor.supervise(run)
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]
    assert ends(run.log.with_name("train.attempt1.jsonl")) == []


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("sys.exit(7)", "(exit code 7): no message"),
        ("raise MemoryError('too much')", "(exit code 1): MemoryError: too much"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "(killed by SIGSEGV): no message"),
        ("print('x' * 1000); sys.exit(2)", f"(exit code 2): {'x' * 300}"),
        ("pass", "(exit code 0): no message"),
        ("sys.stdout.buffer.write(b'\\xff\\n'); sys.exit(3)", "(exit code 3): \ufffd"),
    ],
)
def test_a_trainer_without_a_word_is_described(tmp_path, python, message):
    run = watched(tmp_path, python)
    assert supervisor.supervise(run)
    (end,) = ends(run.log)
    assert end["status"] == "failed"
    assert end["message"] == f"the trainer ended without a word {message}"


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(137)"])
def test_a_trainer_that_the_kernel_killed_for_memory_is_not_tried_again(tmp_path, monkeypatch, how):
    counts = iter([4, 5])
    monkeypatch.setattr(supervisor, "_kernel_kills", lambda: next(counts))
    run = watched(tmp_path, how, last_attempt=False)
    assert supervisor.supervise(run)
    (end,) = ends(run.log)
    assert (end["status"], end["message"]) == (
        "oom",
        "killed by the kernel: the host ran out of memory",
    )


def test_a_timeout_is_a_result_at_the_first_attempt(tmp_path):
    run = watched(tmp_path, "time.sleep(60)", time_limit_s=0.3, last_attempt=False)
    assert supervisor.supervise(run)
    assert eventlog.ended(run.log)["status"] == "timeout"


def test_signals_mean_afterwards_what_they_meant_before(tmp_path):
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    supervisor.supervise(watched(tmp_path, END))
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("no room\n-----\n", "no room"),
        ("---\n", "no message"),
        ("*** An error occurred in MPI_Init_thread\nExit code: 1\n---\n", "MPI could not start: "),
    ],
)
def test_what_a_silent_trainer_said_last_is_words_and_not_a_ruled_line(tmp_path, said, message):
    run = watched(tmp_path, f"sys.stderr.write({said!r})\nsys.exit(1)", last_attempt=True)
    assert supervisor.supervise(run)
    (end,) = ends(run.log)
    assert end["message"].startswith(f"the trainer ended without a word (exit code 1): {message}")


def test_the_last_line_says_how_fast_it_was_and_what_is_left(tmp_path, capsys):
    spec = {"batch_per_device": 8, "devices_per_node": 2, "nodes": 1}
    trains = (
        f"write('run_start', spec={spec!r}, total_steps=3, t_utc=0)\n"
        "for step in (1, 2, 3):\n"
        "    write('step', step=step, step_time_s=0.5, loss=2.0, warm_up=step == 1)\n"
    )
    end = END.replace('"2026"', '"2999-01-01T00:00:00.000000Z"')
    assert supervisor.supervise(watched(tmp_path, trains + end, position="1/2"))
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("run 1/2  lenet5 synthetic: ok, step 3/3, loss 2, 32 images/s, ")
    assert "; about " in last
    assert last.endswith(" min left")


def test_the_last_run_of_all_leaves_nothing(tmp_path, capsys):
    assert supervisor.supervise(watched(tmp_path, END, position="2/2"))
    assert "left" not in capsys.readouterr().err


def test_a_skipped_run_has_a_log_with_its_reason_and_no_command(tmp_path):
    run = watched(tmp_path, END)
    supervisor.refuse(run, "skipped", "needs 4 cores")
    launch, end = eventlog.read(run.log)
    assert launch["command"] == []
    assert (end["status"], end["message"]) == ("skipped", "needs 4 cores")
    assert not run.messages.exists()


def test_a_run_interrupted_after_its_end_is_no_result_either(tmp_path):
    """The trainer has written its end and started a process; both go when a signal arrives."""
    log, pid = tmp_path / "train.jsonl", tmp_path / "pid"
    trainer = WRITES.format(log=str(log)) + END
    trainer += f"child = subprocess.Popen({SLEEPER})\n"
    trainer += f"open({str(pid)!r}, 'w').write(str(child.pid))\ntime.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "--log", log, "--messages", tmp_path / "messages",
         f"--spec={json.dumps(SPEC)}", "--", sys.executable, "-c", trainer],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(pid)
    process.send_signal(signal.SIGHUP)
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "stopped by signal SIGHUP" in messages
    assert not alive(int(pid.read_text()))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "messages",
        "pid",
        "train.attempt1.jsonl",
    ]


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        ('{"event": "run_end", "status": "ok", "message": "old"}\n', []),
        ("old and cut short", ["train.attempt2.jsonl", "train.attempt2.rank1.jsonl"]),
    ],
)
def test_earlier_attempts_stay_and_logs_of_a_finished_run_go(end, kept, tmp_path):
    run = watched(tmp_path, END)
    run.log.parent.mkdir(parents=True)
    for name in ("train.jsonl", "train.rank1.jsonl", "train.attempt1.jsonl"):
        (run.log.parent / name).write_text(end)
    assert supervisor.supervise(run)
    names = sorted(path.name for path in run.log.parent.iterdir())
    assert names == ["train.attempt1.jsonl", *kept, "train.jsonl"]
    assert "old" not in run.log.read_text()


def test_a_trainer_that_does_not_exist_ends_the_program_with_one_line(tmp_path):
    finished = subprocess.run(
        [sys.executable, PROGRAM, "--log", tmp_path / "train.jsonl", "--messages",
         tmp_path / "messages", f"--spec={json.dumps(SPEC)}", "--", tmp_path / "absent"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1].startswith("error: ")
    assert os.fspath(tmp_path / "absent") in finished.stderr
    assert not (tmp_path / "run.json").exists()


# Hangs.

SAMPLES = """
for number in range(1000):
    write("sample", t_s=number)
    time.sleep(0.02)
"""
STEPS = """
for number in range(1, 31):
    write("step", step=number, step_time_s=0.05, loss=2.0, warm_up=False)
    time.sleep(0.05)
"""


@pytest.mark.parametrize("samples", [SAMPLES, "time.sleep(60)"])
def test_a_trainer_that_takes_no_step_is_ended_as_hung_even_where_it_is_sampled(tmp_path, samples):
    run = watched(tmp_path, samples, hang_limit_s=0.5)
    assert supervisor.supervise(run)
    (end,) = ends(run.log)
    assert (end["status"], end["hung"]) == ("failed", True)
    assert end["message"] == "hung: no step for 0.5 s; no step yet"


def test_a_trainer_that_takes_steps_does_not_hang_however_long_it_takes(tmp_path):
    run = watched(tmp_path, STEPS + END, hang_limit_s=1.0)
    assert supervisor.supervise(run)
    assert [end["status"] for end in ends(run.log)] == ["ok"]


def test_a_hang_may_pass(tmp_path):
    run = watched(tmp_path, "time.sleep(60)", hang_limit_s=0.3, last_attempt=False)
    assert not supervisor.supervise(run)
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]


# The second of two copies; the first has written its end already.
COPY = """
import pathlib
first = pathlib.Path({log!r})
def write(event, **values):
    with open(first.with_name("train.rank1.jsonl"), "a") as log:
        log.write(json.dumps({{"event": event, **values}}) + chr(10))
"""


def copies(folder, first, second, **changes):
    """What is watched of two copies, one after the other as far as their logs are concerned."""
    log = str(folder / "runs" / "run" / "train.jsonl")
    return watched(folder, first + COPY.format(log=log) + second, copies=2, **changes)


def test_a_copy_that_goes_on_after_another_has_ended_is_no_hang(tmp_path):
    run = copies(tmp_path, END, STEPS + END, hang_limit_s=1.0)
    assert supervisor.supervise(run)
    assert [end["status"] for log in run.logs for end in ends(log)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(END, "time.sleep(60)"), ("", STEPS * 40), (END, END + "time.sleep(60)")],
)
def test_a_copy_that_hangs_ends_the_run_and_is_told_from_the_other(tmp_path, first, second):
    run = copies(tmp_path, first, second, hang_limit_s=0.6)
    assert supervisor.supervise(run)
    end = ends(run.log)[-1]
    assert (end["status"], end["hung"]) == ("failed", True)
    assert end["message"].startswith("hung: no step for 0.6 s; copy 0: no step yet; copy 1: ")


def test_every_event_but_a_sample_is_a_sign_of_life(tmp_path):
    path = tmp_path / "train.jsonl"
    activity = supervisor._Activity(path, 0.0)
    assert activity.last_s(1.0) == 0.0  # no log yet
    log = eventlog.EventLog(path)
    log.start()
    assert activity.last_s(2.0) == 2.0
    log.write("sample", t_s=1.0)
    assert activity.last_s(3.0) == 2.0
    log.write("sample", t_s=2.0)
    log.step(1, 0.5, 0.5, 2.0, 0.01, False, 1)
    log.write("sample", t_s=3.0)
    assert activity.last_s(4.0) == 4.0
    assert activity.last_s(5.0) == 4.0
    # Begun anew from a checkpoint: shorter than what was read.
    log.resume(b"", 0.0, step=1)
    assert activity.last_s(6.0) == 6.0
    assert activity.last_s(7.0) == 6.0


# Checkpoints.

MADE_FROM = {"code": "1", "data": "", "environment": "2"}


def kept(folder, made_from=MADE_FROM, step=3):
    """A whole checkpoint of a run."""
    place = folder / "runs" / "run" / "checkpoint"
    launch = json.dumps({"event": "launch", "made_from": made_from})
    checkpoints.write(place, 0, step, {}, f"{launch}\n".encode())
    checkpoints.complete(place, step, 1.5, {})
    return place


def keeping(folder, python, **changes):
    place = folder / "runs" / "run" / "checkpoint"
    launch = {"made_from": MADE_FROM}
    return watched(folder, python, **{"checkpoint": place, "launch": launch} | changes)


def stops_when_asked(folder, code):
    """A trainer that waits for the stop file, says so, and ends."""
    stop, heard = folder / "runs/run/checkpoint/stop", folder / "heard"
    return (
        "write('run_start', spec={})\n"
        f"while not os.path.exists({str(stop)!r}): time.sleep(0.01)\n"
        f"open({str(heard)!r}, 'w').write('heard')\nsys.exit({code})"
    )


def send_when_it_trains(run, number):
    """Send a signal to this process once the trainer has started."""

    def started():
        heard = signal.getsignal(number) is not before
        return heard and run.log.is_file() and b'"event": "run_start"' in run.log.read_bytes()

    def send():
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if started():
                return os.kill(os.getpid(), number)
            time.sleep(0.01)

    before = signal.getsignal(number)
    sender = threading.Thread(target=send)
    sender.start()
    return sender


@pytest.mark.parametrize("last_attempt", [True, False])
def test_on_a_signal_the_trainer_is_asked_for_a_checkpoint_and_there_is_no_result(
    tmp_path, capsys, last_attempt
):
    place = kept(tmp_path)
    run = keeping(tmp_path, stops_when_asked(tmp_path, 75), last_attempt=last_attempt)
    sender = send_when_it_trains(run, signal.SIGUSR1)
    assert not supervisor.supervise(run)
    sender.join()
    assert (tmp_path / "heard").read_text() == "heard"
    assert sorted(path.name for path in place.iterdir()) == ["latest.json", "step-3"]
    names = sorted(path.name for path in run.log.parent.iterdir())
    assert names == ["checkpoint", "train.attempt1.jsonl"]
    messages = capsys.readouterr().err
    assert "is asked for a checkpoint\n" in messages
    assert "failed (stopped by signal SIGUSR1)" in messages


def test_a_trainer_that_writes_no_checkpoint_in_time_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "CHECKPOINT_GRACE_S", 0.3)
    run = keeping(tmp_path, "write('run_start', spec={})\ntime.sleep(60)")
    sender = send_when_it_trains(run, signal.SIGTERM)
    began = time.monotonic()
    assert not supervisor.supervise(run)
    sender.join()
    assert time.monotonic() - began < 20
    assert list(run.checkpoint.iterdir()) == []


def test_a_run_without_checkpoints_is_asked_for_none(tmp_path, capsys):
    run = watched(tmp_path, "write('run_start', spec={})\ntime.sleep(60)")
    sender = send_when_it_trains(run, signal.SIGTERM)
    assert not supervisor.supervise(run)
    sender.join()
    assert "asked for a checkpoint" not in capsys.readouterr().err
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]


def test_a_trainer_that_hangs_is_asked_for_nothing(tmp_path, capsys):
    run = keeping(tmp_path, "time.sleep(60)", hang_limit_s=0.3)
    assert supervisor.supervise(run)
    assert "asked for a checkpoint" not in capsys.readouterr().err
    assert eventlog.ended(run.log)["hung"]


def test_a_trainer_that_was_stopped_after_a_checkpoint_has_no_result_at_the_last_attempt(tmp_path):
    run = keeping(tmp_path, "sys.exit(75)", last_attempt=True)
    assert not supervisor.supervise(run)
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]
    assert ends(run.log.with_name("train.attempt1.jsonl")) == []


def test_a_run_goes_on_from_a_checkpoint_of_the_same_making(tmp_path, capsys):
    place = kept(tmp_path)
    (place / "stop").touch()  # of whoever stopped it
    assert supervisor.supervise(keeping(tmp_path, END))
    assert capsys.readouterr().err.startswith("run 1/2  lenet5 synthetic: goes on after step 3\n")
    assert sorted(path.name for path in place.iterdir()) == ["latest.json", "step-3"]


def test_a_checkpoint_of_other_code_is_removed_with_a_message(tmp_path, capsys):
    place = kept(tmp_path, made_from=MADE_FROM | {"code": "another"})
    assert supervisor.supervise(keeping(tmp_path, END))
    assert capsys.readouterr().err.startswith(
        "run 1/2  lenet5 synthetic: starts anew: its checkpoint is of other code, data or "
        "environment\n"
    )
    assert not place.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "latest.json").write_text("{"),
        lambda place: (place / "step-3" / "rank0.jsonl").unlink(),
        lambda place: (place / "step-3" / "rank0.jsonl").write_text(""),
        lambda place: (place / "step-3" / "rank0.jsonl").write_text("[]\n"),
        lambda place: (place / "step-3" / "rank0.jsonl").write_text("no json\n"),
    ],
)
def test_a_damaged_checkpoint_is_removed_with_a_message(tmp_path, capsys, damage):
    place = kept(tmp_path)
    damage(place)
    assert supervisor.supervise(keeping(tmp_path, END))
    assert ": starts anew: its checkpoint cannot be read (" in capsys.readouterr().err
    assert not place.exists()


def test_a_run_without_a_checkpoint_starts(tmp_path, capsys):
    assert supervisor.supervise(keeping(tmp_path, END))
    assert capsys.readouterr().err.startswith("run 1/2  lenet5 synthetic: starts\n")


# Ends that say less than the launcher does.

SIGNALLED = f"write('run_end', status='failed', message={eventlog.STOPPED_BY_SIGNAL!r})\n"
LAST_WORDS = "worker 1 failed (exit code 9); the others are ended"


def test_a_rank_that_its_launcher_stopped_is_described_by_what_the_launcher_says(tmp_path):
    run = watched(tmp_path, SIGNALLED + f"print({LAST_WORDS!r}, file=sys.stderr)\nsys.exit(9)")
    assert supervisor.supervise(run)
    assert eventlog.ended(run.log)["message"] == (
        f"the trainer ended without a word (exit code 9): {LAST_WORDS}"
    )


def test_a_rank_that_its_launcher_stopped_is_tried_again(tmp_path):
    run = watched(tmp_path, SIGNALLED + "sys.exit(9)", last_attempt=False)
    assert not supervisor.supervise(run)
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]


def test_a_failure_that_the_trainer_describes_stays_as_it_is(tmp_path):
    fails = "write('run_end', status='failed', message='no such file')\nsys.exit(1)"
    run = watched(tmp_path, fails, last_attempt=False)
    assert supervisor.supervise(run)
    assert [end["message"] for end in ends(run.log)] == ["no such file"]


def ranks(folder, *ends):
    """Logs of ranks with these (status, message) in the order of time; None: without an end."""
    for rank, end in enumerate(ends):
        log = eventlog.EventLog(eventlog.rank_path(folder / "train.jsonl", rank))
        log.start()
        if end:
            status, message, t_utc = end
            log.write("run_end", status=status, message=message, t_utc=t_utc)
        log.close()
    end = supervisor._end_of_ranks(folder / "train.jsonl")
    return end and (end["status"], end["message"])


STOPPED = ("failed", eventlog.STOPPED_BY_SIGNAL, "2")
NAN = ("failed", "the loss is not a number", "1")
LOST = ("failed", "HorovodInternalError", "3")
FULL = ("oom", "GPU 1", "4")


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ([("ok", "", "1"), ("ok", "", "2")], ("ok", "")),
        ([STOPPED, NAN], NAN[:2]),
        ([LOST, NAN], NAN[:2]),
        ([LOST, None], None),
        ([None, LOST], None),
        ([STOPPED, None], None),
        ([STOPPED], None),
        ([None, FULL], FULL[:2]),
        ([LOST, FULL], FULL[:2]),
        ([NAN], NAN[:2]),
    ],
)
def test_the_first_failure_counts_and_none_beside_a_rank_that_said_nothing(tmp_path, ends, found):
    assert ranks(tmp_path, *ends) == found


def test_a_failure_that_another_rank_explains_is_a_result_at_the_first_attempt(tmp_path):
    other = (
        f"log = {str(tmp_path / 'runs/run/train.rank1.jsonl')!r}\n"
        "open(log, 'w').write(json.dumps({'event': 'run_end', 'status': 'failed', 't_utc': '1',"
        " 'message': 'the loss is not a number'}) + chr(10))\n"
        f"write('run_end', status='failed', message={eventlog.STOPPED_BY_SIGNAL!r}, t_utc='2')\n"
        "sys.exit(1)"
    )
    run = watched(tmp_path, other, last_attempt=False)
    assert supervisor.supervise(run)
    assert eventlog.ended(run.log)["message"] == "the loss is not a number"
