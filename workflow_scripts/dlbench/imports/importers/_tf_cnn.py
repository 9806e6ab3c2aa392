"""What the importers of tf_cnn_benchmarks' logs share: what its words and its rates mean.

- A rate that is printed at step s is the batch over the mean time of all s steps so far, a
  cumulative mean. So s steps took T(s) = s batch / rate, and the steps between two prints the
  difference of two T.
- The batch is that of the process that prints: of all its GPUs, under Horovod of one. Only
  distributed_all_reduce (SingleSess) prints rates of all workers.
- Steps are counted from 1 after the warm-up, which is not printed.

Source: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py.
"""

import math
import re
from array import array
from itertools import accumulate

from dlbench.imports import log_values

FAMILY = "tf_cnn_benchmarks"
MOST_DOUBT = 0.01  # of the time of a window, by the last printed digit
SYNTHETIC = " (synthetic)"
MODES = {
    "training": "train",
    "training + evaluation": "train",
    "forward only": "forward",
}
EVALUATION = "evaluation"
# Pixels a side that its models take of ImageNet; all of CIFAR-10's take IMAGE_SIDES["cifar10"].
IMAGE_SIDES = {
    "cifar10": 32, "alexnet": 227, "googlenet": 224, "inception3": 299, "inception4": 299,
    "lenet": 28, "mobilenet": 224, "nasnet": 224, "nasnetlarge": 331, "overfeat": 231,
    "trivial": 227, "vgg11": 224, "vgg16": 224, "vgg19": 224,
}  # fmt: skip
RESNET = re.compile(r"(?:official_)?resnet\d+(?:_v1\.5|_v2)?")  # of ImageNet: 224


def columns(words, notes):
    """Columns of the runs table from what tf_cnn_benchmarks says of itself.

    Args:
        words: texts by what tf_cnn_benchmarks calls them in benchmark.log (model, dataset, mode,
            devices, batch_size_per_device, ...), and `batch_size`,
            of all workers where that is known.
        notes: what is unknown or converted is appended here.
    """
    found = {"framework": "tensorflow"}
    for name, key in (("model", "model"), ("optimizer", "optimizer"), ("strategy", "variables")):
        if key in words:
            found[name] = words[key]
    if "dataset" in words:
        found["dataset"] = words["dataset"]
        if words["dataset"].endswith(SYNTHETIC):
            found["dataset"] = "synthetic"
            notes.append(f"synthetic images like those of {words['dataset'][: -len(SYNTHETIC)]}")
        if shape := item_shape(words.get("model"), words["dataset"].removesuffix(SYNTHETIC)):
            found["item_shape"] = shape
    if words.get("mode") in MODES:
        found["mode"] = MODES[words["mode"]]
    steps, per_device = (
        positive(words.get("num_batches")),
        positive(words.get("batch_size_per_device")),
    )
    if epochs := whole_epochs(words.get("num_epochs"), steps):
        found["epochs"] = epochs
        notes.append(f"{epochs} epochs are {steps} steps")
    elif steps:
        found["steps"] = steps
    if per_device:
        found["batch_per_device"] = per_device
    return found | _devices(words, per_device, notes)


def whole_epochs(text, steps):
    """How many epochs were asked for; None where it was a number of steps.

    The program says how many epochs its whole steps are: of those asked for the last one may lack
    a part of a step.

    >>> whole_epochs("4.9971", 488), whole_epochs("5.12", 500), whole_epochs(None, 500)
    (5, None, None)
    """
    found = log_values.real(text, 0.5, 1e6)
    if not found or not steps or abs(found - round(found)) * steps >= found:
        return None
    return round(found)


def item_shape(model, dataset):
    """The shape of one image as the runs table has it; None where it is not known.

    Source: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/models.

    >>> item_shape("resnet50_v2", "imagenet"), item_shape("alexnet", "cifar10")
    ('224x224x3', '32x32x3')
    """
    side = None
    if dataset == "cifar10":
        side = IMAGE_SIDES[dataset]
    elif dataset == "imagenet":
        side = 224 if RESNET.fullmatch(model or "") else IMAGE_SIDES.get(model)
    return side and f"{side}x{side}x3"


def _devices(words, per_device, notes):
    devices, batch = device_list(words.get("devices", "")), positive(words.get("batch_size"))
    if not devices:
        return {"global_batch": batch} if batch else {}
    found = {"device_kind": "gpu" if "gpu" in devices[0].lower() else "cpu"}
    everywhere = devices[0].startswith(("horovod/", "/job:"))
    if everywhere and per_device:  # the list is of all workers, the batch may be of one
        batch = per_device * len(devices)
    if not batch or not per_device:
        return found | {"devices": len(devices)}
    count = batch // per_device
    if count % len(devices) or batch % per_device:
        notes.append(f"{batch} items on {len(devices)} devices are not {per_device} on each")
        return found | {"devices": len(devices), "global_batch": batch}
    if count == len(devices) and not everywhere:
        found |= {"nodes": 1, "devices_per_node": count}
    return found | {"devices": count, "global_batch": batch}


def device_list(text):
    """The devices in a text as `['/gpu:0', '/gpu:1']`; none where it is no such list."""
    text = text.strip()
    return re.findall(r"'([^']+)'", text) if text[:1] == "[" and text[-1:] == "]" else []


def process_batch(known, devices=(), single_session=False):
    """Items a step of the process that printed the rates; None where it is not known.

    Args:
        known: columns of the run.
        devices: the list of devices that the process printed.
    """
    batch, per_device = known.get("global_batch"), known.get("batch_per_device")
    if single_session:
        return batch
    horovod = known.get("strategy") == "horovod" or any(d.startswith("horovod/") for d in devices)
    if horovod:
        return per_device
    return per_device * len(devices) if per_device and devices else batch


def positive(value):
    """A count as a number, None where it is none."""
    try:
        number = int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 < number < 2**31 else None


def add_times(steps, rates, batch, half_digit=0.0):
    """Fill in the times of windows from cumulative rates.

    A window that the last printed digit leaves in doubt by more than MOST_DOUBT is joined with
    what comes after it: at step 1000, prints of `47.3` every 10 steps say nothing of 10 steps.

    Args:
        steps: a Steps, as `without_times` makes it.
        rates: items/s, one for each of its rows.
        batch: items a step of the process that printed the rates.
        half_digit: half of the last printed digit, items/s; 0: printed in full.

    Returns:
        How many rows have no time of their own.
    """
    times, windows = steps.step_time_s, steps.window_steps
    doubt = half_digit / MOST_DOUBT
    ends = array("q")  # rows at which windows end
    last_step, last_s, last_doubt_s, last_rate = 0, 0.0, 0.0, None
    for row, (step, rate) in enumerate(zip(steps.step, rates, strict=True)):
        if not 0 < rate < math.inf:
            continue
        took_s = step * batch / rate
        doubt_s = took_s * doubt / rate
        if doubt_s + last_doubt_s <= took_s - last_s > 0:
            # Of equal rates without the rounding of a difference.
            same = rate == last_rate
            windows[row] = step - last_step
            times[row] = batch / rate if same else (took_s - last_s) / (step - last_step)
            ends.append(row)
            last_step, last_s, last_doubt_s, last_rate = step, took_s, doubt_s, rate
    _close(steps.step, rates, batch, doubt, ends, times, windows)
    return len(steps) - len(ends)


def without_times(steps):
    """Give a Steps columns of times and windows, which are not known yet."""
    steps.step_time_s = array("d", [math.nan]) * len(steps)
    steps.window_steps = array("q", [0]) * len(steps)


def _close(numbers, rates, batch, doubt, ends, times, windows):
    """Have the last window end at the last rate, longer by as many windows as that takes."""
    last = next((row for row in reversed(range(len(numbers))) if 0 < rates[row] < math.inf), None)
    if last is None or (ends and ends[-1] == last):
        return
    took_s = numbers[last] * batch / rates[last]
    while True:
        if ends:
            row = ends.pop()
            times[row], windows[row] = math.nan, 0
        began = numbers[ends[-1]] if ends else 0
        began_s = began * batch / rates[ends[-1]] if ends else 0.0
        began_doubt_s = began_s * doubt / rates[ends[-1]] if ends else 0.0
        sure = took_s * doubt / rates[last] + began_doubt_s <= took_s - began_s
        # The mean of the whole run is what was printed: it is as sure as can be.
        if sure or not ends:
            same = not ends or rates[ends[-1]] == rates[last]
            times[last] = (
                batch / rates[last] if same else (took_s - began_s) / (numbers[last] - began)
            )
            windows[last] = numbers[last] - began
            ends.append(last)
            return


def of_all_ranks(steps, rates):
    """Rows of several processes that printed into one log, unlabelled, as those of the slowest.

    The steps of a synchronous training end together: rates differ a little, losses are each
    rank's own. The last step is left out unless as many printed it as the one before.

    Args:
        steps, rates: in the order of the log; changed in place.

    Returns:
        How many processes printed; 0 where they left steps out or cannot be told apart.
    """
    found = {}
    for step, rate, loss in zip(steps.step, rates, steps.loss, strict=True):
        found.setdefault(step, []).append((rate, loss))
    ranks = max(map(len, found.values()))
    ordered = sorted(found)
    # None is two prints ahead of another.
    positions = {step: position for position, step in enumerate(ordered)}
    printed = [positions[step] for step in steps.step]
    if any(now < most - 1 for now, most in zip(printed, accumulate(printed, max), strict=True)):
        return 0
    if len(found[ordered[-1]]) < ranks:
        del found[ordered.pop()]
    if not ordered or any(len(found[step]) != ranks for step in ordered):
        return 0
    steps.step, steps.warm_up = array("q", ordered), array("b", bytes(len(ordered)))
    rates[:] = array("d", (min(rate for rate, _ in found[step]) for step in ordered))
    steps.loss = array(
        "d", (math.fsum(loss for _, loss in found[step]) / ranks for step in ordered)
    )
    return ranks


def version(text):
    """The version in a text as `1.10.0` or `v1.10.0-0-g656e7a2b34`; None where there is none."""
    match = re.match(r"v?(\d+(?:\.\d+)+[\w.]*)", text)
    return match[1] if match else None
