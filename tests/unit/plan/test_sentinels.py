"""sentinels: which finished runs a start repeats among those that it adds."""

import dataclasses
import shutil
from collections import Counter

import pytest

from dlbench.analysis import judge
from dlbench.campaign import doctor
from dlbench.plan import planning, run_command, sentinels
from dlbench.records import judgement, run_record, sessions
from dlbench.results import collect_runs
from dlbench.study import config, config_schema
from dlbench.study.runs import is_sentinel
from dlbench.tables import parquet_files, table_columns
from support.runs.made_runs import SETTINGS, finish

BLOCK = {"name": "block", "model": "lenet5", "dataset": "synthetic", "steps": 100,
         "warmup_steps": 1, "batch_per_device": 8}  # fmt: skip
TWO = {"strategy": "mirrored", "devices_per_node": 2}


def study(*blocks, repeats=3, **changes):
    named = [BLOCK | {"name": str(number)} | block for number, block in enumerate(blocks)]
    changes = {"sentinels": "auto", "repeats": repeats} | changes
    return config.study(SETTINGS | {"matrix": named} | changes)


def chosen(made, new, seconds=lambda run: 10.0):
    """What is chosen where all runs are finished but those for which `new` holds."""
    to_train = [run for run in made.runs if new(run)]
    took_s = {run.id: seconds(run) for run in made.runs if not new(run)}
    return sentinels.choose(made, to_train, took_s)


def batch(*sizes):
    return lambda run: run.batch_per_device in sizes


pytestmark = pytest.mark.usefixtures("project")


MANY = list(range(9, 21))  # of twelve new conditions, a fifth of whose time is enough for another


def test_of_each_number_of_devices_one_condition_is_repeated_as_often_as_it_was_done():
    made = study({"batch_per_device": [8, *MANY]}, {"batch_per_device": [8, *MANY], **TWO})
    found = chosen(made, batch(*MANY))
    assert Counter((r.devices, r.repeat) for r in found.runs) == {
        (devices, repeat): 1 for devices in (1, 2) for repeat in (1, 2, 3)
    }
    assert {run.sentinel for run in found.runs} == {1}
    assert "among the new, about 0.0167 node-hours, 8% of the session: " in found.message
    assert "lenet5 synthetic batch 8, mirrored on 2 devices (3 repeats)" in found.message


def test_sentinels_of_auto_take_at_most_a_fifth_of_the_session():
    made = study({"batch_per_device": [8, *MANY]}, {"batch_per_device": [8], **TWO})
    for count, left in ((12, 6), (8, 6), (7, 3), (4, 3), (3, 0), (1, 0)):
        some = study({"batch_per_device": [8, *MANY[:count]]}, {"batch_per_device": [8], **TWO})
        found = chosen(some, batch(*MANY))
        assert len(found.runs) == left, count
        assert len(found.runs) <= sentinels.SHARE * (len(found.runs) + 3 * count)
    assert found.message == (
        "no sentinels: 3 repeats of lenet5 synthetic batch 8, single on 1 device would take 50% of "
        "the session, more than 20%; `sentinels: 1` repeats it all the same"
    )
    assert len(chosen(made, batch(*MANY), lambda run: 10.0 * run.devices).runs) == 6
    short = chosen(some, batch(*MANY), lambda run: 1.0)
    assert not short.runs  # of what is new the time is not known: it is that of the finished


def test_bases_of_comparisons_come_first_then_bases_of_speedups_then_the_shortest():
    runs = {"batch_per_device": [8, 16], "precision": ["float32", "bfloat16"]}
    made = study(runs, sentinels=1, compare=[{"field": "precision", "base": "bfloat16"}])

    def new(run):
        return run.precision == "float32" and run.batch_per_device == 16

    (first,) = {r.combination for r in chosen(made, new, lambda r: r.batch_per_device).runs}
    assert (first.precision, first.batch_per_device) == ("bfloat16", 16)
    two = study({"batch_per_device": [8, 16]}, {"batch_per_device": [8, 16], **TWO}, sentinels=1)
    (first,) = {r.combination for r in chosen(two, batch(16), lambda r: 9.0 / r.devices).runs}
    assert (first.devices, first.batch_per_device) == (1, 8)
    three = study({"batch_per_device": [8, 9, 16]}, sentinels=1)
    found = chosen(three, batch(16), lambda r: 99 - r.batch_per_device)
    assert {run.batch_per_device for run in found.runs} == {9}


def test_how_many_conditions_or_which_may_be_said_and_take_the_time_that_they_take():
    sizes = {"batch_per_device": [8, 16, 32, 64]}
    assert len(chosen(study(sizes, sentinels=2), batch(64)).runs) == 6
    assert len(chosen(study(sizes, sentinels=1000), batch(64)).runs) == 9
    named = chosen(study(sizes, sentinels=[{"batch_per_device": [8, 32]}]), batch(64))
    assert {run.batch_per_device for run in named.runs} == {8, 32}
    none = chosen(study(sizes, sentinels=[{"batch_per_device": 64}]), batch(64))
    assert none.message == (
        "no sentinels: `sentinels` means no condition that has 1 finished repeat or more and none "
        "to be trained"
    )
    words = r"sentinels\[0\]: no run of this study has batch"
    with pytest.raises(config_schema.ConfigError, match=words):
        study(sizes, sentinels=[{"batch_per_device": 7}])


def test_auto_repeats_no_condition_that_is_too_seldom_finished_to_judge_drift():
    assert sentinels.MIN_REPEATS == judge.MIN_RUNS
    made = study({"batch_per_device": [8, *MANY]}, repeats=2)
    words = "compared with no condition that has 3 finished repeats or more"
    assert words in chosen(made, batch(*MANY)).message
    asked = study({"batch_per_device": [8, *MANY]}, repeats=2, sentinels=1)
    assert len(chosen(asked, batch(*MANY)).runs) == 2


def test_nothing_is_repeated_where_nothing_is_trained_or_finished_or_wanted():
    made = study({"batch_per_device": [8, *MANY]})
    assert chosen(made, lambda run: False) == sentinels.Chosen()
    assert chosen(made, lambda run: True) == sentinels.Chosen()
    none = study({"batch_per_device": [8, *MANY]}, sentinels="none")
    assert chosen(none, batch(*MANY)) == sentinels.Chosen()


def test_further_repeats_share_a_session_with_what_they_are_compared_with():
    made = study({"batch_per_device": [8, *MANY]}, repeats=4)
    found = chosen(made, lambda run: run.repeat == 4)
    assert found.message == "no sentinels: each condition to be trained has finished runs"
    asked = chosen(
        study({"batch_per_device": [8, 16]}, repeats=4, sentinels=1),
        lambda run: run.repeat == 4 and run.batch_per_device == 16,
    )
    assert {run.batch_per_device for run in asked.runs} == {8}


def test_a_condition_that_nothing_new_is_compared_with_is_not_repeated():
    other = {"model": "cnn12", "dataset": "digits", "batch_per_device": MANY}
    made = study({"batch_per_device": 8}, other)
    found = chosen(made, lambda run: run.model == "cnn12")
    assert not found.runs and "are compared with no condition" in found.message


def test_sentinels_are_spread_over_the_session():
    made = study({"batch_per_device": [8, *MANY]})
    to_train = [run for run in made.runs if run.batch_per_device != 8]
    repeated = chosen(made, batch(*MANY)).runs
    ordered = sentinels.order(made.runs, to_train, repeated, 1)
    places = [index for index, run in enumerate(ordered) if run.sentinel]
    assert [index // 14 for index in places] == [0, 1, 2]
    assert ordered == sentinels.order(made.runs, to_train, repeated, 1)
    one = [run for run in to_train if run.repeat == 2]
    ordered = sentinels.order(made.runs, one, repeated, 1)
    assert {run.sentinel for run in ordered[:13]} == {0} and len(ordered) == 42
    assert sum(run.sentinel for run in ordered[13:29]) == 3  # among the second repeats
    long = study({"batch_per_device": [8, *MANY]}, repeats=9)
    ordered = sentinels.order(long.runs, list(long.runs), repeated, 1)
    assert [index // 13 for index, run in enumerate(ordered) if run.sentinel][1] in (3, 4)


def test_each_session_has_sentinels_of_its_own():
    made = study({"batch_per_device": [8, *MANY]})
    run_record.folder("lenet5-synthetic-b8-single-1x1-s3-r1-0123456789").mkdir(parents=True)
    assert {run.sentinel for run in chosen(made, batch(*MANY)).runs} == {4}


def settings(*sizes, **changes):
    block = BLOCK | {"batch_per_device": list(sizes)}
    return SETTINGS | {"matrix": [block], "sentinels": 1} | changes


def finish_all(made):
    for number, run in enumerate(made.runs):
        finish(run, 10, made_from=judgement.made_from(run), at=100 * number)


def test_a_start_plans_its_sentinels_and_its_jobs_plan_the_same(monkeypatch):
    finish_all(config.study(settings(8)))
    # A finished study plans none.
    plan = planning.make_plan(settings(8), choose_sentinels=sentinels.choose)
    assert plan.to_train == [] and set(plan.runs) == {run.id for run in plan.study.runs}
    reads = Counter()
    read = run_record.read
    monkeypatch.setattr(run_record, "read", lambda path: reads.update([path]) or read(path))
    plan = planning.make_plan(settings(8, 16), choose_sentinels=sentinels.choose)
    assert max(reads.values()) == 1  # a record is read once, by what plans
    own = [run for run in plan.to_train if run.sentinel]
    assert len(plan.to_train) == 4 and len(own) == 2
    assert all(is_sentinel(run.id) for run in own)
    assert plan.study.runs == config.study(settings(8, 16)).runs
    assert any(line.startswith("sentinels: 2 runs") for line in plan.summary_lines)
    assert f"--label={own[0].label()}" in run_command.start_run_arguments(plan, own[0].id)
    positions = [plan.position(run.id) for run in plan.to_train]
    assert {*positions} == {"3/4", "4/4", "sentinel 1/2", "sentinel 2/2"}  # the study has 4 runs
    assert [plan.runs_after(run.id) for run in plan.to_train] == [3, 2, 1, 0]
    assert not sessions.sentinels()
    plan.start_session(sessions.new())
    of_session = {"choose_sentinels": sentinels.sentinels_of_session}
    assert planning.make_plan(settings(8, 16), **of_session).runs.keys() == plan.runs.keys()
    finish(own[0], 10, made_from=judgement.made_from(own[0]))
    later = planning.make_plan(settings(8, 16), **of_session)
    assert own[0].id not in later.pending and own[1].id in later.pending
    # As pods and check_site plan.
    assert not planning.make_plan(settings(8, 16)).sentinels.runs


def repeated(made, **changes):
    run = dataclasses.replace(made.runs[0], sentinel=1, **changes)
    finish(run, 10, made_from=judgement.made_from(run))
    return run


def test_the_table_of_runs_has_the_finished_ones_of_the_studys_conditions(capsys):
    made = config.study(settings(8))
    finish_all(made)
    good = repeated(made)
    repeated(config.study(settings(16)))
    unlike = dataclasses.replace(made.runs[0], sentinel=2)
    finish(unlike, 10, made_from={"code": "other", "data": "", "environment": ""})
    broken = dataclasses.replace(made.runs[0], sentinel=3)
    finish(broken, 10, made_from=judgement.made_from(broken))
    with open(run_record.folder(broken.id) / "train.jsonl", "a") as log:
        log.write("\n")
    started = run_record.folder(dataclasses.replace(made.runs[0], sentinel=4).id)
    started.mkdir()
    collect_runs.collect(made, "cpu", "tables")
    rows = [row for row in read("runs").to_pylist() if row["sentinel"]]
    assert [(row["run_id"], row["sentinel"], row["apart"]) for row in rows] == [
        (good.id, 1, "sentinel")
    ]
    output = capsys.readouterr().err
    assert "sentinel 2, repeat" in output and "changed since it was trained" in output
    assert "sentinel 3, repeat" in output and "bytes, found" in output
    assert "sentinel 4" not in output


def read(name):
    return parquet_files.read(f"tables/{name}.parquet", getattr(table_columns, name.upper()))


def test_sentinels_are_repeats_of_their_conditions_in_all_numbers_where_that_is_asked_for():
    compare = [{"field": "batch_per_device", "base": 8}]
    kept = config.study(settings(8, 16, compare=compare))
    asked = dataclasses.replace(kept, sentinels_are_repeats=True)
    finish_all(kept)
    base = next(run for run in kept.runs if run.batch_per_device == 8)
    good = dataclasses.replace(base, sentinel=1)
    finish(good, 10, made_from=judgement.made_from(good))
    failed = dataclasses.replace(base, sentinel=2)
    finish(failed, 10, status="failed", made_from=judgement.made_from(failed))
    counts = []
    for made in (kept, asked):
        collect_runs.collect(made, "cpu", "tables")
        rows = read("runs").to_pylist()
        assert len(read("coverage")) == len(kept.runs)
        again = {row["run_id"]: row["apart"] for row in rows if is_sentinel(row["run_id"])}
        assert again == {good.id: None if made is asked else "sentinel", failed.id: "sentinel"}
        (row,) = read("comparisons").to_pylist()
        speedups = {r["batch_per_device"]: r["runs"] for r in read("speedups").to_pylist()}
        counts.append((row["n_a"], row["n_b"], speedups[8]))
    (a, b, points), (a_asked, b_asked, points_asked) = counts
    assert (a, points) == (a_asked, b) and (b_asked, points_asked) == (b + 1, b + 1)
    assert (run_record.folder(good.id) / "steps.parquet").is_file()


def test_a_sentinel_of_another_parser_is_read_again(monkeypatch):
    made = config.study(settings(8))
    good = repeated(made)
    monkeypatch.setattr(run_record, "PARSER_VERSION", run_record.PARSER_VERSION + 1)
    ((run, record),) = sentinels.finished(made, judgement.Basis())
    assert run == good and record["parser_version"] == run_record.PARSER_VERSION
    # Results elsewhere have sentinels of their own.
    elsewhere = run_record.RESULTS.rename("elsewhere")
    assert list(sentinels.finished(made, judgement.Basis())) == []
    assert [run for run, _ in sentinels.finished(made, judgement.Basis(), elsewhere)] == [good]


def test_the_doctor_names_damaged_sentinels_and_calls_none_interrupted():
    made = config.study(settings(8))
    finish_all(made)
    good = repeated(made)
    log = run_record.folder(good.id) / "train.jsonl"
    assert [f.kind for f in doctor.of_runs(made)] == []
    started = run_record.folder(dataclasses.replace(good, sentinel=2).id)
    shutil.copytree(run_record.folder(good.id), started)
    (started / "run.json").unlink()
    (started / "train.jsonl").write_bytes(log.read_bytes()[:300])
    assert [f.kind for f in doctor.of_runs(made)] == []
    log.write_bytes(log.read_bytes()[:-5])
    (found,) = doctor.of_runs(made)
    assert found.kind == "sentinel" and "no start trains it again" in found.advice


def test_failed_sentinels_are_not_forgotten_with_failed_runs():
    made = config.study(settings(8))
    failed = dataclasses.replace(made.runs[0], sentinel=1)
    for run in (made.runs[0], failed):
        finish(run, 10, status="failed", made_from=judgement.made_from(run))
    assert run_record.ids_with_status(["failed"]) == [made.runs[0].id]
