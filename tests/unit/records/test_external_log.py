"""parse_run: the record of another program's run: copies, use, account, metrics."""

import dataclasses

import pytest

from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog, rank_path, utc_now
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run

RUN = Run(
    model="m", dataset="d", batch_per_device=8, steps=4, trainer="theirs", framework="numpy",
    copies_per_node=2,
)  # fmt: skip
DATE = "2026-11-27T10:00:{:02d}.000000Z"


def write(path, run, rate, starts=2, steps=(1, 2, 3, 4)):
    log = EventLog(path)
    if path.name == "train.jsonl":
        log.write("launch", t_utc=DATE.format(0), made_from={})
    log.write("begin", t_utc=DATE.format(starts))
    log.write("run_start", t_utc=DATE.format(starts), spec=dataclasses.asdict(run))
    for step in steps:
        log.write("step", step=step, step_time_s=1.0, loss=2.0, warm_up=step == 1)
    numbers = {"images_per_second": rate, "step_time_mean_s": 8 / rate}
    log.write("imported", kind="x", notes=[], numbers=numbers)
    used = {"cpu_time_s": 3.0, "peak_memory_bytes": 2**20, "energy_j": 50.0}
    used |= {"energy_source": "counter", "host_energy_j": 100.0, "node_energy_j": 400.0}
    ended = {"t_utc": DATE.format(starts + 10), "t_s": 10.0}
    log.write("run_end", status="ok", message="", **ended, **used)
    log.close()


def record(folder, run=RUN):
    return parse_run.content(run, parse_run.rank_logs(folder / "train.jsonl"))


def test_copies_have_a_mean_rate_and_the_energy_of_the_node_counts_once(tmp_path):
    write(tmp_path / "train.jsonl", RUN, 8.0)
    write(rank_path(tmp_path / "train.jsonl", 1), RUN, 10.0)
    content = record(tmp_path)
    summary = content["summary"]
    assert content["status"] == "ok"
    assert summary["images_per_second"] == 9 and summary["copies_images_per_second"] == [8, 10]
    assert summary["step_time_mean_s"] == pytest.approx(0.9)
    assert (summary["energy_j"], summary["host_energy_j"], summary["cpu_time_s"]) == (100, 100, 6)
    assert summary["node_energy_j"] == 400


def test_copies_that_ran_apart_are_unstable_and_one_without_a_log_fails_the_run(tmp_path):
    write(tmp_path / "train.jsonl", RUN, 8.0)
    content = record(tmp_path)
    assert (content["status"], content["message"]) == ("failed", "expected 2 copies, found 1 logs")
    write(rank_path(tmp_path / "train.jsonl", 1), RUN, 8.0, starts=8)
    content = record(tmp_path)
    assert content["status"] == "unstable" and "in 40% of their time only" in content["message"]


def test_the_account_has_start_and_steps_and_the_rest_as_other(tmp_path):
    run = dataclasses.replace(RUN, copies_per_node=1)
    write(tmp_path / "train.jsonl", run, 8.0)
    summary = record(tmp_path, run)["summary"]
    spent = {part: seconds for part, seconds in summary["account_s"].items() if seconds}
    assert spent == {"start": 2, "warm_up": 1, "steps": 3, "other": 6}
    assert summary["wall_s"] == 12 and summary["goodput"] == pytest.approx(4 / 12)
    ended = [summary[name] for name in ("duration_s", "started_at", "ended_at")]
    assert ended == [10, DATE.format(2), DATE.format(12)]


@pytest.mark.parametrize("steps", [(1, 4), (), range(1, 30)])
def test_steps_that_are_missing_or_took_longer_than_the_program_give_no_account(tmp_path, steps):
    run = dataclasses.replace(RUN, copies_per_node=1)
    write(tmp_path / "train.jsonl", run, 8.0, steps=steps)
    assert "account_s" not in record(tmp_path, run)["summary"]


METRICS_RUN = Run(model="exchange", dataset="none", batch_per_device=1, steps=1, trainer="theirs")
BANDWIDTH = {"name": "busbw_gb_per_s", "value": 230.5, "unit": "GB/s", "better": "higher"}


def named(folder, *metrics):
    """The record of a run whose program named these metrics."""
    log = EventLog(folder / "train.jsonl")
    log.start(spec=METRICS_RUN.values())
    for metric in metrics:
        log.write("metric", **metric)
    log.write("imported", kind="theirs", notes=[], numbers={})
    log.write("run_end", t_utc=utc_now(), status="ok", message="")
    log.close()
    parse_run.parse(METRICS_RUN, folder / "train.jsonl", folder / "run.json")
    return run_record.read(folder / "run.json")


def test_metrics_are_in_the_record_as_the_program_named_them_without_a_throughput_too(tmp_path):
    skew = {"name": "skew", "value": -1.5, "unit": "", "better": ""}
    found = named(tmp_path, BANDWIDTH, skew)
    assert (found["status"], found["summary"]["metrics"]) == ("ok", [BANDWIDTH, skew])


def test_a_run_with_neither_is_failed_and_one_with_a_metric_twice_is_damaged(tmp_path):
    found = named(tmp_path)
    message = "neither throughput nor a metric in its log"
    assert (found["status"], found["message"]) == ("failed", message)
    assert "metrics" not in found["summary"]
    # A metric that comes twice damages the log.
    with pytest.raises(LogError, match=r"train\.jsonl: metric busbw_gb_per_s twice in one run"):
        named(tmp_path / "twice", BANDWIDTH, BANDWIDTH)
