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
FIGURES = ["scaling", "published", "coverage"]
THEIRS = {"name": "theirs", "path": "logs", "path_fields": "{_}_{repeat}_gpu"}


def write(campaign):
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
    with open(campaign.folder / "references.csv", "w", newline="") as file:
        table = csv.DictWriter(file, published_numbers.COLUMNS)
        table.writeheader()
        table.writerows(POINT | number for number in PUBLISHED)


@pytest.mark.ci
def test_imported_and_published_numbers_stand_beside_ones_own_in_tables_and_figures(campaign):
    write(campaign)
    references = [{"path": "references.csv", "match": ["model", "dataset", "devices"]}]
    study = {"figures": FIGURES, "references": references}
    campaign.configure(imports=[THEIRS | {"fields": {"site": "far"}}], **study)
    output = campaign.succeed()
    assert "left out: README" in output
    assert "left out: mixed.log: a log of several kinds: mlperf, mxnet" in output
    found = {}
    for row in campaign.rows():
        found.setdefault(row["timing_source"], []).append(row)
    assert sorted(found) == ["dlbench", "published", "tf_cnn_benchmarks"]
    imported = sorted(found["tf_cnn_benchmarks"], key=lambda row: row["repeat"])
    assert [float(row["images_per_second"]) for row in imported] == [128.0, 256.0]
    assert {(row["site"], row["study"]) for row in imported} == {("far", "theirs")}
    assert [float(row["images_per_second"]) for row in found["published"]] == [100.0, 190.0]
    published = {(row["point"], row["metric"]): row for row in campaign.rows("published")}
    speedup = published["two", "speedup"]
    assert (speedup["recomputed"], speedup["agrees"]) == ("1.9", "true")
    (own,) = [row for row in found["dlbench"] if row["run_id"].startswith("lenet5-synthetic")]
    one = published["one", "images_per_second"]
    assert float(one["own"]) == pytest.approx(float(own["images_per_second"]))
    beside = [row for row in campaign.rows("coverage") if row["status"] == "imported"]
    assert {row["run_id"] for row in beside} == {row["run_id"] for row in imported}
    assert {row["reason"] for row in beside} == {"import theirs: ok"}
    assert all(row["combination"].startswith("far: resnet50") for row in beside)
    for name in FIGURES:
        assert (campaign.folder / f"results/figures/{name}.svg").stat().st_size > 2000
    assert campaign.scheduled() == {}

    place = campaign.folder / "logs/resnet50_4_gpu"
    place.mkdir()
    (place / "stdout.log").write_text(log_samples.tf_cnn_benchmarks(0.125, 20))
    scheduled = campaign.scheduled()
    assert scheduled.pop("import_results") == ["theirs"] and "train" not in scheduled

    campaign.configure(imports=[THEIRS | {"fields": {"model": "alexnet"}}], **study)
    finished = campaign.snakemake()
    assert finished.returncode != 0 and "MissingOutput" not in finished.stdout
    assert "model is alexnet by --fields, resnet50 by the log" in finished.stdout
    campaign.configure(imports=[THEIRS | {"path": "nowhere"}], **study)
    finished = campaign.snakemake()
    assert finished.returncode != 0
    assert "imports[0].path: there is no file or folder nowhere" in finished.stdout
