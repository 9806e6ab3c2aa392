"""supervisor: how runs end that do not end well, in this process and with real children."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlbench.log import event_log
from dlbench.records import costs
from dlbench.starting import processes, supervisor
from dlbench.trainer import checkpoints
from support.machines.processes import alive
from support.programs import in_process
from support.runs.made_runs import date
from support.trainers.watched_runs import DATE, END, WRITES, ends, watched

pytestmark = pytest.mark.usefixtures("impatient")

PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "start_run.py"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}
NO_STEP = "before its first step"
SLEEPER = '[sys.executable, "-c", "import time; time.sleep(60)"]'


def words(folder, *trainer):
    files = ["--log", folder / "train.jsonl", "--messages", folder / "messages"]
    return [*files, f"--spec={json.dumps(SPEC)}", "--", *trainer]


def wait_for(path):
    deadline = time.monotonic() + 20
    while not (path.is_file() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def supervised(folder, python, result=True, **changes):
    """A run that was supervised, and its last end, if its log was not put aside."""
    run = watched(folder, python, **changes)
    assert bool(supervisor.supervise(run)) is result
    return run, run.log.exists() and event_log.last_run_end(run.log)


def test_a_run_that_ends_well_has_one_end_that_of_the_trainer(tmp_path):
    run, end = supervised(tmp_path, END)
    launch = next(event_log.read(run.log))
    assert len(ends(run.log)) == 1
    assert (launch["event"], launch["command"]) == ("launch", list(run.command))
    assert (end["status"], end["weights_sha256"]) == ("ok", ["0"])


def test_a_trainer_that_ignores_the_request_to_stop_is_killed(tmp_path):
    ready = tmp_path / "ready"
    ignores = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(ready)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    _, end = supervised(tmp_path, ignores, time_limit_s=1.0)
    assert not alive(int(ready.read_text()))
    message = "stopped at time_limit_s, 1 s; no step yet; last lines: no message"
    assert (end["status"], end["message"]) == ("failed", message)


def test_a_trainer_that_hangs_after_its_end_is_a_timeout(tmp_path):
    run, end = supervised(tmp_path, END + "time.sleep(60)", time_limit_s=1.0)
    assert [end["status"] for end in ends(run.log)] == ["ok", "timeout"]
    assert end["status"] == "timeout"


def test_what_the_trainer_started_does_not_outlive_it(tmp_path):
    pid = tmp_path / "pid"
    leaves = f"child = subprocess.Popen({SLEEPER})\nopen({str(pid)!r}, 'w').write(str(child.pid))\n"
    supervised(tmp_path, leaves + END)
    assert not alive(int(pid.read_text()))


SIGNALLED = (
    f"write('run_end', status='failed', message={event_log.STOPPED_BY_SIGNAL!r}, t_utc={DATE!r})\n"
)


@pytest.mark.parametrize(
    ("python", "ended"), [("sys.exit(7)", 0), (SIGNALLED + "sys.exit(9)", 1)],
    ids=["ended", "stopped by its launcher"],
)  # fmt: skip
def test_an_attempt_that_may_pass_is_kept_aside_and_not_recorded(tmp_path, python, ended):
    run, _ = supervised(tmp_path, python, result=False, last_attempt=False)
    assert [path.name for path in run.log.parent.iterdir()] == ["train.attempt1.jsonl"]
    assert len(ends(run.log.with_name("train.attempt1.jsonl"))) == ended


# From Python 3.13 on a traceback has the line of what is given with -c, too.
LAST_LINES = (
    "Traceback (most recent call last): | " * (sys.version_info < (3, 13))
    + 'File "<string>", line 6, in <module> | '
    + "raise MemoryError('no') | " * (sys.version_info >= (3, 13))
    + "MemoryError: no"
)


SAYS = "sys.stderr.write({!r})\nsys.exit({})"
LAST_WORDS = "worker 1 failed (exit code 9); the others are ended"
SRUN = "srun: error: task 1 launch failed: Unspecified error"
MPI = (
    "MPI could not start: the MPI of mpirun must be that of the trainer's environment or image; "
    "the run's log has what it said"
)


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("sys.exit(7)", "(exit code 7): no message"),
        ("raise MemoryError('no')", "(exit code 1): " + LAST_LINES),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "(killed by SIGSEGV): no message"),
        ("print('x' * 1000); sys.exit(2)", f"(exit code 2): {'x' * 358} ... {'x' * 537}"),
        ("pass", "(exit code 0): no message"),
        ("sys.stdout.buffer.write(b'\\xff\\n'); sys.exit(3)", "(exit code 3): \ufffd"),
        # Words, and not a ruled line.
        (SAYS.format("no room\n-----\n", 1), "(exit code 1): no room"),
        (SAYS.format("---\n", 1), "(exit code 1): no message"),
        (SAYS.format(f"{SRUN}\nsrun: error: Timed out waiting for job step to complete\n", 1),
         f"(exit code 1): {SRUN}"),
        (SAYS.format("*** An error occurred in MPI_Init_thread\nExit code: 1\n---\n", 1),
         f"(exit code 1): {MPI}"),
        # A rank that its launcher stopped is described by what the launcher says.
        (SIGNALLED + SAYS.format(LAST_WORDS, 9), f"(exit code 9): {LAST_WORDS}"),
    ],
)  # fmt: skip
def test_a_trainer_without_a_word_is_described(tmp_path, python, message):
    _, end = supervised(tmp_path, python)
    assert end["status"] == "failed"
    assert end["message"] == f"the trainer ended without a word {NO_STEP} {message}"


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(137)"])
def test_a_trainer_that_the_kernel_killed_for_memory_is_not_tried_again(tmp_path, monkeypatch, how):
    counts = iter([4, 5])
    monkeypatch.setattr(processes, "killed_for_memory", lambda: next(counts))
    _, end = supervised(tmp_path, how, last_attempt=False)
    message = "killed by the kernel: the host ran out of memory"
    assert (end["status"], end["message"]) == ("oom", message)


def supervise_rank(folder, begins, launcher_ends="", **limits):
    """Supervise a launcher that ends once its rank has begun. Returns the rank's process id."""
    log, rank, pid = folder / "runs/run/train.jsonl", folder / "train.py", folder / "pid"
    rank.write_text(
        f"import os, signal, time\n{begins}\n"
        f"open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    launcher = (
        f"subprocess.Popen([sys.executable, {str(rank)!r}, '--log', {str(log)!r}])\n"
        f"while not (os.path.exists({str(pid)!r}) and os.path.getsize({str(pid)!r})):\n"
        f"    time.sleep(0.01)\n{launcher_ends}"
    )
    supervisor.supervise(watched(folder, launcher, **limits))
    return int(pid.read_text())


DEAF = "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"

# As mpirun starts its ranks, and as horovodrun does.
GROUP, SESSION = "os.setpgid(0, 0)", "os.setsid()"


@pytest.mark.parametrize(
    ("begins", "launcher_ends"),
    [
        (SESSION, ""),
        (GROUP + DEAF, ""),
        pytest.param(GROUP, "time.sleep(60)", marks=pytest.mark.ci),
        pytest.param(SESSION + DEAF, "time.sleep(60)", marks=pytest.mark.ci),
    ],
)
def test_a_rank_that_its_launcher_left_behind_is_ended(tmp_path, begins, launcher_ends):
    assert not alive(supervise_rank(tmp_path, begins, launcher_ends, time_limit_s=2))


@pytest.mark.ci
def test_a_rank_that_is_long_in_giving_back_its_memory_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 20.0)
    assert not alive(supervise_rank(tmp_path, "os.setsid()\nmemory = b'1' * (1 << 30)"))


def test_signals_mean_afterwards_what_they_meant_before(tmp_path):
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    supervisor.supervise(watched(tmp_path, END))
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_skipped_run_has_a_log_with_its_reason_and_no_command(tmp_path):
    run = watched(tmp_path, END)
    supervisor.refuse(run, "skipped", "needs 4 cores")
    launch, end = next(event_log.read(run.log)), event_log.last_run_end(run.log)
    assert len(ends(run.log)) == 1
    assert launch["command"] == []
    assert (end["status"], end["message"]) == ("skipped", "needs 4 cores")
    assert not run.messages.exists()


def test_a_run_interrupted_after_its_end_is_no_result_either(tmp_path):
    """The trainer has written its end and started a process; both go when a signal arrives."""
    log, pid = tmp_path / "train.jsonl", tmp_path / "pid"
    trainer = WRITES.format(log=str(log)) + END
    trainer += f"child = subprocess.Popen({SLEEPER})\n"
    trainer += f"open({str(pid)!r}, 'w').write(str(child.pid))\ntime.sleep(60)"
    command = [sys.executable, PROGRAM, *words(tmp_path, sys.executable, "-c", trainer)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(pid)
    process.send_signal(signal.SIGHUP)
    _, messages = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "stopped by signal SIGHUP" in messages
    assert not alive(int(pid.read_text()))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["messages", "pid", "train.attempt1.jsonl"]


OLD = f'{{"event": "run_end", "status": "ok", "message": "old", "t_utc": "{DATE}"}}\n'


@pytest.mark.parametrize(
    ("end", "aside"),
    [
        (OLD, ["train.attempt2.jsonl", "train.attempt2.rank1.jsonl"]),
        (OLD.replace("ok", "skipped"), []),
        ("old and cut short", ["train.attempt2.jsonl", "train.attempt2.rank1.jsonl"]),
    ],
)
def test_what_earlier_attempts_measured_stays(end, aside, tmp_path):
    run = watched(tmp_path, END)
    run.log.parent.mkdir(parents=True)
    for name in ("train.jsonl", "train.rank1.jsonl", "train.attempt1.jsonl"):
        (run.log.parent / name).write_text(end)
    assert supervisor.supervise(run)
    names = sorted(path.name for path in run.log.parent.iterdir())
    # Until there is a record the log has its second name.
    assert names == ["train.attempt1.jsonl", *aside, "train.jsonl", "train.open.jsonl"]
    assert "old" not in run.log.read_text()


def test_a_trainer_that_does_not_exist_is_a_failure_that_names_it(tmp_path):
    finished = in_process.program("start_run.py", *words(tmp_path, tmp_path / "absent"))
    assert finished.returncode == 0, finished.stderr
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed" and record["provenance"]["before_first_step"]
    assert "absent" in record["message"] and "No such file" in record["message"]


def test_a_failure_that_the_trainer_describes_stays_as_it_is(tmp_path):
    end = f"status='failed', message='no such file', t_utc={DATE!r}"
    fails = f"write('run_end', {end})\nsys.exit(1)"
    run, _ = supervised(tmp_path, fails, last_attempt=False)
    assert [end["message"] for end in ends(run.log)] == ["no such file"]


def ranks(folder, *ends):
    """Logs of ranks with these (status, message) in the order of time; None: without an end."""
    for rank, end in enumerate(ends):
        log = event_log.EventLog(event_log.rank_path(folder / "train.jsonl", rank))
        log.start(spec=SPEC)
        if end:
            status, message, second = end
            log.write("run_end", status=status, message=message, t_utc=date(second))
        log.close()
    end = supervisor._end_of_ranks(folder / "train.jsonl")
    return end and (end["status"], end["message"])


STOPPED = ("failed", event_log.STOPPED_BY_SIGNAL, 2)
NAN = ("failed", "the loss is not a number", 1)
LOST = ("failed", "HorovodInternalError", 3)
FULL = ("oom", "GPU 1", 4)


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ([("ok", "", 1), ("ok", "", 2)], ("ok", "")),
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
        "open(log, 'w').write(json.dumps({'event': 'run_end', 'status': 'failed',"
        f" 'message': 'the loss is not a number', 't_utc': {date(-1)!r}}}) + chr(10))\n"
        f"{SIGNALLED}sys.exit(1)"
    )
    _, end = supervised(tmp_path, other, last_attempt=False)
    assert end["message"] == "the loss is not a number"


def test_a_run_that_failed_on_a_full_disk_has_no_result(tmp_path, capsys):
    message = "OSError: [Errno 28] No space left on device"
    end = f"status='failed', message={message!r}, t_utc={DATE!r}"
    run, _ = supervised(tmp_path, f'write("run_end", {end})\nsys.exit(1)', result=False)
    assert not run.log.exists() and run.log.with_name("train.attempt1.jsonl").exists()
    quota = 'print("OSError: [Errno 122] Disk quota exceeded", file=sys.stderr); sys.exit(1)'
    supervised(tmp_path, quota, result=False)
    assert "Disk quota exceeded" in capsys.readouterr().err


def test_a_process_that_left_its_session_ends_with_its_trainer(tmp_path):
    code = "child = subprocess.Popen(['setsid', 'sleep', '60'])\n"
    run, _ = supervised(tmp_path, f"{code}write('child', pid=child.pid)\ntime.sleep(0.3)\n{END}")
    (child,) = (
        json.loads(line)["pid"] for line in run.log.read_text().splitlines() if '"child"' in line
    )
    assert not alive(child)


@pytest.mark.parametrize("then", ["", "os.symlink(elsewhere, folder)"])
def test_a_program_that_removes_its_own_folder_leaves_a_record_and_a_link_there_is_not_followed(
    tmp_path, then
):
    elsewhere = tmp_path / "scratch"
    elsewhere.mkdir()
    (elsewhere / "train.jsonl").write_text("of somebody")
    run = watched(
        tmp_path,
        f"import shutil\nfolder, elsewhere = {str(tmp_path / 'runs/run')!r}, {str(elsewhere)!r}\n"
        f"shutil.rmtree(folder)\n{then}",
    )
    assert supervisor.supervise(run) is supervisor.Outcome.RESULT
    (end,) = ends(run.log)
    assert end["status"] == "failed" and "removed or replaced" in end["message"]
    assert (elsewhere / "train.jsonl").read_text() == "of somebody"
    assert not run.log.parent.is_symlink()


MADE_FROM = {"code": "1", "data": "", "environment": "2"}


def kept(folder, made_from=MADE_FROM, step=3):
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
    assert (
        "interrupted (stopped by signal SIGUSR1), 0 s; the next start goes on after step 3\n"
        in (re.sub(r"\d+ s;", "0 s;", messages))
    )


def test_a_trainer_that_writes_no_checkpoint_in_time_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "CHECKPOINT_GRACE_S", 0.3)
    run = keeping(tmp_path, "write('run_start', spec={})\ntime.sleep(60)")
    sender = send_when_it_trains(run, signal.SIGTERM)
    started_at = time.monotonic()
    assert not supervisor.supervise(run)
    sender.join()
    assert time.monotonic() - started_at < 20
    assert list(run.checkpoint.iterdir()) == []


def test_a_trainer_that_hangs_is_asked_for_nothing(tmp_path, capsys):
    run = keeping(tmp_path, "time.sleep(60)", hang_limit_s=0.3)
    assert supervisor.supervise(run)
    assert "asked for a checkpoint" not in capsys.readouterr().err
    assert event_log.last_run_end(run.log)["hung"]


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


@pytest.mark.parametrize(
    ("damaged", "content", "reason"),
    [
        (None, "", "is of other code, data or environment\n"),
        ("latest.json", "{", "cannot be read ("),
        *(
            ("step-3/rank0.jsonl", text, "cannot be read (")
            for text in (None, "", "[]\n", "no json")
        ),
    ],
)
def test_a_checkpoint_that_is_damaged_or_of_other_code_is_removed_with_a_message(
    tmp_path, capsys, damaged, content, reason
):
    place = kept(tmp_path, made_from=MADE_FROM | ({} if damaged else {"code": "another"}))
    if damaged and content is None:
        (place / damaged).unlink()
    elif damaged:
        (place / damaged).write_text(content)
    assert supervisor.supervise(keeping(tmp_path, END))
    starts = f"run 1/2  lenet5 synthetic: starts anew: its checkpoint {reason}"
    assert capsys.readouterr().err.startswith(starts)
    assert not place.exists()


STEPS = (
    f"write('run_start', t_utc={DATE!r}, spec={SPEC!r}, total_steps=3)\n"
    "for number in (1, 2):\n"
    "    write('step', step=number, t_s=number, step_time_s=0.5, loss=2.0, warm_up=False)\n"
)


def test_a_timeout_after_a_step_is_a_result_at_the_first_attempt_and_says_how_far_it_was(tmp_path):
    _, end = supervised(tmp_path, STEPS + "time.sleep(60)", time_limit_s=1, last_attempt=False)
    assert (end["status"], end["time_limit_s"]) == ("timeout", 1)
    assert end["message"].startswith("stopped at time_limit_s, 1 s; step 2/3, loss 2")
    assert "before_first_step" not in end


SPEAKS = "print('rank 1 waits', flush=True)\nprint('for rank 0', flush=True)\n"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"time_limit_s": 1}, "stopped at time_limit_s, 1 s"),
        ({"hang_limit_s": 1}, "hung: no step for 1 s"),
    ],
)
def test_what_ends_before_its_first_step_is_tried_again_and_then_failed(tmp_path, limits, message):
    sleeps = SPEAKS + "time.sleep(60)"
    soon = dict.fromkeys(limits, 0.2)
    supervised(tmp_path, sleeps, result=False, last_attempt=False, **soon)
    (tmp_path / "messages").write_text("of the first attempt\n")
    _, end = supervised(tmp_path, sleeps, **limits)
    assert (end["status"], end["before_first_step"]) == ("failed", True)
    output = "no step yet; last lines: rank 1 waits | for rank 0"
    assert end["message"] == f"{message}; {output}"


def test_a_timeout_of_another_program_whose_steps_are_not_known_yet_is_a_result(tmp_path):
    _, end = supervised(tmp_path, "time.sleep(60)", time_limit_s=0.3, output=tmp_path)
    assert end["status"] == "timeout"


def test_a_rank_that_says_why_it_could_not_begin_is_tried_again(tmp_path):
    fields = f"status='failed', message='alone', t_utc={DATE!r}, before_first_step=True"
    says = f"write('run_end', {fields})\nsys.exit(1)"
    supervised(tmp_path, says, result=False, last_attempt=False)
    run, _ = supervised(tmp_path, says)
    assert [(e["message"], e["before_first_step"]) for e in ends(run.log)] == [("alone", True)]


SAMPLES = """
for number in range(1000):
    write("sample", t_s=number)
    time.sleep(0.02)
"""

LOGGED_STEPS = """
for number in range(1, 31):
    write("step", step=number, step_time_s=0.05, loss=2.0, warm_up=False)
    time.sleep(0.05)
"""


@pytest.mark.parametrize("samples", [SAMPLES, "time.sleep(60)"])
def test_a_trainer_that_takes_no_step_is_ended_as_hung_even_where_it_is_sampled(tmp_path, samples):
    _, end = supervised(tmp_path, samples, hang_limit_s=0.5)
    assert (end["status"], end["hung"]) == ("failed", True)
    assert end["message"] == "hung: no step for 0.5 s; no step yet; last lines: no message"


@pytest.mark.ci
def test_a_trainer_that_takes_steps_does_not_hang_however_long_it_takes(tmp_path):
    run, _ = supervised(tmp_path, LOGGED_STEPS + END, hang_limit_s=1.0)
    assert [end["status"] for end in ends(run.log)] == ["ok"]


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


@pytest.mark.ci
def test_a_copy_that_goes_on_after_another_has_ended_is_no_hang(tmp_path):
    run = copies(tmp_path, END, LOGGED_STEPS + END, hang_limit_s=1.0)
    assert supervisor.supervise(run)
    assert [end["status"] for log in run.logs for end in ends(log)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(END, "time.sleep(60)"), ("", LOGGED_STEPS * 40), (END, END + "time.sleep(60)")],
)
def test_a_copy_that_hangs_ends_the_run_and_is_told_from_the_other(tmp_path, first, second):
    run = copies(tmp_path, first, second, hang_limit_s=0.6)
    assert supervisor.supervise(run)
    end = ends(run.log)[-1]
    assert (end["status"], end["hung"]) == ("failed", True)
    assert end["message"].startswith("hung: no step for 0.6 s; copy 0: no step yet; copy 1: ")


def test_every_event_but_a_sample_is_a_sign_of_life(tmp_path):
    path = tmp_path / "train.jsonl"
    activity = costs.Activity(path, 0.0)
    assert activity.last_s(1.0) == 0.0  # no log yet
    log = event_log.EventLog(path)
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


def test_a_trainer_may_be_quiet_for_as_long_as_the_further_steps_of_a_window_take(tmp_path):
    path = tmp_path / "train.jsonl"
    activity, limit_s = costs.Activity(path, 0.0), 10.0
    log = event_log.EventLog(path)
    log.start()
    log.step(1, 0.5, 0.5, 2.0, 0.01, True, 1)
    assert not supervisor._hangs([activity], 5.0, limit_s)
    assert supervisor._hangs([activity], 15.1, limit_s)
    # From here on 21 steps are a window: 20 more, of half a second each by the step before.
    log.write("windows", step=1, steps_per_sync=21)
    assert not supervisor._hangs([activity], 20.0, limit_s)
    assert not supervisor._hangs([activity], 39.9, limit_s)
    assert supervisor._hangs([activity], 40.1, limit_s)
    # The window itself says that its steps were faster.
    window = event_log.window_fields([2.0] * 21, [0.01] * 21)
    log.step(22, 2.6, 0.1, 2.0, 0.01, False, 1, window)
    assert not supervisor._hangs([activity], 50.0, limit_s)
    assert not supervisor._hangs([activity], 61.9, limit_s)
    assert supervisor._hangs([activity], 62.1, limit_s)
