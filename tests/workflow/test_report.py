"""The report as Snakemake makes it, Snakemake's own of the same study, and TensorBoard's files."""

import contextlib
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import zipfile

import pytest

from support.trainers.other_trainer import SCRIPT

PAGE = "results/report.html"


@pytest.mark.ci
def test_report_and_event_files_are_made_when_asked_for_and_figures_are_the_same_again(campaign):
    results = campaign.folder / "results"
    assert not (campaign.folder / PAGE).exists() and not (results / "tensorboard").exists()
    before = {path.name: path.read_bytes() for path in (results / "figures").iterdir()}
    assert sorted(before) == [
        f"{name}.{suffix}" for name in ("loss", "scaling") for suffix in ("pdf", "png", "svg")
    ]
    shutil.rmtree(results / "figures")
    campaign.succeed("report", "tensorboard")
    assert {path.name: path.read_bytes() for path in (results / "figures").iterdir()} == before
    page = (campaign.folder / PAGE).read_text()
    assert all(run_id in page for run_id in campaign.ids())
    assert 'id="figure-scaling"' in page and 'id="figure-loss"' in page
    assert "Machine and software" in page and "tensorflow version" in page
    assert str(campaign.folder) not in page
    exported = (results / "tensorboard").glob("*/events.out.tfevents.*")
    assert sorted(path.parent.name for path in exported) == campaign.ids()
    assert campaign.scheduled("--cores", "1", "report", "tensorboard") == {}


def test_looks_change_the_report_alone_and_snakemakes_own_has_all_figures_and_tables(campaign):
    campaign.succeed("report")
    before = (campaign.folder / PAGE).read_bytes()
    (campaign.folder / PAGE).unlink()
    campaign.succeed("report")
    assert (campaign.folder / PAGE).read_bytes() == before
    with open(campaign.folder / "workflow_scripts/dlbench/report/report.css", "a") as style:
        style.write(".mine { color: red; }\n")
    assert sorted(campaign.scheduled("--cores", "1", "report")) == ["build_report", "report"]
    campaign.succeed("report")
    assert ".mine { color: red; }" in (campaign.folder / PAGE).read_text()

    campaign.succeed("--report", "own.html")
    page = (campaign.folder / "own.html").read_text()
    (categories,) = re.findall(r"categories = (\{.*\})", page)
    filed = {name: next(iter(of.values())) for name, of in json.loads(categories).items()}
    assert filed["Scaling"] == ["results/figures/scaling.svg"]
    assert filed["Learning"] == ["results/figures/loss.svg"]
    assert "results/tables/runs.csv" in filed["Tables"]
    for text in (
        "Weak scaling",
        "Training loss, mean over devices",
        "collected from the records",
        '"table": "runs"',
    ):
        assert text in page


def test_a_profile_is_kept_with_its_run_in_the_report_and_the_archive(fresh):
    block = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 4, "steps": 3}
    fresh.configure(
        matrix=[block | {"name": "quick", "warmup_steps": 1, "profile": True}], figures=[]
    )
    fresh.succeed("archive")
    ((run_id, record),) = fresh.records().items()
    trace = fresh.folder / f"results/runs/{run_id}/trace.json.gz"
    assert trace.name in record["files"] and record["summary"]["account_s"]["profile"] > 0
    page = (fresh.folder / PAGE).read_text()
    assert f'href="runs/{run_id}/trace.json.gz"' in page
    with zipfile.ZipFile(fresh.folder / "results/archive.zip") as archive:
        assert any(name.endswith(f"{run_id}/trace.json.gz") for name in archive.namelist())
    trace.unlink()
    assert fresh.scheduled()["train"] == [run_id]


def flip(path, place=300):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_damaged_tables_are_named_with_what_makes_them_again_and_those_of_runs_are_made(campaign):
    table = campaign.folder / "results/tables/coverage.parquet"
    whole = table.read_bytes()
    (steps, *_) = sorted(campaign.folder.glob("results/runs/*/steps.parquet"))
    of_run = steps.read_bytes()
    flip(steps)
    flip(table)
    finished = campaign.snakemake("--cores", "1", "report")
    assert finished.returncode != 0
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("error: ")]
    assert line == (
        "error: results/tables/coverage.parquet is damaged: it does not match the "
        "digest in it; remove it: `snakemake tables` makes it again"
    )
    table.unlink()
    campaign.succeed("tables")
    assert table.read_bytes() == whole
    (campaign.folder / "results/figures/loss.svg").unlink()
    campaign.succeed("all", "report")  # which draws the steps of runs
    assert steps.read_bytes() == of_run


BLOCK = {
    "name": "one", "trainer": "softmax", "framework": "numpy", "model": "softmax",
    "dataset": "noise", "batch_per_device": 16, "steps": 40,
}  # fmt: skip
COMMAND = [sys.executable, "softmax.py", "{batch_per_device}", "{steps}", "none"]
TRAINER = {"command": COMMAND, "log": "tf_cnn_benchmarks", "files": ["softmax.py"]}


def on_terminal(campaign, *arguments):
    """(exit code, what is shown) of a start on a terminal, without control characters."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        campaign.command(*arguments), cwd=campaign.folder, stdin=theirs, stdout=theirs,
        stderr=theirs, env=campaign.environment() | {"TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # of a terminal that nobody has open any more
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 4096)
    os.close(ours)
    return process.wait(), re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\r", "", shown.decode())


@pytest.mark.ci
def test_a_start_shows_a_bar_a_line_for_its_run_and_its_error_in_full(fresh):
    (fresh.folder / "softmax.py").write_text(SCRIPT)
    fresh.configure(matrix=[BLOCK], trainers={"softmax": TRAINER}, figures=["scaling"])
    with open(fresh.folder / "workflow_scripts/dlbench/drawing/figures/scaling.py", "a") as figure:
        figure.write("\nraise RuntimeError('no column speed')\n")
    code, shown = on_terminal(fresh)
    assert code == 1
    assert "0/1 runs · 1 running · time to go not known yet" in shown
    assert len(re.findall(r"run 1/1  softmax .*: (?:ok|unstable)", shown)) == 1
    assert "Error in rule draw_figure" in shown and "RuntimeError: no column speed" in shown
    assert "collect_runs: done" in shown and "1 of 1 runs done" in shown
    for bookkeeping in (": starts", "Select jobs", "Finished jobid", "Job stats"):
        assert bookkeeping not in shown
