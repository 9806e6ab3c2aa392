"""scaling_series: which runs are compared, with which base; their table and their figure agree."""

import dataclasses
import math

import pytest

from dlbench.analysis import base_flags, estimates, limits, scaling_series
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


RUN = {
    "model": "lenet5", "dataset": "synthetic", "framework": "tensorflow", "mode": "train",
    "framework_version": "2.18", "environment": "train", "runtime": "bare", "runtime_options": "",
    "threads_per_device": 1, "strategy": "horovod", "strategy_options": "", "precision": "float32",
    "launcher": "horovodrun", "nodes": 1, "device_kind": "cpu", "hardware_sha256": "hard",
    "parameters": 250_000, "status": "ok", "timing_source": "dlbench", "site": "here",
    "batch_per_device": 50, "steps_measured": 90, "burn_in_steps": 10, "copies_per_node": 1,
}  # fmt: skip
COMPUTE_S, BYTES = 0.1, 1_000_000
BASELINE = {name: RUN[name] for name in limits.MATCHED if name != "devices"}
BASELINE |= {"measure": "all_reduce", "size_bytes": BYTES, "time_s": 0.025}


def run(devices, rate, **changes):
    row = dict.fromkeys(table_columns.RUNS.names) | RUN
    row |= {"devices": devices, "devices_per_node": devices, "repeat": 1} | changes
    row["global_batch"] = row["batch_per_device"] * devices
    return row | {"images_per_second": rate, "run_id": f"{row['strategy']}-{devices}"}


def series(*rows, kind="weak"):
    (found,) = [one for one in scaling_series.all_series(rows) if one.kind == kind]
    return found


def baselines(*devices, **changes):
    return [BASELINE | {"devices": number} | changes for number in devices]


ALONE = run(1, 50 / COMPUTE_S, strategy="single", launcher="none")


def test_weak_scaling_is_that_of_a_step_that_computes_and_then_exchanges():
    found = limits.expected(series(ALONE, run(2, 700.0)), baselines(2))
    first, second = found
    assert (first.devices, first.efficiency) == (1, 1.0)
    assert first.images_per_second == pytest.approx(500.0)
    assert (second.compute_s, second.all_reduce_s) == pytest.approx((0.1, 0.025))
    assert second.images_per_second == pytest.approx(100 / 0.125)
    assert second.efficiency == pytest.approx(0.8)


def test_weights_that_are_divided_take_an_all_reduce_of_half_of_what_is_gathered_and_reduced():
    divided = {"gathered_bytes_per_step": 3 * BYTES, "reduced_bytes_per_step": BYTES}
    found = limits.expected(series(ALONE, run(2, 700.0, **divided)), baselines(2))
    assert found[1].all_reduce_s == pytest.approx(2 * 0.025)


def test_other_collectives_beside_the_all_reduce_change_nothing_that_is_expected():
    others = [
        row
        for measure in ("all_gather", "reduce_scatter", "sendrecv")
        for row in baselines(2, measure=measure, time_s=9.0)
    ]
    found = limits.expected(series(ALONE, run(2, 700.0)), others + baselines(2))
    assert found[1].all_reduce_s == pytest.approx(0.025)


def test_a_baseline_of_named_nodes_is_of_runs_that_name_them():
    named = baselines(2, node="n1", time_s=0.05)
    on_node = [dict(ALONE, node="n1"), run(2, 700.0, node="n1")]
    found = limits.expected(series(*on_node), [*baselines(2, node="n2"), *named])
    assert found[1].all_reduce_s == pytest.approx(0.05)
    found = limits.expected(series(ALONE, run(2, 700.0)), [*named, *baselines(2)])
    assert found[1].all_reduce_s == pytest.approx(0.025)


def test_strong_scaling_computes_less_on_each_of_more_devices():
    rows = [run(2, 500.0), run(4, 900.0, batch_per_device=25)]
    found = limits.expected(series(*rows, kind="strong"), baselines(2, 4))
    # A step of two takes 0.2 s, of which 0.175 s are the computation of 50 items.
    assert found[1].compute_s == pytest.approx(0.175 / 2)
    assert found[1].images_per_second == pytest.approx(100 / (0.0875 + 0.025))


def test_a_base_of_several_devices_computes_what_its_exchange_leaves():
    rows = [run(2, 100 / 0.125), run(4, 1500.0)]
    found = limits.expected(series(*rows), baselines(2, 4, time_s=0.025))
    assert [one.compute_s for one in found] == pytest.approx([0.1, 0.1])
    assert found[1].efficiency == pytest.approx(1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"hardware_sha256": "other"},
        {"framework_version": "2.19"},
        {"strategy_options": "cycle_time_ms=1"},
        {"devices": 4},
        {"measure": "memory_copy"},
        {"time_s": math.nan},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_nothing_is_expected_of_other_machines_versions_exchanges_or_sizes(changes):
    other = baselines(2, **changes)
    assert limits.expected(series(ALONE, run(2, 700.0)), other) == []


def test_nothing_is_expected_where_the_parameters_are_not_known_or_nothing_was_measured():
    unknown = series(*({**row, "parameters": None} for row in (ALONE, run(2, 700.0))))
    assert limits.expected(unknown, baselines(2)) == []
    assert limits.expected(series(ALONE, run(2, 700.0)), []) == []


def test_an_exchange_longer_than_the_whole_step_of_the_base_gives_no_expectation():
    rows = [run(2, 100 / 0.02), run(4, 1500.0)]
    assert limits.expected(series(*rows), baselines(2, 4)) == []


TIMES_S = {1_000: 1e-3, 100_000: 1e-2, 1_000_000: 4e-2}


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (10, 1e-3),  # latency
        (1_000, 1e-3),
        (10_000, math.sqrt(1e-3 * 1e-2)),
        (100_000, 1e-2),
        (3_000_000, 0.12),  # the bandwidth of the largest
    ],
)
def test_time_is_interpolated_on_logarithms_and_ends_as_latency_and_as_bandwidth(size, seconds):
    assert limits.interpolated_s(TIMES_S, size) == pytest.approx(seconds)


@pytest.mark.parametrize("given", [None, "", math.nan])
def test_a_run_with_variables_is_not_expected_from_baselines_without_them(given):
    run = {"parameters": 25, "nodes": 1, "devices": 2}
    baseline = run | {"measure": "all_reduce", "size_bytes": 100, "time_s": 0.5}
    assert limits.exchange_s(run | {"variables": given}, [baseline]) == 0.5
    assert limits.exchange_s(run | {"variables": "A=1"}, [baseline]) is None
