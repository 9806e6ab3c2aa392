"""The framework is an axis: its runs have their environment, and are compared or skipped."""

import csv

import pytest
from campaign import REPOSITORY

needs_jax = pytest.mark.skipif(
    not (REPOSITORY / "envs/jax/.venv/bin/python").exists(),
    reason="workflow_scripts/make_environment.py envs/jax makes the environment",
)
BLOCK = {
    "name": "both",
    "framework": ["tensorflow", "jax"],
    "model": "lenet5",
    "dataset": "digits",
    "batch_per_device": 16,
    "warmup_steps": 1,
    "steps": 3,
}


def rows(campaign, table):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


@needs_jax
def test_a_study_trains_with_two_frameworks_and_compares_them(fresh):
    compared = [{"field": "framework", "base": "tensorflow"}]
    gate = {"evaluate": "yes", "must_reach": {"top1": 0.999}}  # in three steps
    block = BLOCK | gate | {"strategy": ["single", "mirrored"], "repeats": 2}
    fresh.configure(matrix=[block], compare=compared)
    fresh.succeed()
    runs = rows(fresh, "runs")
    skipped = [row for row in runs if row["status"] == "skipped"]
    assert {(row["framework"], row["strategy"]) for row in skipped} == {("jax", "mirrored")}
    for row in runs:
        if row not in skipped:
            assert row["status"] in ("ok", "unstable"), row
            assert row["learning_gate"].startswith("missed: top1 ")
            assert row["framework_version"]
            assert row["environment"] == {"tensorflow": "train", "jax": "jax"}[row["framework"]]
    compared = {row["strategy"]: row for row in rows(fresh, "comparisons")}
    assert compared.keys() == {"single", "mirrored"}
    assert {(row["condition"], row["base"]) for row in compared.values()} == {("jax", "tensorflow")}
    assert float(compared["single"]["ratio"]) > 0
    assert compared["mirrored"]["verdict"] == "no runs"
    fresh.succeed("report")
    report = (fresh.folder / "results/report.html").read_text()
    for row in runs:
        assert f"{row['framework']} {row['framework_version']}".strip() in report
    assert "Frameworks differ by design" in report
