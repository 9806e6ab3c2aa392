"""refusals: what a scheduler says of jobs that it does not take."""

from dlbench.campaign import status
from dlbench.log import event_log
from dlbench.records import run_record
from dlbench.starting import fates
from support.runs.made_runs import write


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
