"""Metrics that another program names: compared, repeated to a target, judged and shown."""

import csv
import json
import subprocess
import sys

import pytest

from support.campaigns.campaign import REPOSITORY
from support.trainers.other_trainer import NAMES_METRICS

BLOCK = {
    "name": "exchange", "trainer": "exchange", "framework": "nccl", "model": "exchange",
    "dataset": "none", "batch_per_device": 1, "steps": 10,
    "parameters": {"algorithm": ["ring", "tree"]},
    "must_reach": {"metrics": {"busbw_gb_per_s": 100}},
    "repeats": {"target_interval": 0.01, "min": 3, "max": 5, "metric": "busbw_gb_per_s"},
}  # fmt: skip
COMPARE = [
    {"field": "parameters.algorithm", "base": "ring", "metric": "busbw_gb_per_s"},
    {"field": "parameters.algorithm", "base": "ring", "metric": "latency_us"},
]


def rows(campaign, table):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def campaign(fresh):
    (fresh.folder / "names.py").write_text(NAMES_METRICS)
    return fresh


def configure(campaign, tree="90 GB/s 50", **changes):
    """A study of two algorithms: ring with 120 GB/s and 40 us, and tree."""
    script = (
        f"values='120 GB/s 40'; [ $1 = tree ] && values='{tree}'; "
        f"{sys.executable} names.py $0 exchange algorithm=$1 1 $values"
    )
    trainer = {
        "command": ["sh", "-c", script, "{folder}", "{algorithm}"],
        "log": "dlbench",
        "files": ["names.py"],
    }
    asked = {"compare": COMPARE, "figures": ["metrics"]} | changes
    campaign.configure(matrix=[BLOCK], trainers={"exchange": trainer}, **asked)


def test_metrics_of_another_program_are_compared_repeated_and_shown(campaign):
    configure(campaign)
    campaign.succeed("all", "report")
    runs = rows(campaign, "runs")
    # Three repeats suffice, and the fourth and fifth of each are skipped.
    assert sorted(row["status"] for row in runs) == ["ok"] * 6 + ["skipped"] * 4
    skipped = next(row["message"] for row in runs if row["status"] == "skipped")
    assert "not needed: the busbw_gb_per_s is known to 0." in skipped
    gates = {row["trainer_parameters"]: row["learning_gate"] for row in runs if row["host"]}
    assert gates["algorithm=ring"] == "reached"
    assert gates["algorithm=tree"].startswith("missed: busbw_gb_per_s 90")
    # Its log says nothing of steps, which is no difference from the study.
    assert not any("None" in row["notes"] for row in runs)
    metrics = rows(campaign, "metrics")
    assert len(metrics) == 12 and set(metrics[0]) == {"run_id", "name", "value", "unit", "better"}

    assert rows(campaign, "comparisons") == []
    bandwidth, latency = rows(campaign, "metric_comparisons")
    assert (bandwidth["metric"], bandwidth["unit"], bandwidth["better"]) == (
        "busbw_gb_per_s", "GB/s", "higher",
    )  # fmt: skip
    # By hand: 90 / 120 and 50 / 40, and per mille of scatter.
    assert float(bandwidth["ratio"]) == pytest.approx(0.75, rel=2e-3)
    assert float(latency["ratio"]) == pytest.approx(1.25, rel=2e-3)
    assert [row["verdict"] for row in (bandwidth, latency)] == ["worse", "worse"]
    assert float(bandwidth["value_a"]) == pytest.approx(90, rel=2e-3)

    svg = (campaign.folder / "results/figures/metrics.svg").read_text()
    assert "busbw_gb_per_s" in svg and "lower is better" in svg
    report = (campaign.folder / "results/report.html").read_text()
    assert 'id="table-metrics"' in report and 'id="table-metric_comparisons"' in report

    bounds = campaign.folder / "bounds.yaml"
    bounds.write_text(
        "references:\n"
        "  - match: {parameters.algorithm: ring}\n"
        "    busbw_gb_per_s: {value: 120, lower: -0.05, upper: null, unit: GB/s}\n"
        "  - match: {parameters.algorithm: tree}\n"
        "    latency_us: {value: 40, lower: null, upper: 0.05, unit: us}\n"
    )
    checked = compare(campaign, "results", "--bounds", "bounds.yaml", "--format", "json")
    assert [one["passed"] for one in json.loads(checked.stdout)] == [True, False]
    assert checked.returncode == 1


def test_units_that_differ_and_a_metric_that_no_run_has_are_reported(campaign):
    configure(campaign, tree="90000 MB/s 0", compare=[*COMPARE, COMPARE[0] | {"metric": "busbw"}])
    said = campaign.succeed()
    assert "metric busbw_gb_per_s: unit is 'MB/s' in" in said or "unit is 'GB/s' in" in said
    assert "not compared until all runs agree" in said
    assert "metric latency_us: 0 in" in said
    assert "no run has a metric 'busbw'" in said
    verdicts = [row["verdict"] for row in rows(campaign, "metric_comparisons")]
    assert verdicts == ["units differ", "no ratio", "no runs"]
    compared = compare(campaign, "results", "results", "--metric", "busbw_gb_per_s")
    assert compared.returncode == 2 and "such numbers are not compared" in compared.stderr


def compare(campaign, *arguments):
    return subprocess.run(
        [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "compare", *arguments],
        cwd=campaign.folder,
        text=True,
        capture_output=True,
        check=False,
    )
