"""What a record says of memory: of the device and the process that took most."""

import pytest

from dlbench.log.event_log import EventLog
from dlbench.tables import table_columns
from dlbench.tables import table_columns as table_columns_module
from support.runs.parsed_runs import TWO, parsed, write

GIB = 2**30
GPUS = {"gpus": {"kinds": [{"name": "H100", "memory_bytes": 80 * GIB}]}}


def counted(allocated, reserved=None, **end):
    values = {"peak_allocated_bytes_per_device": allocated}
    return {**values, "peak_reserved_bytes_per_device": reserved, **end}


def described(folder, hardware=None, limit="unlimited", total=16 * GIB):
    """Add to a log what its rank said of its machine."""
    log = EventLog(folder / "train.jsonl")
    facts = {"hardware": hardware or {"gpus": {"kinds": []}}, "limits": {"memory_bytes": limit}}
    facts["present"] = {"host": "h", "cpus": [0], "gpus": [], "memory_bytes": total}
    log.write("machine", software={}, variables={}, unknown={}, **facts)
    log.close()


def test_the_peak_is_that_of_the_device_that_took_most_over_all_ranks(tmp_path):
    write(tmp_path, [0.5] * 3, 0, **counted([5, 7], [8, 8], peak_memory_bytes=100))
    write(tmp_path, [0.5] * 3, 1, **counted([6, 6], [9, 6], peak_memory_bytes=90))
    summary = parsed(tmp_path, TWO)["summary"]
    assert summary["peak_allocated_bytes_per_device"] == 7
    assert summary["peak_reserved_bytes_per_device"] == 9
    assert (summary["peak_memory_bytes"], summary["device_memory_unknown"]) == (100, None)


def test_one_rank_that_does_not_count_leaves_the_peak_unknown_with_its_reason(tmp_path):
    write(tmp_path, [0.5] * 3, 0, **counted([5], [8], peak_memory_bytes=100))
    write(tmp_path, [0.5] * 3, 1, **counted(None, device_memory_unknown="no allocator"))
    summary = parsed(tmp_path, TWO)["summary"]
    assert summary["peak_allocated_bytes_per_device"] is None
    assert summary["peak_reserved_bytes_per_device"] is None
    assert summary["device_memory_unknown"] == "no allocator"
    assert summary["peak_memory_bytes"] is summary["memory_limit_bytes"] is None


def test_what_nvml_saw_in_use_is_the_most_of_any_sample_on_any_gpu(tmp_path):
    write(tmp_path, [0.5] * 3)
    log = EventLog(tmp_path / "train.jsonl")
    for t_s, used in ((0.1, (3, 4)), (0.2, (9, None)), (0.3, (5, 2))):
        gpus = [{"gpu": i, "memory_used_bytes": value} for i, value in enumerate(used)]
        log.write("sample", t_s=t_s, gpus=gpus)
    log.close()
    assert parsed(tmp_path)["summary"]["peak_used_bytes_per_device"] == 9


@pytest.mark.parametrize(
    ("machine", "taken", "limit"),
    [
        ({}, None, 16 * GIB),
        ({"limit": 4 * GIB}, None, 4 * GIB),
        ({"limit": None}, None, 16 * GIB),
        ({"hardware": GPUS}, None, 80 * GIB),
        ({"hardware": GPUS}, 60 * GIB, 60 * GIB),
        ({"hardware": {"gpus": "lost"}, "total": None}, None, None),
        ({"limit": 10**400, "total": -5}, None, None),
    ],
    ids=["node", "group", "a group unseen", "GPU", "part of a GPU", "nothing", "no counts"],
)
def test_there_is_as_much_memory_as_gpu_or_node_and_group_have(tmp_path, machine, taken, limit):
    write(tmp_path, [0.5] * 3, device_memory_limit_bytes=taken)
    described(tmp_path, **machine)
    assert parsed(tmp_path)["summary"]["memory_limit_bytes"] == limit


def test_each_number_is_a_column_of_the_table_of_runs(tmp_path):
    write(tmp_path, [0.5] * 3)
    summary = parsed(tmp_path)["summary"]
    mine = {name for name in summary if "memory" in name or name.startswith("peak_")}
    assert (
        mine
        == {column.name for column in table_columns_module.MEMORY}
        < set(table_columns.RUNS.names)
    )
