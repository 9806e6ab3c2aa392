"""Comparisons of metrics that programs name, as `compare` with `metric` asks."""

import math
from types import SimpleNamespace

import pytest

from dlbench.analysis import comparisons, measures
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import parquet_files, table_columns

BASE = (100, 110, 121)  # whose logarithms lie ln 1.1 apart
SHOWN = 1.1 ** (2 * math.sqrt(2))  # a ratio of which p is 0.025721
ENTRY = {"field": "runtime", "base": "bare", "metric": "busbw"}


def repeats(values, rate=10.0, **fields):
    """(Run, row of the runs table, value of the metric) of each repeat."""
    given = {"model": "lenet5", "dataset": "none", "batch_per_device": 8, "steps": 50}
    for repeat, value in enumerate(values, start=1):
        run = Run(**given | fields, repeat=repeat)
        row = {name: getattr(run, name) for name in FIELDS}
        row |= {"run_id": run.id, "status": "ok", "images_per_second": rate, "site": "here"}
        yield run, row | {"device_kind": "cpu"}, value


def compared(*groups, entries=(ENTRY,), units=("GB/s",), better="higher"):
    """(rows of comparisons of metrics, of throughput) of groups of repeats.

    Args:
        units: of the groups, the last one also of further ones.
    """
    study = SimpleNamespace(name="test", compare=entries, equivalence_margin=0.01)
    study.without_probes = [run for group in groups for run, _, _ in group]
    rows = [row for group in groups for _, row, _ in group]
    units = [*units, *[units[-1]] * len(groups)]
    table = [
        {"run_id": run.id, "name": "busbw", "value": value, "unit": unit, "better": better}
        for group, unit in zip(groups, units, strict=False)
        for run, _, value in group
        if value is not None
    ]
    named, attached = measures.named(table), measures.attached(rows, table)
    found = comparisons.rows(study, attached, [], named)
    assert parquet_files.table(found, table_columns.COMPARISONS).num_rows == len(found)
    sides = {True: [], False: []}
    for row in found:
        sides[row["metric"] == "images_per_second"].append(row)
    return sides[False], sides[True]


def pair(factor, **changes):
    values = [value * factor for value in BASE]
    return [*repeats(BASE)], [*repeats(values, **{"runtime": "udocker"} | changes)]


@pytest.mark.parametrize(
    ("better", "factor", "verdict"),
    [("higher", SHOWN, "better"), ("higher", 1 / SHOWN, "worse"), ("lower", SHOWN, "worse"),
     ("lower", 1 / SHOWN, "better"), ("", SHOWN, "differs"), ("higher", 1.1, "undecided")],
)  # fmt: skip
def test_the_verdict_is_said_in_the_metrics_direction(better, factor, verdict):
    (row,), throughput = compared(*pair(factor), better=better)
    assert row["verdict"] == verdict
    assert row["ratio"] == pytest.approx(factor)
    assert (row["value_a"], row["value_b"]) == pytest.approx((110 * factor, 110))
    assert (row["metric"], row["unit"], row["better"]) == ("busbw", "GB/s", better)
    assert throughput == []  # nobody asked for it


def test_runs_need_no_throughput_to_be_compared_by_a_metric():
    base, others = pair(SHOWN)
    bare = [(run, row | {"images_per_second": None}, value) for run, row, value in base]
    (row,), _ = compared(bare, others)
    assert (row["n_a"], row["n_b"], row["verdict"]) == (3, 3, "better")
    assert row["p_difference"] == pytest.approx(0.025721, abs=1e-6)


def test_values_without_logarithms_units_that_differ_and_unknown_metrics_are_not_compared():
    base = [*repeats((0, 1, 2))]
    others = pair(1)[1]
    unknown = {"entries": [ENTRY | {"metric": "latency"}]}
    for groups, changes, verdict, flags in (
        ((base, others), {}, comparisons.NO_RATIO, f"busbw is 0 in {base[0][0].id}"),
        (pair(1), {"units": ("GB/s", "MB/s")}, comparisons.UNITS_DIFFER, "unit is 'GB/s' in"),
        (pair(1), unknown, comparisons.NO_RUNS, "no run has it; metrics of runs: busbw"),
    ):
        (row,), _ = compared(*groups, **changes)
        assert row["verdict"] == verdict and "ratio" not in row
        assert row["base_flags"].startswith(flags)


def test_a_column_of_the_runs_table_is_a_metric_too():
    base, others = pair(1)
    for group, times in ((base, BASE), (others, [t * SHOWN for t in BASE])):
        for (_, row, _), time in zip(group, times, strict=True):
            row["step_time_p95_s"] = time
    entry = ENTRY | {"metric": "step_time_p95_s"}
    (row,), _ = compared(base, others, entries=[entry])
    assert (row["unit"], row["better"], row["verdict"]) == ("s", "lower", "slower")


def test_metrics_change_no_verdict_on_throughput():
    """They are a family of their own."""
    asked = {"field": "runtime", "base": "bare"}
    base, others = pair(SHOWN)
    for group in (base, others):
        for _, row, value in group:
            row["images_per_second"] = value
    metrics, (throughput,) = compared(base, others, entries=[asked, ENTRY])
    assert [row["family"] for row in (*metrics, throughput)] == [1, 1]
    assert throughput["verdict"] == "faster"
