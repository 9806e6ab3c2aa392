"""external_log: what a record has of a run that another program trained."""

import pytest

from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run

RUN = Run(model="exchange", dataset="none", batch_per_device=1, steps=1, trainer="theirs")
BANDWIDTH = {"name": "busbw_gb_per_s", "value": 230.5, "unit": "GB/s", "better": "higher"}


def record(folder, *metrics, **numbers):
    """The record of a run whose program named these metrics and numbers."""
    log = event_log.EventLog(folder / "train.jsonl")
    log.start(spec=RUN.values())
    for metric in metrics:
        log.write("metric", **metric)
    log.write("imported", kind="theirs", notes=[], numbers=numbers)
    log.write("run_end", t_utc=event_log.utc_now(), status="ok", message="")
    log.close()
    parse_run.parse(RUN, folder / "train.jsonl", folder / "run.json")
    return run_record.read(folder / "run.json")


def test_metrics_are_in_the_record_as_the_program_named_them(tmp_path):
    skew = {"name": "skew", "value": -1.5, "unit": "", "better": ""}
    found = record(tmp_path, BANDWIDTH, skew, images_per_second=8.0)
    assert (found["status"], found["summary"]["metrics"]) == ("ok", [BANDWIDTH, skew])


def test_a_run_with_a_metric_needs_no_throughput(tmp_path):
    assert record(tmp_path, BANDWIDTH)["status"] == "ok"


def test_a_run_with_neither_is_failed_and_has_no_list_of_metrics(tmp_path):
    found = record(tmp_path)
    assert found["status"] == "failed"
    assert found["message"] == "neither throughput nor a metric in its log"
    assert "metrics" not in found["summary"]


def test_a_metric_that_comes_twice_damages_the_log(tmp_path):
    with pytest.raises(LogError, match=r"train\.jsonl: metric busbw_gb_per_s twice in one run"):
        record(tmp_path, BANDWIDTH, BANDWIDTH)
