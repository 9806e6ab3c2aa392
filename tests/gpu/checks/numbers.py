"""Checks of what is computed: precisions, windows, compilation, checkpoints, profiles."""

import collections
import gzip
import json
import math
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dlbench.common.run_fields import DECLARED, OF_PROGRAMS
from dlbench.log import event_log
from dlbench.trainer.checkpoints import STOPPED_EXIT_CODE
from support.trainers.training_runs import TRAIN

from .. import trained
from ..suite import check, frameworks
from ..trained import train
from .devices import far

# How far the losses of ten steps may be from those in float32 on the same device.
FAR = {"tf32": 2e-2, "bfloat16": 1e-1, "float16": 5e-2, "a CPU": 1e-2}
AT_ONCE = 3  # runs of one check that do not measure
ATTENTION = ("flash", "fmha", "cudnn", "attention", "softmax")


def _image_model(device):
    return "resnet20" if device.is_gpu else "lenet5"


@check(
    "all precisions train, with losses near those of float32 and of a CPU",
    300,
    frameworks=frameworks(),
)
def precisions(report, device, framework):
    fields = {"model": _image_model(device), "steps": 10, "warmup_steps": 0}
    choices = (name for name in DECLARED["precision"].choices if name not in OF_PROGRAMS)
    hows = {name: (device, {"precision": name}) for name in choices}
    if device.is_gpu:
        hows["a CPU"] = device._replace(kind="cpu"), {}

    def train_with(how):
        return train(how[0], framework, trained.new_log(), **fields, **how[1])

    with trained.variables(**trained.shared_memory()), ThreadPoolExecutor(AT_ONCE) as pool:
        runs = dict(zip(hows, pool.map(train_with, hows.values()), strict=True))
    if not device.is_gpu:
        run = runs.pop("tf32")
        report.expect(run.code != 0 and "CPU" in run.output, "tf32 is not refused on a CPU")
        report.number("tf32: refused with", " ".join(run.output.split())[:200])
    for name, run in runs.items():
        report.expect(run.code == 0, f"{name}: {run.why()}")
        report.expect(all(map(math.isfinite, run.losses)), f"{name}: a loss is no number")
    first = runs.pop("float32").losses
    for name, run in runs.items():
        difference = far(run.losses, first)
        report.number(f"{name}: losses, furthest from float32", difference)
        report.expect(difference < FAR[name], f"{name}: {difference:g} from float32")
        report.expect(run.losses != first, f"{name}: the losses are those of float32, bit by bit")


@check(
    "windows of steps have the losses of single ones; deterministic runs repeat bit by bit",
    240,
    frameworks=frameworks(),
)
def windows(report, device, framework):
    fields = {"model": "lenet5", "steps": 20, "warmup_steps": 1, "deterministic": True}
    results = {}
    for name, length in {"1": 1, "10": 10, "again": 10}.items():
        with trained.variables(**trained.shared_memory()):
            run = train(device, framework, trained.new_log(), steps_per_sync=length, **fields)
        if report.expect(run.code == 0, f"{name}: {run.why()}"):
            results[name] = run.losses, run.event("run_end")["weights_sha256"]
    report.expect(results.get("10") == results.get("again"), "two deterministic runs differ")
    report.expect(results.get("1") == results.get("10"), "windows of 10 steps and of 1 differ")


@check(
    "a run that is stopped writes a checkpoint, and goes on from it bit by bit",
    240,
    frameworks=frameworks(),
)
def checkpoint(report, device, framework):
    fields = {"model": "lenet5", "steps": 600 if device.is_gpu else 100, "warmup_steps": 0}
    fields |= {"optimizer": "momentum", "steps_per_sync": 1, "precision": "float16"}
    fields |= {"deterministic": True}
    with trained.variables(**trained.shared_memory()):
        whole = train(device, framework, trained.new_log(), **fields)
        log = trained.new_log()
        flags = ["--checkpoint", str(log.parent / "checkpoint")]
        code = _stopped(device, trained.run_of(framework, **fields), log, flags)
        report.number("exit code once stopped", code)
        report.expect(code == STOPPED_EXIT_CODE, f"exit code {code}, not {STOPPED_EXIT_CODE}")
        rest = train(device, framework, log, flags=flags, **fields)
    report.expect(whole.code == 0, f"whole: {whole.why()}")
    if not report.expect(rest.code == 0, f"resumed: {rest.why()}"):
        return
    report.number("resumed after step", rest.event("resume").get("step"))
    report.expect(rest.losses == whole.losses, f"losses differ by {far(rest.losses, whole.losses)}")
    digests = [run.event("run_end").get("weights_sha256") for run in (rest, whole)]
    report.expect(digests[0] == digests[1], "weights at the end differ")


def _stopped(device, run, log, flags):
    """The exit code of a run that gets SIGTERM once it has taken some steps."""
    command = [sys.executable, TRAIN, *run.flags(), "--log", log, "--device", device.kind, *flags]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if log.is_file() and '"step": 20,' in log.read_text():
            process.send_signal(signal.SIGTERM)
            break
        time.sleep(0.005)
    return process.wait(120)


@check(
    "a profile has the kernels of a step, and the attention that the log names",
    300,
    frameworks=frameworks(),
)
def profile(report, device, framework):
    fields = {"model": "gpt_tiny", "batch_per_device": 4, "steps": 4, "profile": True}
    if device.is_gpu:
        fields |= {"model": "gpt2_small", "precision": "bfloat16"}
    with trained.variables(**trained.shared_memory(0.25)):
        run = train(device, framework, trained.new_log(), **fields)
    if not report.expect(run.code == 0, run.why()):
        return
    if not report.expect(not (why := run.event("profile").get("unknown")), f"no trace: {why}"):
        return
    with gzip.open(run.log.with_name(event_log.TRACE), "rt") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    wanted = "kernel" if device.is_gpu else "cpu_op"
    spent_us = collections.Counter()
    for event in events:
        if event.get("cat") == wanted:
            spent_us[event["name"][:90]] += event["dur"]
    report.expect(spent_us, f"no {wanted} in the trace")
    on_device = any(event.get("cat") == "kernel" for event in events)
    report.expect(on_device == device.is_gpu, "kernels in a trace of a CPU")
    for name, us in spent_us.most_common(8):
        report.number(name, us / spent_us.total())
    report.number("attention by the log", run.event("run_start").get("attention"))
    of_attention = [name for name in spent_us if any(word in name.lower() for word in ATTENTION)]
    report.number("kernels of attention, by their names", "; ".join(of_attention) or "none")
