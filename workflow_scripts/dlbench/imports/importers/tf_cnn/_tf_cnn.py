"""Settings and rates in tf_cnn_benchmarks' logs, shared by the importers of these logs.

- The rate printed at step s is the batch over the mean time of all s steps so far, a cumulative
  mean. So s steps took T(s) = s batch / rate, and the steps between two prints took the difference
  of two T.
- The batch is that of the process that prints: of all its GPUs, under Horovod of one. Only
  distributed_all_reduce (SingleSess) prints rates of all workers.
- A worker of a distributed training (`/job:worker`) prints its own devices, its own batch (today's
  version that of all workers) and its own rates; its total alone is of all workers. Total over rate
  is their number, where it is a whole one and they wait for one another.
- Steps are counted from 1 after the warm-up, which is not printed.

Source: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py.
"""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import accumulate
from typing import Any

import numpy as np

from dlbench.imports import log_values, windows
from dlbench.imports.importers import Steps

FAMILY = "tf_cnn_benchmarks"
WORKERS_DOUBT = 0.02  # relative: the total is by the clock, with what is between steps
SYNTHETIC = " (synthetic)"
MODES = {
    "training": "train",
    "training + evaluation": "train",
    "forward only": "forward",
    "forward-only": "forward",  # until 1.13
}
EVALUATION = "evaluation"
# Pixels per side of the images that its models for ImageNet read.
IMAGE_SIDES = {
    **dict.fromkeys(("googlenet", "mobilenet", "nasnet", "vgg11", "vgg16", "vgg19"), 224),
    **dict.fromkeys(("alexnet", "trivial"), 227),
    **dict.fromkeys(("inception3", "inception4"), 299),
    "lenet": 28,
    "nasnetlarge": 331,
    "overfeat": 231,
}
CIFAR10_SIDE = 32  # of the images that its models for CIFAR-10 read
RESNET = re.compile(r"(?:official_)?resnet\d+(?:_v1\.5|_v2)?")  # of ImageNet: 224


def columns(settings: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """Columns of the runs table from the settings that tf_cnn_benchmarks prints or writes.

    Args:
        settings: texts by their names in benchmark.log (model, dataset, mode, devices,
            batch_size_per_device, ...), and `batch_size`, of all workers if that is known.
        notes: notes on unknown or converted values are appended to this list.
    """
    known: dict[str, Any] = {"framework": "tensorflow"}
    for name, key in (("model", "model"), ("optimizer", "optimizer"), ("strategy", "variables")):
        if key in settings:
            known[name] = settings[key]
    if "dataset" in settings:
        dataset = settings["dataset"].removesuffix(SYNTHETIC)
        known["dataset"] = dataset
        if settings["dataset"].endswith(SYNTHETIC):
            known["dataset"] = "synthetic"
            notes.append(f"synthetic images like those of {dataset}")
        if shape := item_shape(settings.get("model"), dataset):
            known["item_shape"] = shape
    if mode := MODES.get(settings.get("mode", "")):
        known["mode"] = mode
    steps = positive(settings.get("num_batches"))
    per_device = positive(settings.get("batch_size_per_device"))
    if epochs := whole_epochs(settings.get("num_epochs"), steps):
        known["epochs"] = epochs
        notes.append(f"{epochs} epochs are {steps} steps")
    elif steps:
        known["steps"] = steps
    if per_device:
        known["batch_per_device"] = per_device
    return known | _devices(settings, per_device, notes)


def whole_epochs(text: str | None, steps: int | None) -> int | None:
    """The number of epochs that the user set; None if the user set a number of steps.

    The program prints the epochs of its whole steps, which may be a fraction of a step fewer than
    the epochs that the user set.

    >>> whole_epochs("4.9971", 488), whole_epochs("5.12", 500), whole_epochs(None, 500)
    (5, None, None)
    """
    epochs = log_values.real(text, 0.5, 1e6)
    if not epochs or not steps or abs(epochs - round(epochs)) * steps >= epochs:
        return None
    return round(epochs)


def item_shape(model: str | None, dataset: str) -> str | None:
    """The shape of one image as the runs table has it; None if it is unknown.

    Source: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/models.

    >>> item_shape("resnet50_v2", "imagenet"), item_shape("alexnet", "cifar10")
    ('224x224x3', '32x32x3')
    """
    side = None
    if dataset == "cifar10":
        side = CIFAR10_SIDE
    elif dataset == "imagenet":
        side = 224 if RESNET.fullmatch(model or "") else IMAGE_SIDES.get(model or "")
    return f"{side}x{side}x3" if side else None


def _devices(settings, per_device, notes):
    devices, batch = device_list(settings.get("devices", "")), positive(settings.get("batch_size"))
    if not devices:
        return {"global_batch": batch} if batch else {}
    known = {"device_kind": "gpu" if "gpu" in devices[0].lower() else "cpu"}
    if is_worker(settings):
        return known
    of_all_workers = devices[0].startswith(("horovod/", "/job:", "job:"))
    if of_all_workers and per_device:  # the batch may be of one worker
        batch = per_device * len(devices)
    if not batch or not per_device:
        return known | {"devices": len(devices)}
    count = batch // per_device
    if count % len(devices) or batch % per_device:
        notes.append(f"{batch} items on {len(devices)} devices are not {per_device} on each")
        return known | {"devices": len(devices), "global_batch": batch}
    if count == len(devices) and not of_all_workers:
        known |= {"nodes": 1, "devices_per_node": count}
    return known | {"devices": count, "global_batch": batch}


def is_worker(settings: Mapping[str, str]) -> bool:
    """Whether settings are those of one of several workers, which lists only its own devices."""
    devices = device_list(settings.get("devices", ""))
    single_session = settings.get("single_sess") == "True"
    return bool(devices) and devices[0].startswith("/job:worker") and not single_session


def worker_columns(
    settings: Mapping[str, str], total: float | None, rate: float | None, half_digit: float
) -> tuple[dict[str, int], str]:
    """(devices and global_batch of all workers or {}, how they were derived or why not).

    Args:
        total: items/s of all workers, printed by one of them.
        rate: the last rate of that worker, items/s.
        half_digit: half of the rate's last printed digit, items/s.
    """
    devices = len(device_list(settings.get("devices", "")))
    per_device = positive(settings.get("batch_size_per_device"))
    if settings.get("sync") == "False":
        return {}, "workers that do not wait for one another (Sync: False) have no common step"
    if not total or not rate or not half_digit < rate < math.inf:
        return {}, "without a total of all workers their number is unknown"
    ratio = total / rate
    fewest = math.ceil(total / (rate + half_digit) * (1 - WORKERS_DOUBT))
    most = math.floor(total / (rate - half_digit) * (1 + WORKERS_DOUBT))
    if fewest > most or most < 1:
        return {}, f"the total is {ratio:.3g} times the worker's rate, no whole number of workers"
    stated = (positive(settings.get("batch_size")) or 0) / (devices * (per_device or math.inf))
    if stated > 1:
        if not (stated.is_integer() and fewest <= stated <= most):
            reason = (
                f"{stated:g} workers by the batch, {ratio:.3g} by the total over the worker's rate"
            )
            return {}, reason
        fewest = most = int(stated)
    if fewest < most:
        return {}, f"{fewest} to {most} workers by the total over the worker's rounded rate"
    known = {"devices": fewest * devices}
    if per_device:
        known["global_batch"] = known["devices"] * per_device
    reason = f"the total is {ratio:.4g} times the rate of this worker: {fewest} workers"
    return known, reason


def device_list(text: str) -> list[str]:
    """The devices in a text such as `['/gpu:0', '/gpu:1']`; [] if it is no such list."""
    text = text.strip()
    return re.findall(r"'([^']+)'", text) if text[:1] == "[" and text[-1:] == "]" else []


def process_batch(
    known: Mapping[str, Any], devices: Sequence[str] = (), single_session: bool = False
) -> int | None:
    """Items per step of the process that printed the rates; None if unknown.

    Args:
        known: columns of the run.
        devices: the list of devices that the process printed.
        single_session: whether one process prints the rates of all workers.
    """
    batch, per_device = known.get("global_batch"), known.get("batch_per_device")
    if single_session:
        return batch
    horovod = known.get("strategy") == "horovod" or any(d.startswith("horovod/") for d in devices)
    if horovod:
        return per_device
    return per_device * len(devices) if per_device and devices else batch


def positive(value: Any) -> int | None:
    """A positive number as an int, without its decimals; None if it is none."""
    try:
        number = int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 < number < 2**31 else None


def add_times(steps: Steps, rates: Sequence[float], batch: int, half_digit: float = 0.0) -> int:
    """Fill in the times of windows from cumulative rates.

    Windows are joined where rounding leaves their times in doubt (dlbench/imports/windows.py): at
    step 1000, rates like `47.3` every 10 steps do not determine the time of 10 steps.

    Args:
        steps: from `without_times`.
        rates: items/s, one for each of its rows.
        batch: items per step of the process that printed the rates.
        half_digit: half of the last printed digit, items/s; 0: all digits are printed.

    Returns:
        The number of rows without a time.
    """
    readings = (
        (step * batch / rate, step * batch / rate * half_digit / rate)
        if 0 < rate < math.inf
        else (0.0, 0.0)
        for step, rate in zip(steps.step, rates, strict=True)
    )
    before, before_s, before_rate = 0, 0.0, None
    ends = windows.ends(readings)
    for row in ends:
        step, rate = steps.step[row], rates[row]
        took_s = step * batch / rate
        window = steps.window_steps[row] = step - before
        # Equal rates: without the rounding of a difference.
        same = before_rate in (None, rate)
        steps.step_time_s[row] = batch / rate if same else (took_s - before_s) / window
        before, before_s, before_rate = step, took_s, rate
    return len(steps) - len(ends)


def without_times(steps: Steps) -> None:
    """Set the columns of times and windows of steps to unknown."""
    steps.step_time_s = array("d", [math.nan]) * len(steps)
    # Four bytes each where they suffice: a million steps take 4 MB less.
    small = np.max(np.asarray(steps.step), initial=0) < 2**31
    steps.window_steps = array("i" if small else "q", [0]) * len(steps)


def merge_ranks(steps: Steps, rates: array, in_order: bool = True) -> int:
    """Merge the rows that several processes printed into one log.

    Synchronous steps end together, so the rates of ranks differ little, and the slowest counts.
    The mean of the ranks' losses counts. The last step is left out unless as many processes
    printed it as the step before.

    Args:
        steps, rates: in the order of the log; changed in place.
        in_order: the ranks of rows are unknown, except that each rank's rows are in order.

    Returns:
        The number of processes; 0 if some left steps out or their rows cannot be separated.
    """
    prints: dict[int, list[tuple[float, float]]] = {}  # (rate, loss) of each rank, by step
    for step, rate, loss in zip(steps.step, rates, steps.loss, strict=True):
        prints.setdefault(step, []).append((rate, loss))
    ranks = max(map(len, prints.values()))
    ordered = sorted(prints)
    # No process is two rows ahead of another.
    positions = {step: position for position, step in enumerate(ordered)}
    printed = [positions[step] for step in steps.step]
    if in_order and any(
        now < most - 1 for now, most in zip(printed, accumulate(printed, max), strict=True)
    ):
        return 0
    if len(prints[ordered[-1]]) < ranks:
        del prints[ordered.pop()]
    if not ordered or any(len(prints[step]) != ranks for step in ordered):
        return 0
    steps.step, steps.warm_up = array("q", ordered), array("b", bytes(len(ordered)))
    rates[:] = array("d", (min(rate for rate, _ in prints[step]) for step in ordered))
    steps.loss = array(
        "d", (math.fsum(loss for _, loss in prints[step]) / ranks for step in ordered)
    )
    return ranks


def utc_date(text: str) -> datetime:
    """A date in ISO 8601, in UTC; a date without time zone is UTC.

    Raises:
        ValueError, AttributeError, OverflowError: it is no date.
    """
    date = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def version(text: str) -> str | None:
    """The version in a text such as `1.10.0` or `v1.10.0-0-g656e7a2b34`; None if it has none."""
    match = re.match(r"v?(\d+(?:\.\d+)+[\w.]*)", text)
    return match[1] if match else None
