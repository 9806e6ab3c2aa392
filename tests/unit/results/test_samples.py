"""The table of a run's samples: a row a process, and a row a GPU."""

import pyarrow.parquet as pq

from dlbench.records import run_record
from dlbench.results import collect_runs
from dlbench.tables import parquet_files, table_columns
from support.runs.collected_runs import PLAIN, PROCESS, finished, study
from support.runs.collected_runs import folder as folder

GPU = {
    "gpu": 0, "utilisation_percent": 97, "memory_used_bytes": 4 << 30, "power_w": 305.5,
    "temperature_c": 61, "clock_sm_mhz": 1980, "clock_memory_mhz": 2619, "throttle_reasons": [],
    "energy_j": 152.5,
}  # fmt: skip


def samples_of(made):
    collect_runs.collect(made, "cpu", "tables")
    place = run_record.folder(made.runs[0].id)
    return parquet_files.read(place / "samples.parquet", table_columns.SAMPLES).to_pylist()


def filled(**values):
    return dict.fromkeys(table_columns.SAMPLES.names) | values


def test_a_process_and_each_of_its_gpus_is_a_row_of_its_own():
    made = study(PLAIN)
    run = made.runs[0]
    reasons = ["sw_power_cap", "hw_slowdown"]
    other = GPU | {"gpu": "GPU-5d1b", "throttle_reasons": reasons, "power_w": None}
    unread = dict.fromkeys(GPU) | {"gpu": 1}  # its reasons are absent, and not empty
    later = {"t_s": 1.5, "cpu_percent": None, "memory_bytes": 5}
    finished(run, samples=[PROCESS | {"gpus": [GPU, other, unread]}, later])
    process, first, second, third, plain = samples_of(made)
    assert process == filled(run_id=run.id, rank=0, **PROCESS)
    assert plain == filled(run_id=run.id, rank=0, t_s=1.5, memory_bytes=5)
    assert third == filled(run_id=run.id, rank=0, t_s=0.5, gpu="1")
    whose = {"run_id": run.id, "rank": 0, "t_s": 0.5}
    assert first == filled(**GPU | whose | {"gpu": "0", "throttle_reasons": ""})
    assert second == filled(**other | whose | {"throttle_reasons": "sw_power_cap+hw_slowdown"})


def test_every_rank_has_samples_of_its_own():
    two = {"strategy": "horovod", "devices_per_node": 2}
    made = study(PLAIN | two)
    finished(made.runs[0], samples=[PROCESS, PROCESS | {"t_s": 1.0}], ranks=2)
    rows = samples_of(made)
    assert [(row["rank"], row["t_s"]) for row in rows] == [(0, 0.5), (0, 1.0), (1, 0.5), (1, 1.0)]


def test_a_table_that_is_there_is_kept_until_it_is_deleted_or_the_log_is_another_one():
    made = study(PLAIN)
    place = finished(made.runs[0], samples=[PROCESS])
    assert len(samples_of(made)) == 1
    before = (place / "samples.parquet").stat().st_mtime_ns
    assert len(samples_of(made)) == 1
    assert (place / "samples.parquet").stat().st_mtime_ns == before
    (place / "samples.parquet").unlink()
    assert len(samples_of(made)) == 1
    (place / "train.jsonl").unlink()
    finished(made.runs[0], samples=[PROCESS, PROCESS])
    assert len(samples_of(made)) == 2
    (place / "train.jsonl").unlink()
    finished(made.runs[0])
    assert samples_of(made) == []
    assert b"log_sha256" in pq.read_schema(place / "samples.parquet").metadata
