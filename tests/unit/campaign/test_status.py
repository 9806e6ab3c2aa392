"""status: how a study stands, before, while and after it is computed."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dlbench.campaign import status
from dlbench.log import event_log
from dlbench.plan import standing
from dlbench.records import costs, parse_run, run_record
from dlbench.results import collect_runs
from dlbench.study import config, trainer_environments
from dlbench.tables import parquet_files, table_columns
from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS, date, finish, quiet, resume, write
from support.studies.found_batches import write_found
from support.studies.made_studies import BLOCK, study


def numbers(study):
    counts = status.report(study)["combinations"]
    return {name: number for name, number in counts.items() if number and name != "total"}


def reasons(study):
    return [(r["state"], r["message"], r["runs"]) for r in status.report(study)["reasons"]]


def shown(study, with_runs=False):
    return "\n".join(status.lines(status.report(study, with_runs=with_runs)))


def test_before_a_campaign_all_is_pending_and_its_cost_is_unknown(study):
    assert numbers(study) == {"pending": 4}
    cost = status.report(study)["cost"]
    assert cost["used_node_hours"] == 0
    assert (cost["left_node_hours"], cost["left_s"], cost["done_at"]) == (None, None, None)
    assert "left  unknown: no run of this study is completed yet" in shown(study)
    assert not Path("results").exists()
    # A failure says nothing of how long others will take.
    finish(study.runs[0], 60, "failed", "no")
    assert status.report(study)["cost"]["estimates"]["unknown"] == 3


def test_runs_that_are_done_or_failed_are_counted_by_how_they_ended(study):
    one, two, three, four = study.runs
    finish(one, 60)
    finish(two, 10, "oom", "tensor of 12 MB")
    finish(three, 30, "timeout", "stopped at time_limit_s, 30 s")
    finish(four, 20, "oom", "tensor of 345 MB")
    found = status.report(study)
    assert numbers(study) == {"ok": 1, "oom": 2, "timeout": 1}
    assert [(r["state"], r["runs"], r["message"]) for r in found["reasons"]] == [
        ("oom", 2, "tensor of 12 to 345 MB"),
        ("timeout", 1, "stopped at time_limit_s, 30 s"),
    ]
    assert found["cost"]["used_node_hours"] == pytest.approx(120 / 3600)
    assert found["cost"]["left_s"] == 0
    assert "failed            3   oom 2, timeout 1" in shown(study)
    assert "left" not in shown(study)


def test_what_is_left_is_estimated_from_the_runs_that_are_most_like_it(study):
    one = study.runs[0]
    finish(one, 60)
    alike = [run for run in study.runs if run.combination == one.combination]
    assert len(alike) == 2
    cost = status.report(study)["cost"]
    assert cost["left_s"] == 180
    assert cost["left_node_hours"] == pytest.approx(180 / 3600)
    assert (
        "estimated for 1 run from runs of the same combination, for 2 runs from runs of the same "
        "model, dataset and strategy"
    ) in " ".join(shown(study).split())


def test_a_running_run_says_how_far_it_is_and_its_steps_what_is_left(study):
    run = study.runs[0]
    write(run)
    found = status.report(study)
    (going,) = found["running"]
    assert (going["run_id"], going["step"], going["total_steps"]) == (run.id, 2, 100)
    assert going["images_per_second"] == 2 * run.batch_per_device
    assert going["left_s"] == pytest.approx(49)
    assert going["elapsed_s"] > 60
    # What it will take in all, the others will take, too.
    whole_s = going["elapsed_s"] + going["left_s"]
    assert found["cost"]["left_s"] == pytest.approx(going["left_s"] + 3 * whole_s)
    assert found["cost"]["estimates"]["unknown"] == 0
    assert numbers(study) == {"running": 1, "pending": 3}
    assert "step 2/100" in shown(study)


def test_a_run_that_has_not_begun_its_steps_is_estimated_from_others(study):
    one, two, *_ = study.runs
    finish(one, 60)
    write(two, steps=0)
    (going,) = status.report(study)["running"]
    assert (going["step"], going["loss"], going["left_s"]) == (None, None, 0.0)
    assert "no step yet" in shown(study)


def test_a_quiet_log_of_another_machine_is_running_as_long_as_it_may_be_quiet(study):
    run = study.runs[0]
    log = write(run, steps=10)
    quiet(run, 60)
    assert numbers(study)["running"] == 1
    quiet(run, 101)
    assert numbers(study) == {"interrupted": 1, "pending": 3}
    assert "interrupted  its log stops without an end" in shown(study)
    assert status.report(study)["cost"]["used_node_hours"] == pytest.approx(7 / 3600)
    event_log.rank_path(log, 1).write_text("")  # another rank is alive
    assert numbers(study)["running"] == 1


def test_a_quiet_log_of_this_machine_is_running_only_if_its_supervisor_is(study):
    run = study.runs[0]
    log = write(run, host=socket.gethostname())
    quiet(run, 60)
    assert numbers(study)["interrupted"] == 1
    waits = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", waits, "start_run.py", "--log", str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        process.stdout.readline()
        standing._supervised_here.cache_clear()
        quiet(run, 1000)
        assert numbers(study)["running"] == 1
    finally:
        process.communicate()
        standing._supervised_here.cache_clear()


def test_several_at_a_time_take_their_share_of_the_time_and_one_run_its_own(study):
    assert status.report(study)["cost"]["at_a_time"] == 1
    for run in study.runs[:2]:
        finish(run, 600)
    assert "sequentially 20 min" in shown(study)
    cost = status.report(study, at_a_time=2)["cost"]
    assert (cost["at_a_time"], cost["left_s"], cost["left_wall_s"]) == (2, 1200, 600)
    ends_in_s = event_log.seconds_between(event_log.utc_now(), cost["done_at"])
    assert ends_in_s == pytest.approx(600, abs=5)
    assert status.report(study, at_a_time=100)["cost"]["left_wall_s"] == 600
    message = "\n".join(status.lines(status.report(study, at_a_time=2)))
    assert "left  about 0.333 node-hours; 2 at a time 10 min, until" in message
    for run in study.runs[2:]:
        write(run)
    assert status.report(study)["cost"]["at_a_time"] == 2  # as many as are running


def test_a_run_that_did_not_learn_what_it_must_is_named_and_still_done(study):
    block = SETTINGS["matrix"][0] | {"dataset": "digits", "evaluate": "yes"}
    block |= {"must_reach": {"top1": 0.95}}
    gated = config.study(SETTINGS | {"matrix": [block]})
    one, two, three, four = gated.runs
    finish(one, 60, top1=0.81)
    finish(two, 60, top1=0.97)
    finish(three, 60)
    finish(four, 60, "failed", "hung")
    assert numbers(gated) == {"ok": 3, "failed": 1}
    assert reasons(gated) == [
        ("missed gate", "missed: top1 0.81, expected at least 0.95", 1),
        ("missed gate", "missed: top1 not evaluated, expected at least 0.95", 1),
        ("failed", "hung", 1),
    ]
    rows = status.report(gated, with_runs=True)["runs"]
    assert rows[0]["message"] == "missed: top1 0.81, expected at least 0.95"
    assert f"ok              1 min  {two.label()}" in shown(gated, with_runs=True).splitlines()
    assert (rows[0]["state"], rows[1]["message"]) == ("ok", "")
    assert "1  missed gate  missed: top1 0.81" in shown(gated)


def test_attempts_that_were_kept_aside_count_as_used(study):
    run = study.runs[0]
    log = write(run, 40, "failed", "hung")
    event_log.keep_aside(log)
    assert numbers(study) == {"pending": 4}
    finish(run, 60, at=100)
    cost = status.report(study)["cost"]
    assert cost["used_node_hours"] == pytest.approx(100 / 3600)
    assert cost["aside_node_hours"] == pytest.approx(40 / 3600)
    assert "in attempts kept aside" in shown(study)
    # An estimate is of one attempt.
    assert cost["estimates"]["same combination"] == 1
    assert cost["left_s"] == pytest.approx(180)


def test_a_run_that_went_on_from_a_checkpoint_counts_each_part_once(study):
    run = study.runs[0]
    log = write(run, steps=10)  # seven seconds
    earlier = log.read_bytes()
    event_log.keep_aside(log)
    log.write_bytes(earlier)
    resume(run, lines_kept=9, seconds=10, at=1000)
    parse_run.parse(run, log, log.with_name("run.json"))
    assert costs.parts(log) == {date(0): 5.0, date(1000): 10.0}
    cost = status.report(study)["cost"]
    assert cost["used_node_hours"] == pytest.approx(17 / 3600)
    assert cost["aside_node_hours"] == pytest.approx(2 / 3600)


def test_node_hours_are_those_of_all_nodes(study):
    block = SETTINGS["matrix"][0] | {"strategy": "multiworker", "nodes": 2, "launcher": "srun"}
    block |= {"repeats": 1, "batch_per_device": 8}
    two_nodes = config.study(SETTINGS | {"matrix": [block]})
    finish(two_nodes.runs[0], 60)
    cost = status.report(two_nodes)["cost"]
    assert cost["used_node_hours"] == pytest.approx(120 / 3600)


def test_other_code_makes_a_run_stale_and_it_keeps_its_cost(study):
    finish(study.runs[0], 60, made_from={"code": "another"})
    write(study.runs[1], 30, made_from={"code": "another"})
    assert numbers(study) == {"stale": 2, "pending": 2}
    messages = {reason["message"] for reason in status.report(study)["reasons"]}
    assert messages == {
        "code and data and environment changed since it was trained: envs/train/uv.lock"
    }
    # How long they took tells how long they will take.
    assert status.report(study)["cost"]["left_s"] == 180
    assert status.report(study)["cost"]["used_node_hours"] == pytest.approx(90 / 3600)


def test_a_damaged_record_is_unread_where_its_log_stands_and_stale_where_it_does_not(study):
    one, two, *_ = study.runs
    for run in (one, two):
        finish(run, 60)
        (run_record.folder(run.id) / "run.json").write_text("{")
    (run_record.folder(two.id) / "train.jsonl").write_text("not a log\n")
    assert numbers(study) == {"unread": 1, "stale": 1, "pending": 2}
    (reason,) = status.report(study)["reasons"]
    assert reason["message"].startswith("run.json: not a whole record")
    shutil.rmtree("results/runs")
    for run in study.runs:
        write(run, 60)  # without a record
    assert numbers(study) == {"unread": 4}
    assert "left" not in shown(study)  # reading costs nothing


def test_what_this_machine_cannot_do_is_skipped_before_and_after_it_is_recorded(study):
    block = SETTINGS["matrix"][0] | {
        "strategy": ["single", "mirrored"],
        "devices_per_node": [1, 4],
        "exclude": [
            {"strategy": "single", "devices_per_node": 4, "reason": "one device"},
            {"strategy": "mirrored", "devices_per_node": 1, "reason": "base is single"},
        ],
    }
    both = config.study(SETTINGS | {"matrix": [block]})
    assert numbers(both) == {"pending": 4, "skipped": 4, "excluded": 4}
    run = next(run for run in both.runs if run.devices == 4)
    finish(run, 0, "skipped", "needs 4 cpu devices per node; this site has 2")
    assert numbers(both) == {"pending": 4, "skipped": 4, "excluded": 4}
    reasons = {(r["state"], r["message"], r["runs"]) for r in status.report(both)["reasons"]}
    assert reasons == {
        ("skipped", "needs 4 cpu devices per node; this site has 2", 4),
        ("excluded", "block: one device", 2),
        ("excluded", "block: base is single", 2),
    }
    # Where it can be done now, it is.
    more = SETTINGS | {"matrix": [block], "site": SETTINGS["site"] | {"devices_per_node": 4}}
    counts = numbers(config.study(more))
    assert counts.get("stale") == 1 or os.cpu_count() < 4


def test_the_numbers_are_those_of_the_coverage_table(study):
    block = SETTINGS["matrix"][0] | {
        "strategy": "mirrored",
        "devices_per_node": [1, 4],
        "batch_per_device": [8, 16, 32],
        "exclude": [{"batch_per_device": 32, "devices_per_node": 1, "reason": "known"}],
    }
    mixed = config.study(SETTINGS | {"matrix": [block]})
    ends = iter([("ok", ""), ("oom", "no memory"), ("failed", "hung"), ("timeout", "long")])
    for run in mixed.runs:
        finish(run, 1, *(("skipped", "cannot") if run.devices == 4 else next(ends)))
    collect_runs.collect(mixed, "cpu", "tables")
    rows = parquet_files.read("tables/coverage.parquet", table_columns.COVERAGE).to_pylist()
    assert numbers(mixed) == Counter(row["status"] for row in rows)
    assert len(numbers(mixed)) == 6
    # Failures are named before what was left out.
    states = [state for state, *_ in reasons(mixed)]
    assert states.index("skipped") > states.index("failed") and states[-1] == "excluded"


def test_sessions_and_their_sentinels_are_said_where_there_are_several(study):
    finish(study.runs[0], 60)
    assert "sessions" not in shown(study)
    finish(dataclasses.replace(study.runs[0], sentinel=1), 60)
    write(dataclasses.replace(study.runs[0], sentinel=2))
    assert shown(study).splitlines()[-1] == (
        "  sessions  1, with 1 sentinel; drift between sessions: not known"
    )
    status.DRIFT.parent.mkdir(parents=True)
    rows = ["metric,verdict", *(f"images_per_second,{v}" for v in ("none", "slower", "none"))]
    status.DRIFT.write_text("\n".join([*rows, "busbw,worse", ""]))
    assert (
        shown(study)
        .splitlines()[-1]
        .endswith("drift between sessions: within the margin in 2, slower in 1 of 3 comparisons")
    )


def test_the_keys_of_the_json_stay(study):
    finish(study.runs[0], 60)
    write(study.runs[1])
    finish(study.runs[2], 60, "oom", "no memory")
    found = json.loads(json.dumps(status.report(study, with_runs=True), allow_nan=False))
    assert found["schema_version"] == 1 and status.report(study)["runs"] is None
    keys = {name: " ".join(value) for name, value in found.items() if isinstance(value, dict)}
    keys |= {name: " ".join(found[name][0]) for name in ("reasons", "running", "runs")}
    assert {"study", "site", "generated_at", "largest_batches"} | keys.keys() < found.keys()
    assert keys == {
        "combinations": "total ok unstable running pending interrupted stale unread failed oom "
        "timeout skipped excluded",
        "reasons": "state message runs",
        "running": "run_id label step total_steps loss images_per_second rate elapsed_s left_s "
        "message",
        "cost": "used_node_hours aside_node_hours left_node_hours left_s at_a_time left_wall_s "
        "done_at estimates",
        "sessions": "number sentinels verdicts",
        "runs": "run_id label state message duration_s node_hours",
    }


WIDEST = BLOCK | {"batch_per_device": "max", "steps": 5}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)


def lines(made):
    return list(status.lines(status.report(made)))


def test_a_search_is_named_before_it_began_while_it_goes_on_and_when_it_is_done(folder):
    made = study(WIDEST)
    ((search_id, search),) = made.searches.items()
    assert f"  to find  {search.label()}" in lines(made)
    assert "           the next start finds it before it trains the runs" in lines(made)
    for batch in (1, 2):
        place = search.folder / f"b{batch}"
        place.mkdir(parents=True)
        (place / "run.json").write_text("{}")
    assert "           2 tried so far; the next start goes on" in lines(made)
    write_found(search_id)
    (one,) = status.report(study(WIDEST))["largest_batches"]
    assert one == {
        "search": search_id, "label": search.label(), "state": "found", "batch_per_device": 48,
        "reason": "49 is too many", "tries": 2,
    }  # fmt: skip
    assert not any("largest batch" in line for line in lines(study()))
    assert "           49 is too many" in lines(study(WIDEST))


def test_the_program_lays_config_files_over_the_config(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    Path("site.yaml").write_text("site: {name: cluster, nodes: 8}\nrepeats: 1\n")
    Path("other.yaml").write_text("study: other\nrepeats: 3\n")
    finished = dlbench("status", "--configfile", "other.yaml", "--json")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    # A file about the site lies between the config and the study.
    assert (found["study"], found["site"]) == ("other", "cluster")
    assert found["combinations"]["pending"] == 6


@pytest.mark.ci
def test_watching_shows_it_again_and_again(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "status"]
    command += ["--watch", "0.01", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        shown_ids = [json.loads(process.stdout.readline())["study"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert shown_ids == ["test"] * 3
    assert process.returncode == 0
    assert (
        "--jobs: expected a whole number of at least 1" in dlbench("status", "--jobs", "0").stderr
    )
    assert "--watch: expected a number above 0" in dlbench("status", "--watch", "0").stderr


def test_a_bad_config_ends_the_program_with_its_mistake(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS | {"repeats": 0}))
    finished = dlbench("status")
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: repeats: expected a whole number from 1 to 10000, or")
