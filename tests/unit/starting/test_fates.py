"""fates: what ended runs without a result, in the words of their logs and of the scheduler."""

import os
import shutil

import pytest

from dlbench.campaign import status
from dlbench.log import event_log
from dlbench.records import run_record
from dlbench.starting import fates
from support.runs import ended_runs
from support.runs.ended_runs import ONE, TWO
from support.runs.made_runs import finish, quiet, resume, write

JOB = {"scheduler": "slurm", "id": "17"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Makes a Slurm that says something of its jobs; `asked` has the lines of its questions."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def make(answer):
        (tmp_path / "bin").mkdir(exist_ok=True)
        for name in ("sacct", "squeue"):
            path = tmp_path / "bin" / name
            path.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/asked\nprintf "{answer}"\n')
            path.chmod(0o755)
        return tmp_path / "asked"

    return make


def of_jobs(asked):
    """The questions about single jobs; what waits in the queue is another one."""
    lines = asked.read_text().splitlines() if asked.exists() else []
    return [line for line in lines if " --jobs " in line]


def numbers(study):
    counts = status.report(study)["combinations"]
    return {name: number for name, number in counts.items() if number and name != "total"}


def reasons(study):
    return [(r["state"], r["message"], r["runs"]) for r in status.report(study)["reasons"]]


def interrupted(run, **values):
    write(run, **values)
    quiet(run, 1000)


def test_an_interrupted_run_says_how_the_scheduler_ended_its_job(study, slurm):
    slurm("17|OUT_OF_MEMORY\\n18|OUT_OF_MEMORY\\n19|TIMEOUT\\n")
    for run, job_id in zip(study.runs, ("17", "18", "19"), strict=False):
        interrupted(run, job=JOB | {"id": job_id})
    assert numbers(study) == {"interrupted": 3, "pending": 1}
    assert reasons(study) == [
        ("interrupted", "Slurm ended jobs 17, 18: OUT_OF_MEMORY", 2),
        ("interrupted", "Slurm ended job 19: TIMEOUT", 1),
    ]


def test_the_scheduler_is_asked_once_for_all_jobs_and_not_at_all_without_any(study, slurm):
    asked = slurm("")
    interrupted(study.runs[0])
    finish(study.runs[1], 60, job=JOB)
    assert reasons(study) == [("interrupted", "its log stops without an end", 1)]
    assert of_jobs(asked) == []
    for run, job_id in zip(study.runs[2:], ("18", "17"), strict=True):
        interrupted(run, job=JOB | {"id": job_id})
    numbers(study)
    questions = of_jobs(asked)
    assert [line.split()[0] for line in questions] == ["squeue", "sacct"]
    assert all(line.endswith("--jobs 17,18") for line in questions)


def test_a_run_whose_job_lives_is_running_whatever_its_log_says(study, slurm):
    slurm("17|PENDING\\n18|RUNNING\\n")
    interrupted(study.runs[0], job=JOB)
    event_log.keep_aside(write(study.runs[1], job=JOB | {"id": "18"}))
    assert numbers(study) == {"running": 2, "pending": 2}
    waiting, again = status.report(study)["running"]
    assert (waiting["step"], waiting["message"]) == (2, "Slurm still has job 17: PENDING")
    assert (again["step"], again["message"]) == (None, "Slurm still has job 18: RUNNING")
    assert "for 3 s, Slurm still has job 17: PENDING" in "\n".join(
        status.lines(status.report(study))
    )


@pytest.mark.parametrize("name", ["slurm", "nosuchscheduler"])
def test_where_the_scheduler_does_not_know_the_log_alone_counts(study, slurm, name):
    slurm("")
    interrupted(study.runs[0], job=JOB | {"scheduler": name})
    assert reasons(study) == [("interrupted", "its log stops without an end", 1)]


def test_a_run_that_was_launched_twice_is_that_of_its_last_job(study, slurm):
    slurm("17|COMPLETED\\n18|NODE_FAIL\\n")
    run = study.runs[0]
    write(run, steps=10, job=JOB)
    log = resume(run, lines_kept=9, seconds=10, at=1000, job=JOB | {"id": "18"})
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    quiet(run, 1000)
    assert reasons(study) == [("interrupted", "Slurm ended job 18: NODE_FAIL", 1)]


def test_a_pending_run_says_what_ended_its_last_attempt(study, slurm):
    slurm("18|TIMEOUT\\n")
    killed, stopped, forgotten, _ = study.runs
    event_log.keep_aside(write(killed, 40, "failed", "hung", at=0))
    event_log.keep_aside(write(killed, at=100, job=JOB | {"id": "18"}))
    event_log.keep_aside(write(stopped))
    finish(forgotten, 20, "oom", "no memory")
    run_record.forget(forgotten.id)
    assert numbers(study) == {"pending": 4}
    assert set(reasons(study)) == {
        ("pending", "attempt 2: Slurm ended job 18: TIMEOUT", 1),
        ("pending", "attempt 1: its log stops without an end", 1),
        ("pending", "attempt 1: oom: no memory", 1),
    }


def test_the_log_that_a_killed_job_left_open_is_its_last_attempt(study, slurm):
    slurm("17|OUT_OF_MEMORY\\n")
    run = study.runs[0]
    event_log.keep_aside(write(run, 40, "failed", "hung"))
    log = write(run, at=100, steps=10, job=JOB)
    log.rename(log.with_name("train.open.jsonl"))
    assert reasons(study) == [("pending", "attempt 2: Slurm ended job 17: OUT_OF_MEMORY", 1)]
    assert status.report(study)["cost"]["used_node_hours"] == pytest.approx(47 / 3600)


SESSION = "a1"


def attempts(run, *job_ids, session=SESSION):
    for number, job_id in enumerate(job_ids):
        log = write(run, at=100 * number, job=JOB | {"id": job_id})
        text = log.read_text().replace(
            '{"event": "launch"', f'{{"event": "launch", "session": {{"id": "{session}"}}', 1
        )
        log.write_text(text)
        event_log.keep_aside(log)


def earlier(run, session=SESSION):
    return fates.EarlierAttempts(run_record.folder(run.id), session)


def test_a_preemption_uses_up_no_attempt_and_the_last_cause_is_shown_with_the_others(study, slurm):
    slurm("17|PREEMPTED\\n18|CANCELLED by 0\\n19|OUT_OF_MEMORY\\n")
    run = study.runs[0]
    attempts(run, "17", "18", "19")
    found = earlier(run)
    assert found.interrupted == 2
    description = (
        "attempt 1: Slurm ended job 17: PREEMPTED; attempt 2: Slurm ended job 18: CANCELLED by 0; "
        "attempt 3: Slurm ended job 19: OUT_OF_MEMORY"
    )
    message = f"its job 19 was ended: OUT_OF_MEMORY ({description})"
    assert found.verdict() == ("oom", message, False)
    assert ("pending", description, 1) in reasons(study)


def test_attempts_of_earlier_starts_count_no_longer(study, slurm):
    slurm("17|PREEMPTED\\n18|FAILED\\n")
    run = study.runs[0]
    attempts(run, "17", session="before")
    assert earlier(run).describe() == "" and earlier(run).interrupted == 0
    attempts(run, "18")
    assert earlier(run).describe() == "attempt 2: Slurm ended job 18: FAILED"
    assert earlier(run).verdict() is None and earlier(run).interrupted == 0


def test_the_schedulers_own_words_are_shown_and_kept(study, capsys):
    run = study.runs[0]
    fates.record_refusal(
        [run.id], "slurm", "sbatch: error: ask for less\nsbatch: error: Invalid account"
    )
    message = "Slurm refused its job: sbatch: error: ask for less; sbatch: error: Invalid account"
    assert capsys.readouterr().err == f"{run.id}: {message}\n"
    assert fates.describe_refusal(run_record.folder(run.id)) == message


def test_status_says_what_was_refused_and_how_often(study):
    refused, tried, _, _ = study.runs
    event_log.keep_aside(write(tried))
    for run in (refused, refused, tried):
        fates.record_refusal([run.id], "slurm", "Invalid qos")
    assert {(r["state"], r["message"]) for r in status.report(study)["reasons"]} == {
        ("pending", "Slurm refused its job, 2 times: Invalid qos"),
        ("pending", "Slurm refused its job: Invalid qos"),
    }


def test_a_note_is_taken_once(study):
    run = study.runs[0]
    fates.record_refusal([run.id], "sge", "qsub failed (exit code 1): job limit")
    found = fates.take_refusal(run_record.folder(run.id))
    assert (found["message"], found["times"]) == ("qsub failed (exit code 1): job limit", 1)
    assert fates.take_refusal(run_record.folder(run.id)) is None


def test_a_damaged_note_is_none(study):
    place = run_record.folder(study.runs[0].id)
    place.mkdir(parents=True)
    for content in ("", "[]", "{}", '{"by": 1}'):
        (place / fates.FILE).write_text(content)
        assert fates.describe_refusal(place) == "" and fates.take_refusal(place) is None


MESSAGES = run_record.RESULTS / "logs/train" / f"{TWO.id}.log"


def wanted(record):
    return record["run_id"] == TWO.id


@pytest.fixture
def place(project):
    """The folder of a run of two ranks whose job has just recorded it."""
    place = ended_runs.finish(TWO)
    MESSAGES.parent.mkdir(parents=True)
    MESSAGES.write_text("what it printed")
    fates.link_results(place / "train.jsonl", MESSAGES)
    return place


def contents(place):
    return {path.name: path.read_bytes() for path in place.iterdir()}


def remove_outputs(place):
    """As Snakemake does before it starts a job again."""
    for path in (place / "train.jsonl", place / "run.json", MESSAGES):
        path.unlink()


@pytest.mark.parametrize("links", [True, False])
def test_what_snakemake_removed_is_put_back_to_the_last_byte(place, links, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links here")

    if not links:
        shutil.rmtree(fates.FOLDER)
        monkeypatch.setattr(os, "link", refuse)
        fates.link_results(place / "train.jsonl", MESSAGES)
    before = contents(place)
    remove_outputs(place)
    assert fates.put_back(place / "train.jsonl", MESSAGES, wanted)
    assert contents(place) == before and MESSAGES.read_text() == "what it printed"


def test_what_stands_already_is_left_as_it_is(place):
    before = (place / "run.json").stat()
    assert fates.put_back(place / "train.jsonl", MESSAGES, wanted)
    assert (place / "run.json").stat().st_ino == before.st_ino


@pytest.mark.parametrize("name", ["run.json", "train.jsonl", "train.rank1.jsonl"])
def test_a_changed_byte_is_not_believed(place, name):
    remove_outputs(place)
    path = fates.FOLDER / TWO.id / name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content.replace(b"0.5", b"0.4", 1))
    assert not fates.put_back(place / "train.jsonl", MESSAGES, wanted)
    assert not (place / "run.json").exists()


def test_what_is_not_wanted_is_put_aside_and_not_lost(place):
    rank_0, rank_1 = (contents(place)[f"train{rank}.jsonl"] for rank in ("", ".rank1"))
    remove_outputs(place)
    assert not fates.put_back(place / "train.jsonl", MESSAGES, lambda record: False)
    fates.put_aside(place / "train.jsonl")
    assert contents(place) == {
        "train.attempt1.jsonl": rank_0,
        "train.attempt1.rank1.jsonl": rank_1,
    }
    assert not (fates.FOLDER / TWO.id).exists()


def test_the_end_of_a_start_puts_back_what_is_missing_and_leaves_no_second_names(place):
    before = contents(place)
    remove_outputs(place)
    other = ended_runs.finish(ONE)
    fates.link_results(other / "train.jsonl", MESSAGES)
    fates.settle_links()
    assert contents(place) == before and MESSAGES.read_text() == "what it printed"
    assert not fates.FOLDER.exists()
    fates.settle_links()


def test_a_start_forgets_what_stands_only(place):
    fates.link_results(ended_runs.finish(ONE) / "train.jsonl", MESSAGES)
    remove_outputs(place)
    fates.forget_links()
    assert [path.name for path in fates.FOLDER.iterdir()] == [TWO.id]


def test_a_run_that_is_forgotten_or_deleted_is_not_put_back(place):
    log = contents(place)["train.jsonl"]
    remove_outputs(place)
    run_record.forget(TWO.id)
    assert (place / "train.attempt1.jsonl").read_bytes() == log
    assert not (fates.FOLDER / TWO.id).exists()
    fates.link_results(ended_runs.finish(ONE) / "train.jsonl", MESSAGES)
    shutil.rmtree(run_record.folder(ONE.id))
    fates.forget_links()
    assert not fates.FOLDER.exists()


def test_the_tries_of_a_search_have_no_second_names(place):
    shutil.rmtree(fates.FOLDER)
    elsewhere = run_record.RESULTS / "batches/search/b8"
    shutil.copytree(place, elsewhere)
    fates.link_results(elsewhere / "train.jsonl", MESSAGES)
    assert not fates.FOLDER.exists()
