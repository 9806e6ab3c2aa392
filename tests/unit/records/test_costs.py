"""costs: what runs took, what others like them will take, and that of a dry run in words."""

import dataclasses
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from dlbench.log import event_fields, event_log
from dlbench.records import costs, run_record
from support.runs.made_runs import finish, resume, write


def alike(study):
    """Two repeats of one combination, then those of another."""
    return sorted(study.runs, key=lambda run: (run.batch_per_device, run.repeat))


def test_before_the_first_run_has_ended_only_the_limit_is_known(study):
    found = costs.estimates(study.runs)
    assert found.of(study.runs[0]) == (None, "unknown")
    assert costs.describe_forecast(study.runs, found, 900) == (
        "cost: 4 runs to train, at most 1 node-hours by time_limit_s; "
        "an estimate follows from the first runs"
    )
    assert not Path("results").exists()


def test_the_logs_of_runs_that_ended_well_tell_what_others_will_take(study):
    one, again, other, _ = alike(study)
    finish(one, 1800)
    found = costs.estimates(study.runs)
    assert found.of(again) == (1800, "same combination")
    assert found.of(other) == (1800, "same model, dataset and strategy")
    assert found.of(dataclasses.replace(other, model="cnn12")) == (1800, "all runs")
    assert costs.describe_forecast(alike(study)[1:], found, 3600) == (
        "cost: 3 runs to train, about 1.5 node-hours (estimated for 1 run from runs of the same "
        "combination, for 2 runs from runs of the same model, dataset and strategy), at most 3 "
        "node-hours by time_limit_s"
    )
    assert costs.describe_forecast([], found, 900) == "cost: no run to train"


def test_the_most_alike_tell_and_of_several_their_mean(study):
    one, again, other, fourth = alike(study)
    for run, seconds in ((one, 100), (again, 200), (other, 900)):
        finish(run, seconds)
    found = costs.estimates(study.runs)
    assert found.of(one) == (150, "same combination")
    assert found.of(fourth) == (900, "same combination")


def test_a_run_on_several_nodes_costs_that_of_each(study):
    run = dataclasses.replace(study.runs[0], nodes=4)
    forecast = costs.describe_forecast([run], costs.Estimates([run], lambda _: 900.0), 1800)
    assert "about 1 node-hours (estimated for 1 run from runs of the same combination)" in forecast
    assert "at most 2 node-hours" in forecast


def test_a_run_that_was_stopped_takes_no_less_than_it_had_taken_by_then(study):
    one, again, other, _ = alike(study)
    finish(one, 9)
    finish(again, 25, status="timeout")
    write(other)  # of a start that was interrupted
    found = costs.estimates(study.runs)
    assert found.of(again) == (25, "same combination")
    assert found.of(other) == (9, "same model, dataset and strategy")
    forecast = costs.describe_forecast([again], found, 60)
    assert forecast.startswith("cost: 1 run to train, about 0.00694 ")


def test_failures_and_unfinished_logs_tell_nothing(study):
    one, again, other, fourth = alike(study)
    for run, status in ((one, "failed"), (again, "oom"), (other, "timeout")):
        write(run, 60, status)
    write(fourth)
    assert costs.estimates(study.runs).of(one) == (None, "unknown")


def test_a_log_tells_without_its_record_and_after_its_code_has_changed(study):
    one, again, *_ = alike(study)
    write(one, 60, made_from={"code": "another"})
    assert costs.estimates(study.runs).of(again) == (60, "same combination")


def test_a_run_that_was_interrupted_for_long_is_estimated_as_in_one_piece(study):
    run = study.runs[0]
    write(run, steps=10)
    resume(run, lines_kept=9, seconds=10, at=100_000)
    log = run_record.folder(run.id) / "train.jsonl"
    assert costs.full_duration_s(log) == pytest.approx(2 + 3 + 8)


def test_an_end_without_a_time_of_its_own_is_told_by_the_dates(study):
    path = write(study.runs[0])
    log = event_log.EventLog(path)
    log.write("run_end", status="ok", message="", t_utc="2026-01-01T00:00:30.000000Z")
    log.close()
    assert costs.full_duration_s(path) == 30


def test_what_a_run_that_goes_on_has_used_lasts_until_now():
    past = "2026-01-01T00:00:00.000000Z"
    now = datetime.now(timezone.utc)
    recent, ahead = (
        (now + timedelta(seconds=seconds)).strftime(event_fields.UTC_FORMAT)
        for seconds in (-50, 3600)
    )
    found = costs.until_now({past: 7.0, recent: 9.0})
    assert found == {past: 7.0, recent: pytest.approx(50, abs=5)}
    # The clock may have been set back since.
    assert costs.until_now({ahead: 9.0}) == {ahead: 9.0}
    assert costs.until_now({}) == {}


def test_no_log_is_read_before_an_estimate_is_asked_for_and_then_those_alike_only(study):
    asked = []
    found = costs.Estimates(study.runs, lambda run: asked.append(run.id) or 60.0)
    assert not asked
    one, again, *_ = alike(study)
    assert found.of(one) == found.of(one) == (60.0, "same combination")
    assert sorted(asked) == sorted([one.id, again.id])


def test_of_a_long_log_only_the_ends_are_read(study):
    def bytes_read():
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])

    log = write(study.runs[0], 60, steps=100)
    *lines, last = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines, lines[-1] * 50_000, last]))
    before = bytes_read()
    assert costs.full_duration_s(log) == 60
    assert bytes_read() - before < log.stat().st_size / 20


def test_what_runs_need_is_summed_by_rule_from_snakemakes_benchmarks(tmp_path):
    folder = tmp_path / "benchmarks"
    texts = {
        "convert_dataset/a.tsv": "s\th:m:s\n2.5\t0:00:02\n",
        "convert_dataset/b.tsv": "s\n1.5\n",
        "draw_figure/loss.tsv": "s\n9\n",
        "make_image/damaged.tsv": "\x00",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert costs.prepared_s(tmp_path) == {"convert_dataset": 4.0, "make_image": 0.0}
    assert folder / "draw_figure/loss.tsv" not in costs.benchmarks(tmp_path)
    assert costs.prepared_s(tmp_path / "nothing") == {}
