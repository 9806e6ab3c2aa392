"""importers/dlbench: what a program logs with dlbench_log.py becomes the log of its run."""

import dataclasses
import json
import math
import os
import sys
import time

import pytest

from dlbench import Error
from dlbench.imports import import_logs, train_external
from dlbench.imports.importers import dlbench
from dlbench.imports.train_external import Watching
from dlbench.log import event_log
from dlbench.records import costs, parse_run, run_record
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY

RUN = Run(
    model="mine", dataset="points", batch_per_device=8, steps=10, warmup_steps=2, trainer="theirs",
    framework="python",
)  # fmt: skip
LOOP = """
for number in range(10):
    with log.step():
        time.sleep(0.002)
        log.loss(1 / (number + 1))
"""
# Starts itself as two ranks; each does LOOP.
TWO_RANKS = """
import os, subprocess, sys
if "RANK" not in os.environ:
    command, size = [sys.executable, "-c", open("ranks.py").read()], {"WORLD_SIZE": "2"}
    environs = [os.environ | size | {"RANK": str(n)} for n in (0, 1)]
    ranks = [subprocess.Popen(command, env=environ) for environ in environs]
    sys.exit(max(rank.wait() for rank in ranks))
rank = int(os.environ["RANK"])
import dlbench_log, time
log = dlbench_log.Log()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    for name in [name for name in os.environ if "RANK" in name or name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "programs/logger"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path


def train(place, code, run=RUN, stated="", **options):
    """The record of a run that a program with such a loop trained."""
    log = place / "run/train.jsonl"
    events = event_log.EventLog(log)
    events.write("launch", t_utc=event_log.utc_now())
    events.close()
    code = f"import dlbench_log, sys, time\nlog = dlbench_log.Log({stated})\n{code}"
    train_external.train(run, [sys.executable, "-c", code], "dlbench", log, **options)
    parse_run.parse(run, log, log.with_name("run.json"))
    return run_record.read(log.with_name("run.json"))


def notes(record):
    return "; ".join(record["provenance"]["imported"]["notes"])


def test_a_run_has_the_steps_the_account_and_the_mfu_that_ours_have(place):
    code = f"{LOOP}log.evaluation(loss=0.5, top1=0.75)\nlog.checkpointed()"
    record = train(place, code, stated='model_flops_per_item=3e9, item_shape="4x4x1"')
    summary, log = record["summary"], place / "run/train.jsonl"
    assert (summary["steps_measured"], summary["burn_in_steps"], summary["top1"]) == (8, 2, 0.75)
    steps = [event for event in event_log.read(log) if event["event"] == "step"]
    measured_s = math.fsum(step["step_time_s"] for step in steps[2:])
    assert summary["images_per_second"] == pytest.approx(8 * 8 / measured_s)
    assert summary["final_loss"] == 0.1 and summary["model_flops_per_item"] == 3e9
    assert sum(summary["account_s"].values()) == pytest.approx(summary["wall_s"], abs=0.01)
    assert summary["account_s"]["steps"] == pytest.approx(measured_s, abs=1e-4)
    assert summary["start_s"] >= 0 and summary["import_s"] >= 0 and summary["goodput"] > 0
    assert record["provenance"]["item_shape"] == [4, 4, 1]
    assert record["provenance"]["device_model"]
    assert record["provenance"]["imported"]["kind"] == "dlbench"


def test_the_tokens_of_an_item_are_those_that_the_run_asks_for(place):
    run = dataclasses.replace(RUN, sequence_length=16)
    assert train(place, LOOP, run)["provenance"]["item_shape"] == [16]
    (place / "run/train.jsonl").unlink()
    record = train(place, LOOP, run, stated='item_shape="8"')
    assert record["status"] == "failed" and "item_shape" in record["message"]


def test_the_slower_of_two_ranks_counts(place):
    code = f"{TWO_RANKS}{LOOP}".replace("0.002", "0.002 + 0.01 * rank")
    (place / "ranks.py").write_text(code)
    record = train(place, code)
    assert (place / "run/train.rank1.jsonl").is_file()
    assert record["summary"]["step_time_mean_s"] >= 0.012
    assert record["status"] in ("ok", "unstable"), record["message"]
    imported = import_logs.import_paths([place / "run/output/logged.jsonl"], {"global_batch": 8})
    (row,) = imported.rows
    assert row["images_per_second"] == pytest.approx(record["summary"]["images_per_second"])


def test_what_two_ranks_used_counts_once_since_it_was_sampled_from_outside(place):
    code = f"{TWO_RANKS}{LOOP}"
    (place / "ranks.py").write_text(code)
    summary = train(place, code, watching=Watching(sample_every_s=0.1))["summary"]
    (end,) = [e for e in event_log.read(place / "run/train.jsonl") if e["event"] == "run_end"]
    assert summary["cpu_time_s"] == end["cpu_time_s"] > 0
    assert summary["peak_memory_bytes"] == end["peak_memory_bytes"] > 0
    assert summary["energy_unknown"] == "no GPUs"
    assert 0 < summary["duration_s"] < 5


def test_copies_have_logs_and_steps_of_their_own(place):
    run = dataclasses.replace(RUN, copies_per_node=2)
    output = place / "run/output"
    for number in (1, 0):
        command, log = train_external.of_copy([str(output)], place / "run/train.jsonl", number)
        assert command == [str(place / f"run/output{'-1' if number else ''}")]
        code = f"import dlbench_log, time\nlog = dlbench_log.Log()\n{LOOP}"
        code += f"log.metric('a', {number}, 'B')"
        train_external.train(run, [sys.executable, "-c", code], "dlbench", log)
    logs = parse_run.rank_logs(place / "run/train.jsonl")
    assert len(logs) == 2
    summary = parse_run.content(run, logs)["summary"]
    assert len(summary["copies_images_per_second"]) == 2 and summary["overlap"] == 0
    assert summary["metrics"] == [{"name": "a", "value": 0.5, "unit": "B", "better": ""}]


def test_of_ranks_that_log_different_windows_rank_0_counts_and_the_notes_say_so(place):
    code = f"{TWO_RANKS}log.window(1 + rank)\n{LOOP}"
    (place / "ranks.py").write_text(code)
    record = train(place, code)
    assert record["summary"]["steps_measured"] == 8
    assert "rank 1 logged 5 windows up to step 10, rank 0 10" in notes(record)
    assert not (place / "run/train.rank1.jsonl").exists()


def test_ranks_that_log_nothing_are_noted(place, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "1 of 4 ranks logged: a slower one would not be seen" in notes(train(place, LOOP))


def test_what_the_logger_remarks_is_in_the_notes_of_the_run(place):
    record = train(place, f"{LOOP}log.window(-1)", stated="shape=3")
    assert "rank 0: window: expected a number of steps, found -1" in notes(record)
    assert "it states shape 3, which is no column: left out" in notes(record)


def test_metrics_and_parts_of_a_step_are_metrics_of_the_run(place):
    code = LOOP.replace("range(10)", "log.data(range(10))")
    train(place, f"{code}log.metric('a', 1, 'B')\nlog.metric('a', 2, 'B', 'higher')")
    run = import_logs.read_run(place / "run/output", "dlbench", {})
    metrics = {one["name"]: one for source in run.sources for one in source.imported.metrics}
    assert metrics["a"] == {"name": "a", "value": 2.0, "unit": "B", "better": "higher"}
    wait = metrics["data_wait_s"]
    assert (wait["unit"], wait["better"]) == ("s", "lower") and 0 < wait["value"] < 0.002


@pytest.mark.parametrize(
    ("warmup_steps", "stated", "message"),
    [
        (2, "global_batch=16", "global_batch is 8 by the run, 16 by the log"),
        (10, "", "all 10 steps that it logged are warm-up (warmup_steps: 10)"),
        (2, "total_steps='many'", "expected total_steps to be a count, found 'many'"),
    ],
)
def test_a_program_whose_log_is_not_of_the_run_fails_it_with_the_reason(
    place, warmup_steps, stated, message
):
    record = train(place, LOOP, dataclasses.replace(RUN, warmup_steps=warmup_steps), stated)
    assert record["status"] == "failed" and message in record["message"]


LINES = [
    {"event": "begin", "t_utc": event_log.utc_now()},
    {"event": "run_start", "logger": "dlbench_log 1", "stated": {"total_steps": 9}}
    | {"t_utc": event_log.utc_now(), "spec": {"trainer": "x"}},
    {"event": "step", "step": 1, "t_s": 1.0, "step_time_s": 1.0, "warm_up": False},
]


def test_the_progress_of_a_run_is_seen_while_it_trains_unless_its_log_is_begun_anew(place):
    source, log = place / "logged.jsonl", place / "run/train.jsonl"
    source.write_text("\n".join(map(json.dumps, [*LINES, {}]))[:-1])  # a part of the last one
    made = dlbench.Relay(RUN, source, log, event_log.EventLog(log))
    for _ in range(2):
        made.copy()
        assert not made.trouble
        assert costs.describe(log).startswith("step 1/9, loss nan, 8 ")
    (place / "logged.jsonl").rename(place / "logged.attempt1.jsonl")
    (place / "logged.jsonl").write_text(json.dumps(LINES[0]))
    made.copy()
    assert "the program began this log anew: was it started again?" in made.trouble
    assert costs.latest(place / "run/train.jsonl").step == 1


def test_a_log_in_which_steps_are_missing_is_refused(place):
    train(place, LOOP)
    logged = place / "run/output/logged.jsonl"
    lines = logged.read_text().splitlines(keepends=True)
    logged.write_text("".join(line for line in lines if '"step": 5,' not in line))
    with pytest.raises(Error, match="expected step 5 with its t_s, found 6"):
        import_logs.import_paths([logged])


@pytest.mark.ci
def test_the_log_of_a_killed_program_is_imported_up_to_there(place):
    code = f"{LOOP.replace('0.002', '0.11')}import os\nos.kill(os.getpid(), 9)"
    with pytest.raises(Error, match="ended with exit code -9"):
        train(place, code)
    (row,) = import_logs.import_paths([place / "run/output/logged.jsonl"]).rows
    assert row["status"] == "failed" and row["steps_measured"] == 7
    assert row["message"] == "its log ends after step 9, without run_end: was it killed?"


def test_a_log_written_without_dlbench_is_imported_with_what_it_states(place, monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "programs/logger")
    import dlbench_log

    stated = {"global_batch": 32, "model": "mine", "framework": "numpy"}
    log = dlbench_log.Log("mine.jsonl", warmup_steps=1, **stated)
    for _ in range(5):
        with log.step():
            time.sleep(0.001)
    log.close()
    (row,) = import_logs.import_paths(["mine.jsonl"]).rows
    assert (row["model"], row["framework"], row["timing_source"]) == ("mine", "numpy", "dlbench")
    assert row["images_per_second"] == pytest.approx(32 / row["step_time_mean_s"])
    assert row["steps_measured"] == 4
