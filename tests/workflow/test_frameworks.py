"""The framework is an axis: its runs have their environment, and are compared or skipped."""

import csv

import pytest

from support.campaigns.campaign import REPOSITORY

ENVIRONMENTS = {"tensorflow": "train", "jax": "jax", "pytorch": "pytorch"}
OTHERS = {"jax", "pytorch"}
needs_all = pytest.mark.skipif(
    not all((REPOSITORY / f"envs/{name}/.venv/bin/python").exists() for name in OTHERS),
    reason="dlbench environment makes envs/jax and envs/pytorch",
)
BLOCK = {
    "name": "all",
    "framework": [*ENVIRONMENTS],
    "model": "lenet5",
    "dataset": "digits",
    "batch_per_device": 16,
    "warmup_steps": 1,
    "steps": 3,
}


def rows(campaign, table):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.ci
@needs_all
def test_a_study_trains_with_all_frameworks_and_compares_them(fresh):
    compared = [{"field": "framework", "base": "tensorflow"}]
    gate = {"evaluate": "yes", "must_reach": {"top1": 0.999}}  # in three steps
    block = BLOCK | gate | {"strategy": ["single", "mirrored"], "repeats": 2}
    fresh.configure(matrix=[block], compare=compared, figures=["scaling"])
    fresh.succeed()
    runs = rows(fresh, "runs")
    skipped = [row for row in runs if row["status"] == "skipped"]
    assert {(row["framework"], row["strategy"]) for row in skipped} == {
        (name, "mirrored") for name in OTHERS
    }
    for row in runs:
        if row not in skipped:
            assert row["status"] in ("ok", "unstable"), row
            assert row["learning_gate"].startswith("missed: top1 ")
            assert row["framework_version"]
            assert row["environment"] == ENVIRONMENTS[row["framework"]]
    compared = {(row["condition"], row["strategy"]): row for row in rows(fresh, "comparisons")}
    assert compared.keys() == {(name, how) for name in OTHERS for how in ("single", "mirrored")}
    assert {row["base"] for row in compared.values()} == {"tensorflow"}
    for name in OTHERS:
        assert float(compared[name, "single"]["ratio"]) > 0
        assert compared[name, "mirrored"]["verdict"] == "no runs"
    fresh.succeed("report")
    report = (fresh.folder / "results/report.html").read_text()
    for row in runs:
        assert f"{row['framework']} {row['framework_version']}".strip() in report
    assert "Frameworks differ by design" in report
