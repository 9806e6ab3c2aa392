"""start_run.py in a job that is started again: what it finds, and how its attempts count."""

import json
import os
from pathlib import Path

import pytest

from dlbench.study.runs import Run
from support.programs import in_process
from support.trainers.watched_runs import DATE, PYTHON

pytestmark = pytest.mark.usefixtures("impatient")

SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 3}


def outcome(folder):
    record = json.loads((folder / "run.json").read_text())
    return record["status"], record["message"]


# A job that counts as failed though its run has ended is started again, without its outputs.


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """A function that starts a job of the run as Snakemake does: outputs are removed first."""
    monkeypatch.chdir(tmp_path)
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


def test_a_run_that_was_recorded_of_other_code_is_trained_again_and_put_aside(jobs):
    jobs(trains(jobs.log, 1), '--made-from={"code": "abc"}')
    before = jobs.log.read_bytes()
    jobs(trains(jobs.log, 2), '--made-from={"code": "def"}')
    assert outcome(jobs.log.parent) == ("oom", "2")
    assert (jobs.log.parent / "train.attempt1.jsonl").read_bytes() == before


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
