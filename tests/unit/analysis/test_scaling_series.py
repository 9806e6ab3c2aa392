"""scaling_series: which runs are compared, with which base; their table and their figure agree."""

import dataclasses
import math

import pytest

from dlbench.analysis import base_flags, estimates, scaling_series
from dlbench.drawing.figures import scaling
from dlbench.tables import parquet_files, table_columns
from support.results.made_reports import speedups_of
from support.results.made_scaling import runs


class Named:
    name = "test"
    equivalence_margin = 0.01


def panel(rows, kind):
    return [series for series in scaling_series.all_series(rows) if series.kind == kind]


def found(rows, kind):
    return [
        [(point.devices, point.runs[0]["batch_per_device"]) for point in series.points]
        for series in panel(rows, kind)
    ]


def table(rows):
    return scaling_series.speedup_rows(Named, rows)


def test_weak_scaling_has_one_batch_per_device_and_strong_one_global_batch():
    rows = runs((1, 64, {}), (2, 64, {}), (2, 32, {}), (4, 16, {}))
    assert found(rows, "weak") == [[(1, 64), (2, 64)]]
    assert found(rows, "strong") == [[(1, 64), (2, 32), (4, 16)]]


def test_a_series_without_a_run_on_one_device_borrows_that_of_another_strategy():
    horovod = {"strategy": "horovod", "launcher": "horovodrun"}
    rows = runs((1, 64, {"strategy": "single"}), (2, 64, horovod), (2, 16, horovod))
    assert found(rows, "weak") == [[(2, 64)]]
    (series,) = panel(rows, "weak")
    assert (series.base.devices, series.base.borrowed) == (1, True)
    assert series.base.runs[0]["strategy"] == "single"
    assert series.mismatch == ("strategy",)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"framework_version": "3"}, "framework_version"),
        ({"device_model": "GPU", "steps_measured": 60}, "steps_measured, device_model"),
        ({"seed": 2}, "seed"),
        ({"hardware_sha256": "b"}, "hardware_sha256"),
        ({"software_sha256": "b"}, "software_sha256"),
        ({"hardware_sha256": None}, ""),  # of a run of before
        ({"disturbed": "others used 0.98 of 2 cores"}, "neighbours"),
    ],
)
def test_what_differs_from_the_base_in_one_run_is_named_of_its_own_base_too(change, names):
    same = {"hardware_sha256": "a", "software_sha256": "a"}
    rows = runs((1, 64, same), (2, 64, same))
    rows[-1] |= change
    assert [row["base_mismatch"] for row in table(rows)] == ["", names]


def test_runs_that_differ_in_a_setting_are_series_of_their_own():
    settings = {"launcher": "mpirun", "environment": "old", "cache": "none", "optimizer": "adam"}
    settings |= {"threads_per_device": 2, "site": "there", "timing_source": "published"}
    settings |= {"item_shape": "227x227x3", "steps": 500, "epochs": 5}
    for name, value in settings.items():
        change = {name: value}
        rows = runs((1, 64, {}), (2, 64, {}), (1, 64, change), (2, 64, change))
        assert found(rows, "weak") == [[(1, 64), (2, 64)]] * 2, name
        assert all(row["runs"] == 2 for row in table(rows))


def test_layouts_of_as_many_devices_are_points_of_their_own():
    rows = runs((1, 64, {}), (4, 64, {"nodes": 1}), (4, 64, {"nodes": 2}))
    assert [(row["devices"], row["nodes"]) for row in table(rows)] == [(1, 1), (4, 1), (4, 2)]


def test_the_numbers_are_those_worked_out_by_hand():
    # Logs of the throughputs are 0, 0.1, 0.2 and log 1.5 more: a speedup of 1.5.
    rows = runs((1, 64, {}), (2, 64, {}), repeats=3)
    for row in rows:
        row["images_per_second"] = math.exp(0.1 * row["repeat"]) * (1, 1.5)[row["devices"] - 1]
    one, two = table(rows)
    # Student's t, 97.5 %: 4.302653 with 2 degrees of freedom, 2.776445 with 4.
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert one["images_per_second"] == pytest.approx(math.exp(0.1))
    assert one["images_per_second_ci95_low"] == pytest.approx(math.exp(0.1 - half))
    assert one["images_per_second_ci95_high"] == pytest.approx(math.exp(0.1 + half))
    assert (one["speedup"], one["efficiency"], one["speedup_ci95_low"]) == (1, 1, None)
    assert one["note"] == "the base"
    half = 2.776445 * math.sqrt(0.02 / 3)
    assert two["speedup"] == pytest.approx(1.5)
    assert two["speedup_ci95_low"] == pytest.approx(1.5 * math.exp(-half))
    assert two["speedup_ci95_high"] == pytest.approx(1.5 * math.exp(half))
    assert two["efficiency"] == pytest.approx(0.75)
    assert two["efficiency_ci95_high"] == pytest.approx(0.75 * math.exp(half))
    assert (two["scaling"], two["base_devices"], two["base_runs"]) == ("weak", 1, 3)
    assert two["base_images_per_second"] == one["images_per_second"]


def test_where_the_fewest_are_two_devices_the_ideal_counts_from_there():
    two, four = table(runs((2, 64, {}), (4, 64, {})))
    assert (two["base_devices"], two["efficiency"]) == (2, 1)
    assert four["speedup"] == pytest.approx(2, rel=0.01)
    assert four["efficiency"] == pytest.approx(1, rel=0.01)


def test_a_single_repeat_has_no_interval_and_says_so():
    one, two = table(runs((1, 64, {}), (2, 64, {}), repeats=1))
    assert two["speedup"] == pytest.approx(2)
    assert {two[f"{name}_ci95_low"] for name in ("speedup", "images_per_second")} == {None}
    assert one["note"] == "the base; one run: no interval"
    assert two["note"] == "one run: no interval"
    rows = runs((1, 64, {})) + runs((2, 64, {}), repeats=3)
    rows[1]["status"] = "failed"
    assert table(rows)[1]["note"] == "one run of the base: no interval of the speedup"


@pytest.mark.parametrize(
    ("base", "point", "note"),
    [(3, 3, ""), (2, 2, ""), (3, 10, ""), (2, 3, estimates.THIN), (10, 2, estimates.THIN)],
)
def test_two_runs_beside_more_are_flagged_for_their_interval_covers_less(base, point, note):
    rows = runs((1, 64, {}), repeats=base) + runs((2, 64, {}), repeats=point)
    assert table(rows)[1]["note"] == note


def test_repeats_without_scatter_have_an_interval_of_no_width_and_unstable_ones_are_counted():
    rows = runs((1, 64, {}), (2, 64, {}))
    for row in rows:
        row["images_per_second"] = 50.0 * row["devices"]
    rows[-1]["status"] = "unstable"
    assert [(row["runs"], row["unstable_runs"]) for row in table(rows)] == [(2, 0), (2, 1)]
    (_, two) = table(rows)
    assert (two["speedup_ci95_low"], two["speedup_ci95_high"]) == pytest.approx((2, 2))


def test_one_number_of_devices_has_a_throughput_and_no_speedup():
    (row,) = table(runs((2, 64, {})))
    assert (row["scaling"], row["devices"], row["runs"]) == (None, 2, 2)
    assert row["images_per_second"] == pytest.approx(200.5, rel=1e-3)
    assert "speedup" not in row
    assert row["note"] == "no speedup: one number of devices"


@pytest.mark.parametrize("rate", [None, float("nan"), 0.0, float("inf")])
def test_what_has_failed_or_no_throughput_takes_no_part(rate):
    rows = runs((1, 64, {}), (2, 64, {}), (4, 64, {"status": "oom"}))
    rows[0]["images_per_second"] = rate
    assert [(row["devices"], row["runs"]) for row in table(rows)] == [(1, 1), (2, 2)]
    assert table(runs((1, 64, {"status": "failed"}))) == []


def test_without_the_base_the_fewest_devices_that_ended_well_are_it_and_are_named():
    rows = runs((1, 64, {"status": "oom"}), (2, 64, {}), (4, 64, {}))
    assert [row["base_devices"] for row in table(rows)] == [2, 2]


def test_epochs_take_fewer_steps_on_more_devices_and_that_is_no_mismatch():
    rows = runs((1, 64, {"epochs": 2}), (2, 64, {"epochs": 2, "steps_measured": 25}))
    assert [row["base_mismatch"] for row in table(rows)] == ["", ""]


def test_points_that_were_measured_apart_are_marked_unless_sentinels_show_no_drift():
    rows = runs(
        *((n, 64, {"session": "B" if n == 16 else "A"}) for n in (1, 2, 4, 8, 16)), repeats=3
    )
    for row in rows:
        row["images_per_second"] = 100 * row["devices"] + 0.01 * row["repeat"]
    apart = table(rows)
    assert [row["base_mismatch"] for row in apart] == ["", "", "", "", "measured apart"]
    assert [row["measured_apart"] for row in apart] == [False] * 4 + [True]
    again = [row | {"session": "B"} for row in rows if row["devices"] == 1]
    known = scaling_series.speedup_rows(Named, rows, again)
    assert known[-1]["base_mismatch"] == ""
    assert known[-1]["note"] == "over sessions: drift +0.0 % [-0.0, +0.0]"
    assert known[-1]["drift"] == pytest.approx(1)


def test_the_table_takes_all_rows_and_keeps_them(tmp_path):
    made = table(runs((1, 64, {}), (2, 64, {}), (2, 8, {}), repeats=3))
    parquet_files.write(tmp_path / "s.parquet", made, table_columns.SPEEDUPS)
    read = parquet_files.read(tmp_path / "s.parquet", table_columns.SPEEDUPS).to_pylist()
    assert [{key: row[key] for key in given} for row, given in zip(read, made, strict=True)] == made
    assert set(base_flags.BASE_KEYS) <= set(table_columns.RUNS.names)


# The figure.


def test_what_is_fixed_is_said():
    rows = runs((1, 64, {}), (2, 32, {}))
    assert scaling._fixed_label("strong", panel(rows, "strong")) == "strong scaling, 64 in all"
    rows = runs((1, 64, {}), (2, 64, {}), (1, 32, {}), (2, 32, {}))
    assert scaling._fixed_label("weak", panel(rows, "weak")) == "weak scaling"


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({"strategy": "horovod", "launcher": "mpirun"}, ["horovod", "mirrored"]),
        ({"launcher": "srun"}, ["mirrored, none", "mirrored, srun"]),
        ({"environment": "old"}, ["environment old", "environment train"]),
        ({"xla": True}, ["no XLA", "XLA"]),
    ],
)
def test_series_are_called_by_what_they_differ_in(change, labels):
    rows = runs((1, 64, {}), (2, 64, {}), (1, 64, change), (2, 64, change))
    made = scaling._labels(panel(rows, "weak"))
    assert [label.strip(", ") for label in made] == labels


def test_throughputs_of_texts_are_in_tokens_too():
    rows = runs((1, 8, {"item_shape": "20"}), (2, 8, {"item_shape": "20"}))
    for row in scaling_series.speedup_rows(Named, rows):
        for whose in ("", "base_"):
            for end in ("", "_ci95_low", "_ci95_high"):
                tokens = row[f"{whose}tokens_per_second{end}"]
                assert tokens == pytest.approx(20 * row[f"{whose}images_per_second{end}"])
    for row in scaling_series.speedup_rows(
        Named, runs((1, 8, {"item_shape": "32x32x1"}), (2, 8, {}))
    ):
        assert row.get("tokens_per_second") is None


def test_the_table_has_the_series_that_it_was_made_of():
    horovod = {"strategy": "horovod", "launcher": "horovodrun"}
    imported = {"study": "of them", "site": "there", "run_id": "r0-0"}
    rows = runs(
        *((1, 64, {}), (2, 64, {}), (2, 32, {}), (8, 8, {}), (1, 48, {})),
        *((1, 16, {"strategy": "single"}), (2, 16, horovod), (4, 16, horovod)),
        *((1, 64, imported), (2, 64, {"site": "there"}), (1, 32, {"status": "failed"})),
        repeats=1,
    )
    made = scaling_series.all_series(rows)
    assert {series.kind for series in made} == {"weak", "strong", None}
    assert any(series.base and series.base.borrowed for series in made)
    known = scaling_series.series_from_table(speedups_of(rows), rows)
    for series, read in zip(made, known, strict=True):
        assert (read.kind, read.base) == (series.kind, series.base)
        for point, of_table in zip(series.points, read.points, strict=True):
            assert repr(of_table) == repr(dataclasses.replace(point, sides=None))


def test_series_of_runs_that_are_left_out_are_left_out():
    rows = runs((1, 64, {}), (2, 64, {}), (1, 64, {"xla": True}), (2, 64, {"xla": True}))
    kept = [row for row in rows if not row["xla"]]
    (weak,) = scaling_series.series_from_table(speedups_of(rows), kept)
    assert weak.runs == [scaling_series._plain(row) for row in kept]
