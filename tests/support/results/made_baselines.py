"""Baselines of machines that were never measured: files as measure_baselines.py writes them."""

import json

from dlbench.baselines import collectives, rounds
from dlbench.results import collect_runs

SIZES = tuple(2**power for power in range(10, 27, 2))
MACHINE = {
    "measured_at": "2026-11-23T17:00:00Z", "host": "node", "device_model": "A CPU",
    "load_average_1min": 0.5, "hardware_sha256": "hard",
}  # fmt: skip
CONDITIONS = {
    "site": "here", "framework": "tensorflow", "environment": "train", "runtime": "bare",
    "runtime_options": "", "threads_per_device": 1, "precision": "float32", "strategy": "horovod",
    "strategy_options": "", "launcher": "horovodrun", "nodes": 1, "device_kind": "cpu",
}  # fmt: skip
SPREAD = (0.97, 1.0, 1.06, 1.01, 0.99)  # of rounds


def exchange(devices, latency_s=2e-4, gb_per_s=2.0, machine=(), **changes):
    """All-reduce that takes a latency and the bytes at a bandwidth, whatever their number."""
    rows = []
    for size in SIZES:
        moved = collectives.bus_bytes(collectives.ALL_REDUCE, size, devices)
        seconds = [(latency_s + moved / gb_per_s / 1e9) * share for share in SPREAD]
        rows.append(rounds.timed(collectives.ALL_REDUCE, size, seconds, moved))
    return _file({"devices_per_node": devices, **changes}, machine, rows)


def device(machine=(), **changes):
    rows = [
        rounds.summary("matrix_product", "TFLOP/s", [0.05, 0.06, 0.055]),
        rounds.summary("memory_copy", "GB/s", [9.0, 10.0, 11.0], size_bytes=3 << 28),
        {"measure": "host_to_device", "unit": "GB/s", "unknown": "nothing is copied to it"},
        rounds.timed("file_read_warm", 1 << 27, [0.02, 0.03], 1 << 27),
        rounds.summary("items_read", "items/s", [9000.0, 8000.0], dataset="digits"),
    ]
    alone = {"strategy": "single", "launcher": "none", "devices_per_node": 1}
    return _file({**alone, **changes}, machine, rows)


def write(folder, *found):
    """Write the table of such files into a folder of tables."""
    place = folder / "machine"
    place.mkdir(exist_ok=True)
    for number, one in enumerate(found):
        (place / f"made-{number}.json").write_text(json.dumps(one))
    collect_runs.collect_baselines(folder, folder)


def _file(changes, machine, rows):
    conditions = CONDITIONS | changes
    framework = conditions["framework"]
    versions = {framework: {"jax": "0.10", "pytorch": "2.15"}.get(framework, "2.18")}
    about = {"conditions": conditions, **MACHINE, "versions": versions}
    return about | dict(machine) | {"rows": rows}
