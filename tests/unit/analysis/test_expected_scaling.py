"""Expected scaling: computation and all-reduce by hand numbers, and where nothing is expected."""

import math

import pytest

from dlbench.analysis import limits, scaling_series
from dlbench.tables import table_columns

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
