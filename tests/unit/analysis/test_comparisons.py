"""comparisons: which runs are compared with which, and what the table says of them."""

import math
from types import SimpleNamespace

import pytest

from dlbench.analysis import comparisons, estimates
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import cells, parquet_files, table_columns
from support.comparisons import judged

RUNTIME = {"field": "runtime", "base": "bare"}


def repeats(rates, **fields):
    """Runs of one combination, one a throughput, each with that throughput."""
    values = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 50}
    return [
        (Run(**values | fields, repeat=repeat), rate) for repeat, rate in enumerate(rates, start=1)
    ]


def row(run, rate, **changes):
    return {
        **{name: getattr(run, name) for name in FIELDS},
        "run_id": run.id, "status": "ok" if rate else "failed", "images_per_second": rate,
        "step_time_sd_s": 0.001 * run.repeat, "start_s": 0.1 * run.repeat, "import_s": 2.0,
        "device_kind": "cpu", "device_model": "Xeon", "site": "here", "data_sha256": None,
        "steps_measured": 50, "framework_version": "2.18",
    } | changes  # fmt: skip


def compared(runs, *entries, rows=None, sentinels=()):
    study = SimpleNamespace(name="test", compare=entries, equivalence_margin=0.01)
    study.without_probes = [run for run, _ in runs]
    return comparisons.rows(study, rows or [row(*run) for run in runs], sentinels)


def named(made):
    return [(r["condition"], r["base"], r["verdict"], r["n_a"], r["n_b"]) for r in made]


def test_a_condition_is_compared_with_the_base_of_its_group():
    runs = [
        *repeats([100, 101, 102]),
        *repeats([90, 91, 92], runtime="apptainer"),
        *repeats([200, 201, 202], batch_per_device=16),
        *repeats([202, 203, 204], batch_per_device=16, runtime="apptainer"),
    ]
    small, large = compared(runs, RUNTIME)
    assert ["-b8-" in small["settings_of"], "-b16-" in large["settings_of"]] == [True, True]
    alone = judged.alone([90, 91, 92], [100, 101, 102])
    assert small["ratio"] == alone.ratio
    assert small["p_difference_raw"] == alone.p_difference
    assert small["p_difference"] == pytest.approx(2 * alone.p_difference)
    assert (small["family"], small["verdict"]) == (2, "slower")
    assert small["value_b"] == estimates.mean([100, 101, 102]).value
    assert large["ratio"] == pytest.approx(1.01, abs=1e-3)


def test_runs_with_a_profile_are_repeats_as_others_are():
    runs = [*repeats([9, 9]), *repeats([8], runtime="x"), *repeats([8], runtime="x", profile=True)]
    assert named(compared(runs, RUNTIME)) == [("x", "bare", "too few runs", 2, 2)]


def test_rates_of_texts_are_in_tokens_too():
    runs = [*repeats([100, 121]), *repeats([50, 50], runtime="apptainer")]
    rows = [row(*run, tokens_per_second=20.0 * run[1]) for run in runs]
    (of_texts,) = compared(runs, RUNTIME, rows=rows)
    tokens = (of_texts["tokens_per_second_a"], of_texts["tokens_per_second_b"])
    assert tokens == pytest.approx((1000, 2200))
    (of_images,) = compared(runs, RUNTIME)
    assert of_images["value_b"] == pytest.approx(110)
    assert (of_images["tokens_per_second_a"], of_images["tokens_per_second_b"]) == (None, None)


def test_frameworks_are_compared_though_each_has_its_environment():
    runs = [*repeats([1, 1, 1]), *repeats([9, 9, 9], framework="jax", environment="jax")]
    (row,) = compared(runs, {"field": "framework", "base": "tensorflow"})
    assert (row["condition"], row["base"]) == ("jax", "tensorflow")
    assert (row["n_a"], row["n_b"], row["settings_of"]) == (3, 3, runs[3][0].id)
    # Two environments of one framework are two conditions, and their names say so.
    runs += repeats([95, 96, 97], framework="jax", environment="mine")
    rows = compared(runs, {"field": "framework", "base": "tensorflow"})
    assert [row["condition"] for row in rows] == ["jax jax", "jax mine"]


def test_spread_and_start_up_stand_beside_the_comparison():
    (found,) = compared([*repeats([5, 6, 9]), *repeats([5, 6], runtime="apptainer")], RUNTIME)
    assert found["step_time_sd_b_s"] == pytest.approx(0.002)
    assert found["step_time_sd_a_s"] == pytest.approx(0.0015)
    assert (found["start_b_s"], found["start_a_s"]) == pytest.approx((0.2, 0.15))
    assert found["import_a_s"] == 2
    assert found["first_batch_a_s"] is None
    assert found["verdict"] == "too few runs"


def test_options_go_with_their_runtime_and_name_it():
    runs = [
        *repeats([1, 1, 1]),
        *repeats([1, 1, 1], runtime="udocker"),
        *repeats([1, 1, 1], runtime="udocker", runtime_options="execmode=S1"),
    ]
    assert named(compared(runs, RUNTIME)) == [
        ("udocker", "bare", "equivalent", 3, 3),
        ("udocker execmode=S1", "bare", "equivalent", 3, 3),
    ]


def test_options_are_compared_alone_within_their_runtime():
    runs = [
        *repeats([1, 1, 1], runtime="apptainer", runtime_options="start=directive"),
        *repeats([2, 2, 2], runtime="apptainer", runtime_options="start=command"),
        *repeats([2, 2, 2]),
    ]
    entry = {"field": "runtime_options", "base": "start=directive"}
    assert named(compared(runs, entry)) == [
        ("start=command", "start=directive", "faster", 3, 3),
        ("defaults", "start=directive", "no base", 3, 0),
    ]


def test_a_strategy_goes_with_its_launcher_which_is_named_where_it_must_be():
    runs = [
        *repeats([1], devices_per_node=2, strategy="mirrored"),
        *repeats([1], devices_per_node=2, strategy="horovod", launcher="horovodrun"),
    ]
    entry = {"field": "strategy", "base": "mirrored"}
    assert [r["condition"] for r in compared(runs, entry)] == ["horovod"]
    runs += repeats([1], devices_per_node=2, strategy="horovod", launcher="mpirun")
    conditions = [r["condition"] for r in compared(runs, entry)]
    assert conditions == ["horovod horovodrun", "horovod mpirun"]


@pytest.mark.parametrize(
    ("field", "base", "conditions"),
    [("copies_per_node", 2, [1, 10]), ("environment", "train", ["old", "train2"])],
)
def test_conditions_come_in_the_order_of_their_values(field, base, conditions):
    runs = [run for value in (*conditions[::-1], base) for run in repeats([7], **{field: value})]
    found = compared(runs, {"field": field, "base": base})
    assert [r["condition"] for r in found] == [str(value) for value in conditions]
    assert {r["base"] for r in found} == {str(base)}


def test_groups_in_which_a_field_is_not_set_come_first():
    lengths = ({"steps": 50}, {"steps": None, "epochs": 3}, {"steps": None, "epochs": 1})
    runs = [
        run
        for length in lengths
        for name in ("bare", "apptainer")
        for run in repeats([7, 8, 9], runtime=name, **length)
    ]
    by_id = {run.id: run for run, _ in runs}
    made = [by_id[row["settings_of"]] for row in compared(runs, RUNTIME)]
    found = [(run.steps, run.epochs) for run in made]
    assert found == [(None, 1), (None, 3), (50, None)]


def test_what_has_no_finished_runs_keeps_its_row():
    for others, bases, counts in (([None] * 3, [1] * 3, (0, 3)), ([1], [None] * 3, (1, 0))):
        made = compared([*repeats(bases), *repeats(others, runtime="apptainer")], RUNTIME)
        assert named(made) == [("apptainer", "bare", "no runs", *counts)]


def test_unstable_runs_count_and_others_do_not():
    runs = [*repeats([1, 2, 3]), *repeats([1, 2, 3], runtime="apptainer")]
    rows = [row(*run) for run in runs]
    for found, status in zip(rows, ("unstable", "oom", "ok"), strict=False):
        found["status"] = status
    assert compared(runs, RUNTIME, rows=rows)[0]["n_b"] == 2


def test_a_version_of_its_own_is_no_further_difference_of_a_framework_or_an_environment():
    for field, base, other in (("framework", "tensorflow", "jax"), ("environment", "train", "new")):
        runs = [*repeats([1, 2, 3]), *repeats([1, 2, 3], **{field: other})]
        rows = [row(*run, framework_version=v) for run, v in zip(runs, "222111", strict=True)]
        asked = {"field": field, "base": base}
        assert compared(runs, asked, rows=rows)[0]["base_flags"] == ""
        rows[4]["framework_version"] = "0"  # two of one
        assert compared(runs, asked, rows=rows)[0]["base_flags"] == "framework_version"


def test_what_else_differs_is_named():
    runs = [*repeats([1, 2, 3]), *repeats([1, 2, 3], runtime="apptainer", runtime_options="x=1")]
    rows = [row(*run) for run in runs]
    assert compared(runs, RUNTIME, rows=rows)[0]["base_flags"] == ""
    rows[1]["device_model"] = "EPYC"
    rows[4]["framework_version"] = "2.17"
    flags = compared(runs, RUNTIME, rows=rows)[0]["base_flags"]
    assert flags == "framework_version, device_model"


@pytest.mark.parametrize("which", [1, 4])
def test_neighbours_of_any_run_of_either_side_are_flagged(which):
    runs = [*repeats([1, 2, 3]), *repeats([1, 2, 3], runtime="apptainer", runtime_options="x=1")]
    rows = [row(*run, disturbed=None) for run in runs]
    assert compared(runs, RUNTIME, rows=rows)[0]["base_flags"] == ""
    rows[which]["disturbed"] = "others used 0.98 of 2 cores"
    assert compared(runs, RUNTIME, rows=rows)[0]["base_flags"] == "neighbours"


def test_real_data_compared_with_synthetic_differs_in_its_digest_as_it_must():
    runs = [*repeats([1, 2, 3]), *repeats([1, 2, 3], dataset="digits")]
    rows = [row(*run, **({"data_sha256": "a"} if i > 2 else {})) for i, run in enumerate(runs)]
    (found,) = compared(runs, {"field": "dataset", "base": "synthetic"}, rows=rows)
    assert (found["condition"], found["base_flags"]) == ("digits", "")


@pytest.mark.parametrize(
    ("entry", "fields", "change", "flags"),
    [
        (RUNTIME, {"runtime": "apptainer"}, {"hardware_sha256": "b"}, "hardware_sha256"),
        (RUNTIME, {"runtime": "apptainer"}, {"software_sha256": "b"}, ""),
        (RUNTIME, {"runtime": "apptainer"}, {"hardware_sha256": None}, ""),
        # GPUs tell their limit among what they are.
        ({"field": "power_limit_w", "base": None}, {"power_limit_w": 250},
         {"hardware_sha256": "b"}, ""),
        (RUNTIME, {"runtime": "apptainer"}, {"power_limit_w": 250}, "power_limit_w"),
        ({"field": "precision", "base": "float32"}, {"precision": "bfloat16"},
         {"software_sha256": "b"}, "software_sha256"),
    ],
)  # fmt: skip
def test_other_fingerprints_are_flagged_but_where_software_is_what_is_compared(
    entry, fields, change, flags
):
    same = {"hardware_sha256": "a", "software_sha256": "a"}
    base, other = repeats([100, 101, 102]), repeats([90, 91, 92], **fields)
    rows = [row(*run, **same) for run in base]
    rows += [row(*run, **same | change) for run in other]
    (found,) = compared([*base, *other], entry, rows=rows)
    assert found["base_flags"] == flags


def test_several_entries_are_one_family_and_what_has_no_other_condition_is_not_compared():
    changes = ({}, {"runtime": "apptainer"}, {"copies_per_node": 2})
    runs = [run for change in changes for run in repeats([1, 2, 3], **change)]
    entries = (RUNTIME, {"field": "copies_per_node", "base": 1})
    found = [(r["field"], r["condition"], r["family"]) for r in compared(runs, *entries)]
    assert found == [("runtime", "apptainer", 2), ("copies_per_node", "2", 2)]
    assert compared(repeats([1]), *entries) == compared(runs) == []


def test_the_table_has_all_that_makes_up_a_group_and_keeps_its_numbers(tmp_path):
    made = compared([*repeats([5, 6, 9]), *repeats([5, 6, 8], runtime="apptainer")], RUNTIME)
    parquet_files.write(tmp_path / "c.parquet", made, table_columns.COMPARISONS)
    (found,) = parquet_files.read(tmp_path / "c.parquet", table_columns.COMPARISONS).to_pylist()
    assert {key: found[key] for key in made[0]} == made[0]
    assert math.isfinite(found["p_tost"])


def across(sessions, sentinels=()):
    """The comparison of two runtimes of which each run is of a session, with sentinels of bare."""
    runs = [*repeats([100, 100.2, 100.4]), *repeats([90, 90.2, 90.4], runtime="apptainer")]
    rows = [
        row(run, rate, session=session) for (run, rate), session in zip(runs, sessions, strict=True)
    ]
    again = [row(run, rate, session="B") for (run, _), rate in zip(runs, sentinels, strict=False)]
    (made,) = compared(runs, RUNTIME, rows=rows, sentinels=again)
    return made


@pytest.mark.parametrize(
    ("sessions", "apart"),
    [("AAABBB", True), ("AABBBB", False), ("AAAAAA", False), ([*"AAA", None, None, None], True),
     ([None] * 6, False)],
)  # fmt: skip
def test_conditions_that_share_no_session_are_measured_apart(sessions, apart):
    made = across(sessions)
    assert made["measured_apart"] == apart
    assert made["base_flags"] == ("measured apart" if apart else "")
    assert "drift" not in made
    assert made["ratio"] == pytest.approx(90.2 / 100.2, abs=1e-5)


def test_sentinels_without_drift_lift_the_flag_and_their_scatter_is_in_the_interval():
    made = across("AAABBB", [100.1, 100.2, 100.3])
    assert (made["measured_apart"], made["base_flags"], made["verdict"]) == (True, "", "slower")
    assert made["drift_ci95_low"] < made["drift"] < made["drift_ci95_high"]
    assert made["drift"] == pytest.approx(1, abs=0.001)
    # The sentinel is the base itself: the ratio is that to what was measured in the session.
    alone = judged.alone([90, 90.2, 90.4], [100.1, 100.2, 100.3])
    assert [made[n] for n in ("ratio", "ci95_low", "ci95_high")] == pytest.approx(
        [alone.ratio, alone.ci95_low, alone.ci95_high]
    )


@pytest.mark.parametrize(
    ("sentinels", "drift"),
    [([90, 90.2, 90.4], 0.9), ([96, 100, 104], 1.0), ([100.1, 100.2], None)],
    ids=["drift", "scatter", "two runs"],
)
def test_drift_scatter_or_too_few_sentinels_leave_the_flag(sentinels, drift):
    made = across("AAABBB", sentinels)
    assert made["base_flags"] == "measured apart"
    assert made.get("drift") == (drift and pytest.approx(drift, abs=0.01))


def imported(rate, repeat, **changes):
    """A row of a log, which states but a few things."""
    row = dict.fromkeys(table_columns.RUNS.names) | {
        "run_id": f"log-{rate}-{repeat}-{sorted(changes.items())}", "status": "ok",
        "images_per_second": rate, "repeat": repeat, "model": "resnet50", "dataset": "imagenet",
        "devices": 4, "global_batch": 256, "batch_per_device": 64, "site": "LSDF",
        "timing_source": "tf_cnn_benchmarks",
    }  # fmt: skip
    return row | changes


def test_imported_runs_are_compared_with_those_of_their_own_site():
    rows = [
        imported(rate, repeat, runtime=runtime, site=site)
        for site in ("LSDF", "ForHLR-II")
        for runtime, rates in {"udocker": (200, 201, 202), "apptainer": (220, 221, 222)}.items()
        for repeat, rate in enumerate(rates, start=1)
    ]
    rows.append(imported(500, 1, runtime="podman", site="elsewhere"))  # has no base, is no row
    made = compared([], {"field": "runtime", "base": "udocker"}, rows=rows)
    sites = {cells.run_name(row, "test"): row["site"] for row in rows}
    found = [(sites[r["settings_of"]], r["condition"], r["n_a"], r["n_b"]) for r in made]
    assert found == [
        ("ForHLR-II", "apptainer", 3, 3),
        ("LSDF", "apptainer", 3, 3),
    ]
    assert {row["verdict"] for row in made} == {"faster"}
    assert made[0]["ratio"] == pytest.approx(221 / 201, rel=1e-4)
    parquet_files.table(made, table_columns.COMPARISONS)


@pytest.mark.parametrize(("other", "flags"), [("one", ""), ("another", "measured apart")])
def test_what_one_import_brought_is_of_one_session_that_nobody_knows(other, flags):
    rows = [imported(rate, rate, runtime="udocker", study="one") for rate in (200, 201, 202)]
    rows += [imported(rate, rate, runtime="apptainer", study=other) for rate in (220, 221, 222)]
    (made,) = compared([], {"field": "runtime", "base": "udocker"}, rows=rows)
    assert made["base_flags"] == flags


def test_own_runs_that_another_program_trained_are_compared_once():
    runs = [*repeats([100, 101, 102]), *repeats([90, 91, 92], runtime="apptainer")]
    rows = [row(*run, timing_source="tf_cnn_benchmarks", devices=1) for run in runs]
    (found,) = compared(runs, RUNTIME, rows=rows)
    assert (found["family"], found["n_a"], found["n_b"]) == (1, 3, 3)


def test_a_parameter_of_another_program_is_compared_where_all_others_agree():
    texts = [f"micro_batch={m} tensor_parallel={n}" for m, n in ((1, 1), (1, 2), (2, 1), (2, 8))]
    runs = [
        run
        for text, rate in zip(texts, (100, 90, 200, 180), strict=True)
        for run in repeats([rate, rate + 1, rate + 2], trainer="own", trainer_parameters=text)
    ]
    made = compared(runs, {"field": "parameters.tensor_parallel", "base": 1})
    parameters = {run.id: run.trainer_parameters for run, _ in runs}
    assert [parameters[r["settings_of"]] for r in made] == [texts[1], texts[3]]
    assert named(made) == [("2", "1", "slower", 3, 3), ("8", "1", "slower", 3, 3)]


def test_software_that_differs_by_the_variables_of_a_run_is_meant_to():
    runs = [*repeats([100, 101, 102]), *repeats([90, 91, 92], variables="NCCL_ALGO=Ring")]
    rows = [row(*run, software_sha256=run[0].variables or "none") for run in runs]
    (made,) = compared(runs, {"field": "variables", "base": ""}, rows=rows)
    assert (made["condition"], made["base"]) == ("NCCL_ALGO=Ring", "defaults")
    assert made["base_flags"] == ""
