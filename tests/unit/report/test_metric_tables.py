"""The report's table of metrics: a row for each metric and condition, and none without."""

import pytest

from support.results import made_tables
from support.results.made_reports import column, made


def test_the_table_has_means_intervals_and_runs_by_condition(tmp_path):
    rows = [
        made_tables.run(repeat=repeat, devices=devices)
        for devices in (1, 2)
        for repeat in (1, 2, 3)[: 3 if devices == 1 else 1]
    ]
    values = {1: (100, 110, 121), 2: (50,)}
    for row in rows:
        value = values[row["devices"]][row["repeat"] - 1]
        metric = {"name": "busbw", "value": value, "unit": "GB/s", "better": "higher"}
        row["metrics"] = [{"run_id": row["run_id"], **metric}]
    none = made(tmp_path, [row | {"metrics": []} for row in rows])
    assert "metrics" not in [table.name for table in none.tables]
    found = made(tmp_path, rows)
    assert column(found, "metric", "metrics").values == ["busbw", "busbw"]
    assert column(found, "mean", "metrics").values == [110, 50]
    assert column(found, "runs", "metrics").values == [3, 1]
    # The logarithms lie ln 1.1 apart: error 0.0953102 / sqrt(3), t of 2 degrees 4.302653.
    (low, high), unknown = column(found, "95 % interval", "metrics").values
    assert (low, high) == pytest.approx((110 / 1.267142, 110 * 1.267142), rel=1e-5)
    assert unknown is None


def test_metrics_in_which_runs_do_not_agree_are_named(tmp_path):
    rows = [made_tables.run(repeat=repeat) for repeat in (1, 2)]
    for row, unit in zip(rows, ("GB/s", "MB/s"), strict=True):
        metric = {"name": "busbw", "value": 1.0, "unit": unit, "better": ""}
        other = metric | {"name": "latency", "unit": "us"}
        row["metrics"] = [{"run_id": row["run_id"], **one} for one in (metric, other)]
    found = made(tmp_path, rows)
    table = next(table for table in found.tables if table.name == "metrics")
    assert table.rows == 1 and "Left out" in table.description
    assert "busbw: unit is 'GB/s' in" in table.description
