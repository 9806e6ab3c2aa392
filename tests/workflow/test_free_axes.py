"""Axes that a study names itself: parameters of other programs, variables, options of launchers."""

import csv
import json
import sys

import pytest

from support.trainers.other_trainer import SCRIPT

SHOWN = """
import os
print("depth", sys.argv[4:], "threads", os.environ.get("BLAS_THREADS"))
"""
PROGRAM = {
    "command": [
        *(sys.executable, "softmax.py", "{batch_per_device}", "{steps}", "momentum"),
        "--depth={depth}",
    ],
    "log": "tf_cnn_benchmarks",
    "files": ["softmax.py"],
}
THEIRS = {
    "name": "theirs", "trainer": "softmax", "framework": "numpy", "model": "softmax",
    "dataset": "noise", "batch_per_device": "8 * {depth}", "steps": 40,
    "parameters": {"depth": [2, 4]}, "variables": [{}, {"BLAS_THREADS": 1}],
}  # fmt: skip


def rows(campaign, table="runs"):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.ci
def test_parameters_and_variables_are_axes_from_the_config_to_the_tables(fresh):
    (fresh.folder / "softmax.py").write_text(SCRIPT + SHOWN)
    study = {
        "trainers": {"softmax": PROGRAM}, "figures": ["batch_size"],
        "compare": [{"field": "variables", "base": ""}],
    }  # fmt: skip
    fresh.configure(matrix=[THEIRS], **study)
    fresh.succeed()
    found = set()
    for row in rows(fresh):
        depth, threads = row["parameters.depth"], "1" if row["variables"] else None
        printed = fresh.folder / "results/runs" / row["run_id"] / "output/printed.log"
        assert f"depth ['--depth={depth}'] threads {threads}" in printed.read_text()
        assert row["batch_per_device"] == str(8 * int(depth))
        found.add((depth, row["variables"]))
    assert found == {(d, v) for d in ("2", "4") for v in ("", "BLAS_THREADS=1")}
    compared = rows(fresh, "comparisons")
    assert {row["parameters.depth"] for row in compared} == {"2", "4"}
    assert fresh.scheduled() == {}

    fresh.configure(matrix=[THEIRS | {"parameters": {"depth": [2, 4, 8]}}], **study)
    assert len(fresh.scheduled()["train"]) == 2  # the new depth, with and without the variable


def test_mpirun_hands_variables_and_its_options_to_every_rank(fresh):
    block = {
        "name": "ours", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
        "warmup_steps": 1, "steps": 3, "strategy": "horovod", "launcher": "mpirun",
        "devices_per_node": 2, "variables": {"HOROVOD_CYCLE_TIME": 2},
        "launcher_options": {"coll": "^hcoll"},
    }  # fmt: skip
    fresh.configure(matrix=[block], figures=[])
    fresh.succeed()
    (row,) = rows(fresh)
    assert row["status"] in ("ok", "unstable")
    log = fresh.folder / "results/runs" / row["run_id"] / "train.jsonl"
    command = json.loads(log.read_text().partition("\n")[0])["command"]
    assert command[command.index("coll") - 1 :][:3] == ["--mca", "coll", "^hcoll"]
    # The trainer refuses to start without the variable (trainer/containment.py).
    assert row["variables"] == "HOROVOD_CYCLE_TIME=2"
