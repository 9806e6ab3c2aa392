"""The figure of scaling: which runs are compared, with which base, and what it is called."""

import pandas as pd
import pytest

from dlbench.figures import scaling

ROW = {
    "run_id": "r", "model": "lenet5", "dataset": "synthetic", "data_sha256": None, "seed": 1,
    "steps_measured": 50, "precision": "float32", "xla": False, "mode": "train",
    "strategy": "mirrored", "strategy_options": "", "runtime": "bare",
    "runtime_options": "", "copies_per_node": 1, "framework_version": "2",
    "environment": "train", "device_model": "CPU", "device_kind": "cpu", "site": "here",
    "status": "ok", "epochs": float("nan"), "images_per_second": 100.0,
}  # fmt: skip


def runs(*cases):
    """(devices, batch per device, changes) as rows of the runs table, two repeats each."""
    return pd.DataFrame(
        [
            {**ROW, "devices": devices, "batch_per_device": batch, "global_batch": devices * batch,
             "images_per_second": 100.0 * devices + repeat, **changes}
            for devices, batch, changes in cases
            for repeat in range(2)
        ]
    )  # fmt: skip


def families(table, kind):
    found = scaling._scaled(table, kind, scaling.FIXED[kind])
    return sorted(zip(found["devices"], found["batch_per_device"], strict=True))[::2]


def test_weak_scaling_has_one_batch_per_device_and_strong_one_global_batch():
    table = runs((1, 64, {}), (2, 64, {}), (2, 32, {}), (4, 16, {}))
    assert families(table, "weak") == [(1, 64), (2, 64)]
    assert families(table, "strong") == [(1, 64), (2, 32), (4, 16)]


def test_a_series_without_a_run_on_one_device_borrows_that_of_another_strategy():
    horovod = {"strategy": "horovod"}
    table = runs((1, 64, {"strategy": "single"}), (2, 64, horovod), (2, 16, horovod))
    assert families(table, "weak") == [(2, 64)]
    series = table[(table["strategy"] == "horovod") & (table["batch_per_device"] == 64)]
    keys = [scaling.FIXED["weak"], *scaling.SERIES]
    (devices, base), differs = scaling._base(series, table, keys)
    assert devices == 1
    assert set(base["strategy"]) == {"single"}
    assert differs == ["strategy"]


@pytest.mark.parametrize(
    "table",
    [
        runs((1, 64, {}), (2, 64, {}), (2, 32, {})),
        runs((1, 64, {}), (2, 64, {}), (1, 64, {"xla": True}), (2, 64, {"xla": True})),
        runs((2, 64, {})),
        runs((1, 64, {"status": "oom"}), (2, 64, {"status": "failed"})),
    ],
    ids=["both", "xla", "no base", "failed"],
)
def test_every_table_gives_a_figure(table, tmp_path):
    tables = type("Tables", (), {"runs": table})
    scaling.draw(tables, tmp_path / "scaling")
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert "scaling" in scaling.CAPTION


def test_what_is_fixed_is_said():
    table = runs((1, 64, {}), (2, 32, {}))
    assert scaling._fixed_words("strong", table) == "strong scaling, 64 in all"
    assert scaling._fixed_words("weak", table) == "weak scaling"
