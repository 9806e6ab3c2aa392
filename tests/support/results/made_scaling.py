"""Runs on several numbers of devices."""

ROW = {
    "run_id": "r", "model": "lenet5", "dataset": "synthetic", "data_sha256": None, "seed": 1,
    "steps_measured": 50, "precision": "float32", "xla": False, "compile": False, "mode": "train",
    "strategy": "mirrored", "strategy_options": "", "launcher": "none", "runtime": "bare",
    "runtime_options": "", "copies_per_node": 1, "framework_version": "2",
    "environment": "train", "device_model": "CPU", "device_kind": "cpu", "site": "here",
    "status": "ok", "epochs": float("nan"), "images_per_second": 100.0, "nodes": 1,
}  # fmt: skip


def runs(*cases, repeats=2):
    """(devices, batch per device, changes) as rows of the runs table, some repeats each."""
    return [
        ROW
        | {"run_id": f"r{number}-{repeat}", "devices": devices, "batch_per_device": batch}
        | {"global_batch": devices * batch, "images_per_second": 100.0 * devices + repeat}
        | {"repeat": repeat, **changes}
        for number, (devices, batch, changes) in enumerate(cases)
        for repeat in range(repeats)
    ]
