"""What runs must reach: learning gates, and intervals that end repeats."""

import numpy as np
import pytest
from scipy import stats

from dlbench.analysis import estimates
from dlbench.plan import planning, run_command
from dlbench.records import judgement, parse_run, run_record
from dlbench.study import config, goals
from dlbench.study.config_schema import ConfigError
from support.runs.made_runs import SETTINGS, write


@pytest.mark.parametrize(
    ("must_reach", "found", "verdict"),
    [
        (None, {"top1": 0.1}, None),
        ({}, {"top1": 0.1}, None),
        ({"top1": 0.9}, {"top1": 0.9}, "reached"),
        ({"iou": 0}, {"iou": 0.0}, "reached"),
        ({"perplexity": 120}, {"perplexity": 120.0}, "reached"),
        ({"final_loss": 0.5}, {"final_loss": -1.0, "top1": 0.0}, "reached"),
        ({"top1": 0.9}, {"top1": 0.89996}, "missed: top1 0.9, expected at least 0.9"),
        ({"iou": 0.5}, {"iou": 0.0}, "missed: iou 0, expected at least 0.5"),
        ({"perplexity": 9}, {"perplexity": 9.5}, "missed: perplexity 9.5, expected at most 9"),
        ({"top1": 0.9}, {"top1": None}, "missed: top1 not evaluated, expected at least 0.9"),
        (
            {"top1": 0.9, "final_loss": 1, "top5": 0.5},
            {"top1": 0.123456, "final_loss": 2.0, "top5": 0.6},
            "missed: top1 0.1235, expected at least 0.9; final_loss 2, expected at most 1",
        ),
    ],
)
def test_a_score_is_met_or_missed_by_what_was_found(must_reach, found, verdict):
    assert goals.gate(must_reach, found) == verdict


BANDWIDTH = {"name": "busbw", "value": 95.0, "unit": "GB/s", "better": "higher"}


@pytest.mark.parametrize(
    ("changes", "bound", "verdict"),
    [
        ({}, 95, "reached"),
        ({}, 100, "missed: busbw 95, expected at least 100"),
        ({"better": "lower"}, 100, "reached"),
        ({"better": "lower"}, 90, "missed: busbw 95, expected at most 90"),
        ({"better": ""}, 90, "missed: busbw 95: whether more is better is not known"),
        ({"name": "other"}, 90, "missed: the program gave no busbw"),
    ],
)
def test_a_metric_has_a_bound_in_its_direction(changes, bound, verdict):
    summary = {"metrics": [BANDWIDTH | changes]}
    assert goals.gate({"metrics": {"busbw": bound}}, summary) == verdict


REPEATS = {"target_interval": 0.05, "min": 3, "max": 6}
TARGET = goals.Target(0.05, 3)


def settings(**changes):
    block = SETTINGS["matrix"][0] | {"batch_per_device": 8}
    return SETTINGS | {"repeats": REPEATS | changes, "matrix": [block]}


@pytest.fixture
def runs(project):
    """The six repeats of a combination, in their order."""
    return sorted(config.study(settings()).runs, key=lambda run: run.repeat)


def finish(run, images_per_second=100.0, status="ok", **metrics):
    """A record of a run with that throughput and these metrics."""
    log = write(run, 100.0, status)
    place = log.with_name("run.json")
    parse_run.parse(run, log, place)
    record = run_record.read(place)
    record["summary"]["images_per_second"], record["status"] = images_per_second, status
    named = [{"name": n, "value": value, "unit": "", "better": ""} for n, value in metrics.items()]
    record["summary"]["metrics"] = named
    record.pop("files"), record.pop("record_version"), record.pop("parser_version")
    run_record.write(place, record, [log])


def not_needed(runs):
    return judgement.not_needed([run.id for run in runs], TARGET)


def test_the_half_width_is_that_of_the_tables_interval_by_students_t():
    expected = stats.t.ppf(0.975, range(1, len(goals.T_975) + 1))
    assert np.allclose(goals.T_975, expected, atol=6e-5)
    values = [100.0, 103.0, 98.0, 101.0]
    found = estimates.mean(values)
    assert judgement.half_width(values) == pytest.approx(found.high / found.value - 1, rel=1e-4)
    assert judgement.half_width([100.0]) is None


def test_a_wide_interval_needs_another_and_what_is_reached_later_stays_reached(runs):
    for run, value in zip(runs, [100.0, 110.0, 90.0], strict=False):
        finish(run, value)
    assert not_needed(runs[:3]) is None
    finish(runs[3], 100.0)
    assert not_needed(runs[:4]) is None
    for run in runs[4:]:
        finish(run, 100.0)
    assert "after" not in (not_needed(runs[:3]) or "")


def test_where_no_repeat_ends_well_no_further_one_is_tried(runs):
    for run in runs[:3]:
        finish(run, 0.0, "oom")
    assert not_needed(runs[:3]) == "not needed: none of the first 3 repeats completed"


def test_repeats_that_are_not_needed_are_skipped_and_a_narrower_interval_needs_them_again(runs):
    for run, value in zip(runs, [100.0, 101.0, 100.5], strict=False):
        assert not_needed(runs[:3]) is None
        finish(run, value)
    assert not_needed(runs[:3]) == (
        "not needed: the throughput is known to 1.24% after 3 repeats, target_interval is 5.00%"
    )
    plan = planning.make_plan(settings())
    assert sorted(plan.skipped) == sorted(run.id for run in runs[3:]) and not plan.to_train
    narrower = planning.make_plan(settings(target_interval=0.001))
    assert sorted(run.id for run in narrower.to_train) == sorted(run.id for run in runs[3:])
    more = planning.make_plan(settings(min=4))
    assert set(more.to_train) == set(runs[3:])  # when the fourth is there, the others are not
    fixed = config.study(settings() | {"repeats": 6})
    assert {run.id for run in fixed.runs} == {run.id for run in runs}


def test_a_repeat_waits_for_those_before_it_which_decide_whether_it_is_needed(runs):
    finish(runs[0])
    plan = planning.make_plan(settings())
    needed, more = (plan.training_inputs(runs[number].id) for number in (2, 4))
    assert not any(path.endswith("/run.json") for path in needed)
    before = [f"results/runs/{run.id}/run.json" for run in runs[:4]]
    assert [path for path in more if path.endswith("/run.json")] == before
    assert "--unless=" in " ".join(run_command.start_run_arguments(plan, runs[4].id))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min": 7}, "repeats: min 7 is above max 6"),
        ({"target_interval": 0}, "repeats.target_interval: expected more than 0, found 0"),
        ({"max": 40}, "repeats.max: expected at most 31, found 40"),
        ({"often": 1}, "'often'; there are: max, metric, min, target_interval"),
    ],
)
def test_repeats_that_cannot_be_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        config.study(settings(**changes))


def test_intervals_after_stopping_cover_nearly_what_they_say():
    """Of 4 000 simulated combinations with 2 % scatter: at least 90 % instead of 95 %."""
    random = np.random.default_rng(1)
    logs = random.normal(0.0, 0.02, (4000, 10))
    covered = []
    for row in logs:
        for number in range(3, 11):
            if number == 10 or judgement.half_width(np.exp(row[:number])) <= 0.02:
                break
        estimate = estimates.mean(np.exp(row[:number]))
        covered.append(estimate.low <= 1.0 <= estimate.high)
    assert 0.88 <= np.mean(covered) <= 0.97


def test_the_interval_may_be_that_of_a_metric(runs):
    target = goals.Target(0.05, 3, "busbw")
    ids = [run.id for run in runs[:3]]
    for run, rate, value in zip(runs, [100.0, 150.0, 50.0], [100.0, 101.0, 100.5], strict=False):
        finish(run, rate, busbw=value)
    assert judgement.not_needed(ids, goals.Target(0.05, 3)) is None
    assert judgement.not_needed(ids, target) == (
        "not needed: the busbw is known to 1.24% after 3 repeats, target_interval is 5.00%"
    )
    assert judgement.not_needed(ids, goals.Target(0.05, 3, "latency")) == (
        "not needed: none of the first 3 repeats completed with a latency above 0"
    )


def test_a_metric_is_in_the_command_only_where_the_config_names_one(runs):
    finish(runs[0])
    commands = [
        " ".join(run_command.start_run_arguments(planning.make_plan(made), runs[4].id))
        for made in (settings(), settings(metric="tokens_per_second"))
    ]
    assert ['"metric"' in command for command in commands] == [False, True]
