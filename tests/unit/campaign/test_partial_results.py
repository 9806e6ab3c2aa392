"""Partial results: tables and figures of what is done, while a campaign runs and is locked."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.campaign import partial_results
from dlbench.results import collect_runs
from dlbench.study import config
from dlbench.tables import parquet_files, table_columns
from support.programs import in_process
from support.runs.made_runs import SETTINGS, finish, write

FIGURES = ["loss", "overhead"]


@pytest.fixture
def going(study):
    """Two runs are done, one is being trained, one is missing; Snakemake holds its lock."""
    locks = Path(".snakemake/locks")
    locks.mkdir(parents=True)
    (locks / "0.output.lock").write_text("results/tables/runs.parquet\n")
    Path("config.yaml").write_text(json.dumps(SETTINGS | {"figures": FIGURES}))
    study = config.study_from_files([])
    finish(study.runs[0], 60)
    finish(study.runs[1], 60, "oom", "no memory")
    write(study.runs[2])
    return study


def tree(*folders):
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for folder in folders
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def test_what_is_done_is_in_tables_and_figures_and_nothing_else_changes(going):
    before = tree("results", ".snakemake")
    finished = in_process.dlbench("partial", "--output", "now")
    assert finished.returncode == 0, finished.stderr
    assert "now: 2 of 4 runs" in finished.stderr
    assert tree("results", ".snakemake") == before
    rows = parquet_files.read("now/tables/runs.parquet", table_columns.RUNS).to_pylist()
    assert {row["run_id"]: row["status"] for row in rows} == {
        going.runs[0].id: "ok",
        going.runs[1].id: "oom",
    }
    for name in FIGURES:
        for suffix in ("svg", "png", "pdf"):
            assert Path(f"now/figures/{name}.{suffix}").stat().st_size > 0
    assert not [path for path in Path("now").rglob("*") if path.is_symlink()]
    finish(going.runs[3], 60)
    partial_results.write(dataclasses.replace(going, figures=()), "now")
    assert parquet_files.read("now/tables/runs.parquet", table_columns.RUNS).num_rows == 3


def test_the_other_programs_work_beside_a_campaign_too(going):
    partial_results.write(dataclasses.replace(going, figures=()), "now")
    before = tree("results", ".snakemake")
    drawing = ("loss", "--tables", "now/tables", "--runs", "now/runs", "--output", "drawn")
    finished = [
        in_process.dlbench("status"),
        in_process.dlbench("export", "--output", "now/runs.csv"),
        in_process.program("draw_figure.py", *drawing),
        compared := in_process.dlbench("compare", "results", "now/runs.csv"),
    ]
    assert [one.returncode for one in finished] == [0] * 4, finished
    assert "1 not ended" in compared.stdout
    assert tree("results", ".snakemake") == before


def test_runs_whose_records_go_meanwhile_are_left_out_and_after_three_tries_it_is_an_error(
    going, monkeypatch
):
    collect, seen = collect_runs.collect, []
    going = dataclasses.replace(going, figures=())

    def disturbed(study, *arguments, **folders):
        seen.append(len(study.runs))
        if len(seen) == 1:
            os.truncate(Path("results/runs") / going.runs[0].id / "train.jsonl", 10)
        if len(seen) > 2:
            raise FileNotFoundError("run.json")
        return collect(study, *arguments, **folders)

    monkeypatch.setattr(collect_runs, "collect", disturbed)
    partial_results.write(going, "now")
    assert seen == [2, 1]
    with pytest.raises(FileNotFoundError):
        partial_results.write(going, "now")
    assert seen == [2, 1, 1, 1, 1]


def test_it_is_refused_among_the_results_and_before_the_first_run_is_done(study):
    with pytest.raises(Error, match="outside results"):
        partial_results.write(study, "results/now")
    with pytest.raises(Error, match="none of 4 runs has a valid result"):
        partial_results.write(study, "now")
