"""The table of baselines: a row for each size, with the conditions that matter for it."""

import json

import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.results import collect_runs
from support.results import made_baselines


def collected(folder, *found):
    place = folder / "machine"
    place.mkdir(exist_ok=True)
    for number, one in enumerate(found):
        (place / f"tensorflow-{number}.json").write_text(json.dumps(one))
    collect_runs.collect_baselines(folder, folder)
    return pq.read_table(folder / "baselines.parquet").to_pylist()


def test_each_size_is_a_row_with_where_and_how_it_was_measured(tmp_path):
    assert collected(tmp_path) == []
    rows = collected(tmp_path, made_baselines.exchange(devices=2))
    assert len(rows) == len(made_baselines.SIZES)
    for row, size in zip(rows, made_baselines.SIZES, strict=True):
        assert (row["measure"], row["size_bytes"], row["unit"]) == ("all_reduce", size, "GB/s")
        assert row["baseline"] == "tensorflow-0"
        assert (row["strategy"], row["devices"], row["framework_version"]) == ("horovod", 2, "2.18")
        assert row["low"] <= row["value"] <= row["high"]
        assert row["measured_at"].year == 2026
        assert row["precision"] is None  # gradients are float32 in each
    assert (tmp_path / "baselines.csv").read_text().count("\n") == len(rows) + 1


def test_of_one_device_strategy_and_launcher_are_left_out_and_reasons_stay(tmp_path):
    rows = collected(tmp_path, made_baselines.device())
    by_measure = {row["measure"]: row for row in rows}
    assert by_measure["matrix_product"]["precision"] == "float32"
    assert by_measure["memory_copy"]["precision"] is None
    assert {row["strategy"] for row in rows} == {None}
    copies = by_measure["host_to_device"]
    assert copies["value"] is None and "nothing is copied" in copies["unknown"]
    assert by_measure["items_read"]["dataset"] == "digits"


def test_every_collective_keeps_its_strategy_and_launcher_and_the_reason_why_it_is_unknown(
    tmp_path,
):
    exchange = made_baselines.exchange(devices=2)
    exchange["rows"] = [
        {"measure": "all_gather", "unit": "GB/s", "value": 1.0, "size_bytes": 1024},
        {"measure": "sendrecv", "unit": "GB/s", "unknown": "Horovod has no such operation"},
    ]
    gathered, sent = collected(tmp_path, exchange)
    for row in (gathered, sent):
        assert (row["strategy"], row["launcher"], row["devices"]) == ("horovod", "horovodrun", 2)
    assert sent["value"] is None and sent["unknown"] == "Horovod has no such operation"


def test_a_damaged_file_is_named_with_the_way_out(tmp_path):
    path = tmp_path / "machine" / "tensorflow-0.json"
    path.parent.mkdir()
    for text in ("", "[]", "{}", '{"conditions": {}, "rows": []}'):
        path.write_text(text)
        with pytest.raises(Error, match=r"tensorflow-0\.json: expected a baseline.*delete it"):
            collect_runs.collect_baselines(tmp_path, tmp_path)
