"""Metrics that another program names: compared, repeated to a target, judged and shown."""

import json
import sys

import pytest

from support.trainers.other_trainer import NAMES_METRICS

BLOCK = {
    "name": "exchange", "trainer": "exchange", "framework": "nccl", "model": "exchange",
    "dataset": "none", "batch_per_device": 1, "steps": 10,
    "parameters": {"algorithm": ["ring", "tree"]},
    "must_reach": {"metrics": {"busbw_gb_per_s": 100}},
}  # fmt: skip
REPEATS = {"target_interval": 0.01, "min": 3, "max": 5, "metric": "busbw_gb_per_s"}
COMPARE = [
    {"field": "parameters.algorithm", "base": "ring", "metric": name}
    for name in ("busbw_gb_per_s", "latency_us", "busbw")
]
# Ring has 120 GB/s and 40 us.
SHELL = (
    "values='120 GB/s 40'; [ $1 = tree ] && values='90 GB/s 50'; "
    f"{sys.executable} names.py $0 exchange algorithm=$1 1 $values"
)
TRAINER = {
    "command": ["sh", "-c", SHELL, "{folder}", "{algorithm}"], "log": "dlbench",
    "files": ["names.py"],
}  # fmt: skip
BOUNDS = """references:
  - match: {parameters.algorithm: ring}
    busbw_gb_per_s: {value: 120, lower: -0.05, upper: null, unit: GB/s}
  - match: {parameters.algorithm: tree}
    latency_us: {value: 40, lower: null, upper: 0.05, unit: us}
"""


def test_metrics_of_another_program_are_compared_repeated_and_shown(fresh):
    (fresh.folder / "names.py").write_text(NAMES_METRICS)
    study = {"trainers": {"exchange": TRAINER}, "compare": COMPARE, "figures": ["metrics"]}
    fresh.configure(matrix=[BLOCK | {"repeats": REPEATS}], **study)
    assert "no run has a metric 'busbw'" in fresh.succeed("all", "report")
    runs = fresh.rows()
    # Three repeats suffice, and the fourth and fifth of each are skipped.
    assert sorted(row["status"] for row in runs) == ["ok"] * 6 + ["skipped"] * 4
    skipped = {row["run_id"]: row["message"] for row in runs if row["status"] == "skipped"}
    assert all("not needed: the busbw_gb_per_s is known to 0." in m for m in skipped.values())
    gates = {row["trainer_parameters"]: row["learning_gate"] for row in runs if row["host"]}
    assert gates["algorithm=ring"] == "reached"
    assert gates["algorithm=tree"].startswith("missed: busbw_gb_per_s 90")
    # Its log says nothing of steps, which is no difference from the study.
    assert not any("None" in row["notes"] for row in runs)
    metrics = fresh.rows("metrics")
    assert len(metrics) == 12 and set(metrics[0]) == {"run_id", "name", "value", "unit", "better"}

    bandwidth, latency, unknown = fresh.rows("comparisons")
    assert [bandwidth[key] for key in ("unit", "better")] == ["GB/s", "higher"]
    # By hand: 90 / 120 and 50 / 40, and per mille of scatter.
    assert float(bandwidth["ratio"]) == pytest.approx(0.75, rel=2e-3)
    assert float(latency["ratio"]) == pytest.approx(1.25, rel=2e-3)
    verdicts = [row["verdict"] for row in (bandwidth, latency, unknown)]
    assert verdicts == ["worse", "worse", "no runs"]
    assert float(bandwidth["value_a"]) == pytest.approx(90, rel=2e-3)

    svg = (fresh.folder / "results/figures/metrics.svg").read_text()
    assert "busbw_gb_per_s" in svg and "lower is better" in svg
    report = (fresh.folder / "results/report.html").read_text()
    assert 'id="table-metrics"' in report and 'id="table-comparisons"' in report

    (fresh.folder / "bounds.yaml").write_text(BOUNDS)
    bounds = ("--bounds", "bounds.yaml", "--format", "json")
    checked = fresh.dlbench("compare", "results", *bounds, code=1)
    assert [one["passed"] for one in json.loads(checked)] == [True, False]

    assert fresh.scheduled() == {}
    fresh.configure(matrix=[BLOCK | {"repeats": REPEATS | {"target_interval": 1e-9}}], **study)
    assert fresh.scheduled()["train"] == sorted(skipped)
