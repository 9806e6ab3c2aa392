"""rerun_bases: which runs are measured again, so that what was measured apart shares a session."""

import json
from pathlib import Path

import numpy as np
import pytest

from dlbench import Error
from dlbench.records import run_record, staleness
from dlbench.results import collect_runs, rerun_bases
from dlbench.study import config, trainer_environments
from dlbench.tables import parquet_files, table_columns
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS, finish

pytestmark = pytest.mark.slow
BLOCK = SETTINGS["matrix"][0] | {"batch_per_device": 8}
STUDY = SETTINGS | {
    "repeats": 3,
    "matrix": [
        BLOCK | {"precision": ["float32", "tf32", "bfloat16"]},
        BLOCK | {"name": "other", "model": "cnn12"},
    ],
    "compare": [{"field": "precision", "base": "float32"}],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)


def measured(session_of):
    """The study with all runs finished, each in the session that `session_of` says."""
    made = config.study(STUDY)
    for run in made.runs:
        finish(run, 60, made_from=staleness.made_from(run))
    collect_runs.collect(made, "cpu", "results/tables")
    path = Path("results/tables/runs.parquet")
    rows, chance = (
        parquet_files.read(path, table_columns.RUNS).to_pylist(),
        np.random.default_rng(1),
    )
    for row in rows:
        row["session"] = session_of(row)
        row["images_per_second"] = 100.0 * float(np.exp(chance.normal(0, 0.01)))
    parquet_files.write(path, rows, table_columns.RUNS)
    return made


def later(*precisions):
    return lambda row: "B" if row["precision"] in precisions else "A"


def again(made, **arguments):
    found = rerun_bases.choose(made, **arguments)
    runs = {run.id: run for run in made.runs}
    return found, {(runs[i].model, runs[i].precision) for i in found.run_ids}


def test_both_sides_are_measured_again_and_what_shares_a_session_with_them():
    made = measured(later("bfloat16"))
    found, conditions = again(made)
    assert len(found.links) == 1 and len(found.run_ids) == 9
    assert conditions == {("lenet5", p) for p in ("float32", "tf32", "bfloat16")}
    assert found.lines[0] == "measured apart: 1 comparison"
    assert found.lines[1] == (
        "  lenet5 synthetic batch 8, single on 1 device, bfloat16 over "
        "lenet5 synthetic batch 8, single on 1 device"
    )
    assert found.lines[2] == (
        "to be trained again, in one session: 9 finished runs of 3 conditions, "
        "about 0.15 node-hours"
    )
    bases = [line for line in found.lines if line.endswith(", a base")]
    assert bases == ["  lenet5 synthetic batch 8, single on 1 device (3 runs), a base"]


def test_what_was_measured_in_one_session_is_left_alone():
    made = measured(lambda row: "A")
    found, conditions = again(made)
    assert not conditions and found.lines == ["nothing of the study 'test' was measured apart"]


def test_comparisons_are_chosen_by_what_they_are_called():
    made = measured(later("bfloat16", "tf32"))
    assert len(again(made)[0].links) == 2
    found, conditions = again(made, only=["TF32"])
    assert len(found.links) == 1
    assert conditions == {("lenet5", "float32"), ("lenet5", "tf32")}
    with pytest.raises(Error, match="no comparison that was measured apart has horovod"):
        again(made, only=["horovod"])


def test_without_tables_it_says_what_makes_them():
    with pytest.raises(Error, match=r"runs\.parquet: there is no such table; `snakemake tables`"):
        rerun_bases.choose(config.study(STUDY))


def test_the_program_forgets_nothing_without_its_flag():
    made = measured(later("bfloat16"))
    Path("config.yaml").write_text(json.dumps(STUDY))
    asked = dlbench("rerun-bases")
    assert asked.returncode == 0, asked.stderr
    assert "nothing is forgotten; with --yes these runs are" in asked.stdout
    there = [run for run in made.runs if (run_record.folder(run.id) / "run.json").exists()]
    assert len(there) == 12
    done = dlbench("rerun-bases", "--yes")
    assert done.stdout.endswith("forgot 9 runs\n"), done.stderr
    there = {run.model for run in made.runs if (run_record.folder(run.id) / "run.json").exists()}
    assert there == {"cnn12"}
    assert len(list(Path("results/runs").glob("*/train.attempt1.jsonl"))) == 9
