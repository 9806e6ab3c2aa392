"""The numbers of the KIT talk follow from its raw logs; skipped if these are missing."""

from datetime import datetime, timezone

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dlbench.analysis import contrasts, run_lengths, scaling_series
from dlbench.imports import import_logs
from dlbench.results import derived
from dlbench.tables import table_columns
from support.machines.paths import EQUIPMENT

LOGS = EQUIPMENT.parent / "logs" / "kit_lsdf"
PATTERN = "lsdf_{runtime}_{_}/{dataset}_{model}_{devices}_gpu/{repeat}"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason=f"{LOGS}: KIT's logs are not here")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """(what was imported, the tables of steps and of evaluations)."""
    folder = tmp_path_factory.mktemp("kit")
    names = ("runs", "steps", "evals")
    outputs = {name: folder / f"{name}.parquet" for name in names}
    made = import_logs.import_paths([LOGS], {"site": "lsdf"}, PATTERN, "kit", outputs)
    return made, pq.read_table(outputs["steps"]), pq.read_table(outputs["evals"])


def runs(imported, **wanted):
    return [row for row in imported[0].rows if all(row.get(k) == v for k, v in wanted.items())]


@pytest.mark.parametrize(
    ("model", "devices", "printed"),
    [
        ("resnet50", 1, 56.3),
        ("resnet50", 2, 103.3),
        ("resnet50", 4, 205.9),
        ("alexnet", 1, 604),
        ("alexnet", 2, 1086),
        ("alexnet", 4, 1998),
    ],
)
def test_the_throughput_on_imagenet_is_the_published_one(imported, model, devices, printed):
    found = runs(
        imported, runtime="udocker", dataset="imagenet", model=model, devices=devices, steps=500
    )
    assert sorted(row["repeat"] for row in found) == [1, 2, 3]
    mean = sum(row["images_per_second"] for row in found) / 3
    assert round(mean, 1 if printed < 300 else None) == printed


def test_every_folder_is_one_run_and_only_texts_are_left_out(imported):
    made = imported[0]
    assert len(made.rows) == len({row["run_id"] for row in made.rows}) == 120
    assert [name for name, _ in made.left_out] == ["LICENSE", "README.md"]
    assert all(row["status"] == "ok" for row in made.rows)


def test_what_was_run_is_what_the_logs_state(imported):
    for row in imported[0].rows:
        batch = {"resnet50": 64, "alexnet": 512, "resnet56": row["batch_per_device"]}[row["model"]]
        assert row["batch_per_device"] == batch
        assert row["global_batch"] == batch * row["devices"]
        assert row["device_model"] == "Tesla K80"
        assert row["framework_version"] == "1.10.0"
        assert row["optimizer"] == "sgd"
        assert row["nodes"] == 1
        assert row["study"] == "kit"


def test_dates_are_those_of_the_logs_and_days_do_not_wrap(imported):
    (longest,) = runs(imported, model="resnet50", devices=1, epochs=5)
    assert longest["started_at"] == datetime(2019, 3, 21, 22, 48, 46, 662742, timezone.utc)
    # 33:45 is printed, of the steps alone.
    assert longest["duration_s"] / 3600 == pytest.approx(33.75, rel=0.002)


def test_accuracy_and_losses_are_those_of_the_logs(imported):
    printed = {1: (0.36, 0.63), 2: (0.37, 0.64), 4: (0.35, 0.62)}
    for devices, (top1, top5) in printed.items():
        (row,) = [
            row for row in runs(imported, model="resnet50", devices=devices) if row.get("epochs")
        ]
        assert (round(row["top1"], 2), round(row["top5"], 2)) == (top1, top5)
        assert 3 < row["final_loss"] < 5


def test_the_times_of_windows_add_up_to_the_time_that_the_clock_says(imported):
    made, steps, _ = imported
    for row in made.rows:
        if row.get("steps") == 500 and row["model"] == "resnet50":
            own = steps.filter(pc.equal(steps["run_id"].cast("string"), row["run_id"]))
            total_s = pc.sum(pc.multiply(own["step_time_s"], own["window_steps"])).as_py()
            clock_s = row["global_batch"] * 500 / row["images_per_second"]
            assert total_s == pytest.approx(clock_s, rel=0.01)
            assert pc.sum(own["window_steps"]).as_py() == 500


def test_real_images_are_compared_with_synthetic_ones_of_their_size_alone(imported):
    rows = [dict.fromkeys(table_columns.RUNS.names) | row for row in imported[0].rows]
    derived.add_synthetic(rows)
    paired = {row["dataset"] for row in rows if row["synthetic_ratio"]}
    assert paired == {"imagenet"}
    pairs = contrasts.by_field(rows, (), 0.01)["dataset"]
    assert {(a[0]["dataset"], b[0]["dataset"]) for a, b, *_ in pairs} == {("imagenet", "synthetic")}
    # 500 batches in two runtimes, and 5 epochs in one.
    assert len(pairs) == 3 * 2 * 3
    assert all(
        len({run_lengths.length(row) for row in side}) == 1 for pair in pairs for side in pair[:2]
    )


def test_runs_of_500_batches_and_of_5_epochs_are_no_repeats_of_one_another(imported):
    rows = [dict.fromkeys(table_columns.RUNS.names) | row for row in imported[0].rows]
    found = [
        point
        for series in scaling_series.all_series(rows)
        for point in series.points
        if (series.row["model"], series.row["dataset"]) == ("resnet50", "imagenet")
        and (series.row["runtime"], series.kind, point.devices) == ("udocker", "weak", 1)
    ]
    assert sorted((len(p.runs), round(p.throughput.value, 1)) for p in found) == [
        (1, 52.7),
        (3, 56.3),
    ]


def test_evaluations_have_their_examples(imported):
    evals = imported[2]
    assert len(evals) == 120
    assert set(evals["examples"].to_pylist()) >= {6400, 12800, 25600}
