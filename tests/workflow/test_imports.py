"""Logs of others and published numbers beside one's own runs, in the real Snakefile."""

import csv

import pytest

from dlbench.analysis import published_numbers
from support.logs import log_samples

POINT = {
    "framework": "tensorflow", "model": "lenet5", "dataset": "synthetic", "nodes": 1,
    "quality": "printed", "source": "a talk",
}  # fmt: skip
PUBLISHED = [
    {"point": "one", "devices": 1, "metric": "images_per_second", "value": 100, "unit": "items/s"},
    {"point": "two", "devices": 2, "metric": "images_per_second", "value": 190, "unit": "items/s"},
    {"point": "two", "devices": 2, "metric": "speedup", "value": "1.9", "unit": "1", "base": "one"},
]
OURS = {
    "name": "ours", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8,
    "warmup_steps": 1, "steps": 3,
}  # fmt: skip
FIGURES = ["scaling", "loss", "step_times", "published", "utilisation", "coverage"]


def rows(campaign, table="runs"):
    with open(campaign.folder / f"results/tables/{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


def logs(campaign):
    """Two runs of another program, on one and on two devices, as its users keep them."""
    for devices in (1, 2):
        place = campaign.folder / f"logs/resnet50_{devices}_gpu"
        place.mkdir(parents=True)
        text = log_samples.tf_cnn_benchmarks(0.5 / devices, 20)
        (place / "stdout.log").write_text(text.replace("1.10", f"1.10.{devices}"))
    (campaign.folder / "logs/README").write_text("no log")
    # Of two kinds: it is named, and the others are imported.
    mixed = log_samples.mxnet(0.5, 20) + log_samples.mlperf(0.5, 20)
    (campaign.folder / "logs/mixed.log").write_text(mixed)


@pytest.mark.ci
def test_imported_and_published_numbers_stand_beside_ones_own_in_tables_and_figures(fresh):
    logs(fresh)
    with open(fresh.folder / "references.csv", "w", newline="") as file:
        table = csv.DictWriter(file, published_numbers.COLUMNS)
        table.writeheader()
        table.writerows(POINT | number for number in PUBLISHED)
    theirs = {"name": "theirs", "path": "logs", "fields": {"site": "far"}}
    fresh.configure(
        matrix=[OURS],
        figures=FIGURES,
        imports=[theirs | {"path_fields": "{_}_{repeat}_gpu"}],
        references=[{"path": "references.csv", "match": ["model", "dataset", "devices"]}],
    )
    output = fresh.succeed()
    assert "left out: README" in output
    assert "left out: mixed.log: a log of several kinds: mlperf, mxnet" in output
    found = {}
    for row in rows(fresh):
        found.setdefault(row["timing_source"], []).append(row)
    assert sorted(found) == ["dlbench", "published", "tf_cnn_benchmarks"]
    imported = sorted(found["tf_cnn_benchmarks"], key=lambda row: row["repeat"])
    assert [float(row["images_per_second"]) for row in imported] == [128.0, 256.0]
    assert {(row["site"], row["study"]) for row in imported} == {("far", "theirs")}
    assert [float(row["images_per_second"]) for row in found["published"]] == [100.0, 190.0]
    (speedup,) = (row for row in rows(fresh, "published") if row["metric"] == "speedup")
    assert (speedup["recomputed"], speedup["agrees"]) == ("1.9", "true")
    (one,) = (
        row
        for row in rows(fresh, "published")
        if row["metric"] == "images_per_second" and row["point"] == "one"
    )
    (own,) = found["dlbench"]
    beside = [row for row in rows(fresh, "coverage") if row["status"] == "imported"]
    assert {row["run_id"] for row in beside} == {row["run_id"] for row in imported}
    assert {row["reason"] for row in beside} == {"import theirs: ok"}
    assert all(row["combination"].startswith("far: resnet50") for row in beside)
    assert own["study"] not in ("", "theirs")
    assert float(one["own"]) == pytest.approx(float(own["images_per_second"]))
    for name in FIGURES:
        assert (fresh.folder / f"results/figures/{name}.svg").stat().st_size > 2000
    assert fresh.scheduled() == {}

    place = fresh.folder / "logs/resnet50_4_gpu"
    place.mkdir()
    (place / "stdout.log").write_text(log_samples.tf_cnn_benchmarks(0.125, 20))
    scheduled = fresh.scheduled()
    assert scheduled.pop("import_results") == ["theirs"] and "train" not in scheduled


def test_a_log_that_says_otherwise_than_its_fields_ends_the_import_with_both(fresh):
    logs(fresh)
    theirs = {"name": "theirs", "path": "logs", "fields": {"model": "alexnet"}}
    fresh.configure(matrix=[OURS], figures=[], imports=[theirs])
    finished = fresh.snakemake()
    assert finished.returncode != 0 and "MissingOutput" not in finished.stdout
    assert "model is alexnet by --fields, resnet50 by the log" in finished.stdout


def test_what_is_not_there_is_said_before_anything_is_done(fresh):
    fresh.configure(matrix=[OURS], figures=[], imports=[{"name": "theirs", "path": "nowhere"}])
    finished = fresh.snakemake()
    assert (
        finished.returncode != 0
        and "imports[0].path: there is no file or folder nowhere" in finished.stdout
    )
