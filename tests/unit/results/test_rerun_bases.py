"""rerun_bases: which runs are measured again, so that what was measured apart shares a session."""

import json
from pathlib import Path

import numpy as np
import pytest

from dlbench.records import run_record, staleness
from dlbench.results import collect_runs, rerun_bases
from dlbench.study import config, trainer_environments
from dlbench.tables import parquet_files, table_columns
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS, finish

BLOCK = SETTINGS["matrix"][0] | {"batch_per_device": 8}
STUDY = SETTINGS | {
    "repeats": 3,
    "matrix": [
        BLOCK | {"precision": ["float32", "tf32", "bfloat16"]},
        BLOCK | {"name": "other", "model": "cnn12"},
    ],
    "compare": [{"field": "precision", "base": "float32"}],
}


@pytest.mark.ci
def test_both_sides_and_what_shares_a_session_with_them_are_forgotten_where_that_is_asked_for(
    tmp_path, monkeypatch
):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    made = config.study(STUDY)
    for run in made.runs:
        finish(run, 60, made_from=staleness.made_from(run))
    collect_runs.collect(made, "cpu", "results/tables")
    path, chance = Path("results/tables/runs.parquet"), np.random.default_rng(1)
    rows = parquet_files.read(path, table_columns.RUNS).to_pylist()
    for row in rows:
        row["session"] = "B" if row["precision"] == "bfloat16" else "A"
        row["images_per_second"] = 100.0 * float(np.exp(chance.normal(0, 0.01)))
    parquet_files.write(path, rows, table_columns.RUNS)
    found = rerun_bases.choose(made)
    assert len(found.links) == 1 and len(found.run_ids) == 9
    label = "lenet5 synthetic batch 8, single on 1 device"
    assert found.lines[1] == f"  {label}, bfloat16 over {label}"
    assert found.lines[2].endswith("9 finished runs of 3 conditions, about 0.15 node-hours")
    Path("config.yaml").write_text(json.dumps(STUDY))
    asked = dlbench("rerun-bases")
    assert asked.returncode == 0, asked.stderr
    assert "nothing is forgotten; with --yes these runs are" in asked.stdout
    assert len(list(Path("results/runs").glob("*/run.json"))) == 12
    done = dlbench("rerun-bases", "--yes")
    assert done.stdout.endswith("forgot 9 runs\n"), done.stderr
    there = {run.model for run in made.runs if (run_record.folder(run.id) / "run.json").exists()}
    assert there == {"cnn12"}
    assert len(list(Path("results/runs").glob("*/train.attempt1.jsonl"))) == 9
