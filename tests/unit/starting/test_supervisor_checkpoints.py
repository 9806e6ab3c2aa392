"""supervisor: runs that are stopped with a checkpoint, and go on from one."""

import json
import os
import re
import signal
import threading
import time

import pytest

from dlbench.log import event_log
from dlbench.starting import processes, supervisor
from dlbench.trainer import checkpoints
from support.trainers.watched_runs import END, ends, watched

pytestmark = pytest.mark.usefixtures("impatient")

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
