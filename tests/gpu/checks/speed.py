"""Checks that measure, each alone: steps against the device's speed, memory and energy."""

import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from dlbench.common import own_code
from dlbench.machine import device_peaks, gpus
from dlbench.trainer import model_flops

from .. import trained
from ..suite import ALONE, LAST, REPOSITORY, NotPossible, check
from ..trained import train
from .devices import far

FRAMEWORKS = ("pytorch", "jax")
PRECISIONS = {"pytorch": ("bfloat16", "tf32", "float32"), "jax": ("bfloat16",)}
STEPS = {"bfloat16": 60, "tf32": 20, "float32": 10}
CASES = {"pytorch": ("gpt2_small:8:20", "resnet20:256:40"), "jax": ("gpt2_small:8:20",)}
CONTEXT_BYTES = 2.5e9  # that CUDA, its libraries and the driver may take beside the allocator


@check(
    "GPT-2 small: MFU beside a matrix product, memory and energy beside NVML",
    140,
    when=ALONE,
    frameworks=FRAMEWORKS,
)
def training(report, device, framework):
    batch = 16 if device.is_gpu else 2
    model = "gpt2_small" if device.is_gpu else "gpt_tiny"
    precisions = PRECISIONS[framework] if device.is_gpu else ("float32",)
    attained = _attained(report, device, framework, precisions)
    for precision in precisions:
        before = _used_bytes(device)
        run = train(
            device, framework, trained.new_log(), model=model, precision=precision,
            batch_per_device=batch, optimizer="adamw", weight_decay=0.1,
            steps=STEPS[precision] if device.is_gpu else 4, warmup_steps=5 if device.is_gpu else 1,
            flags=["--sample-every-s", "0.1"],
        )  # fmt: skip
        if not report.expect(run.code == 0, f"{precision}: {run.why()}"):
            continue
        report.number(f"{precision}: step", 1000 * run.step_s(), "ms")
        report.number(f"{precision}: tokens", _tokens(run), "tokens/s")
        report.number(f"{precision}: first step", run.summary.get("compile_s"), "s")
        report.number(f"{precision}: steps in a window", run.summary.get("window_steps"))
        _utilisation(report, precision, run, attained.get(precision))
        report.number(f"{precision}: attention", run.event("run_start").get("attention"))
        if device.is_gpu:
            _memory(report, precision, run, before)
            _energy(report, precision, run)
    if not device.is_gpu:
        report.note("no GPU here: memory, energy and peaks of GPUs were not seen")


def _attained(report, device, framework, precisions):
    """By precision, TFLOP/s of a matrix product."""
    command = [sys.executable, "-m", "tests.gpu.products", framework, device.kind, *precisions]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if not report.expect(done.returncode == 0, f"products: {done.stderr[-300:]}"):
        return {}
    results = json.loads(done.stdout.splitlines()[-1])
    for precision, one in results.items():
        size = one["matrix_size"]
        report.number(f"{precision}: product of {size} x {size}", one["tflops"], "TFLOP/s")
        report.number(f"{precision}: copy in memory", one["gb_per_s"], "GB/s")
        report.number(f"{precision}: copy from the host", one["from_host_gb_per_s"], "GB/s")
    return {precision: one["tflops"] for precision, one in results.items()}


def _tokens(run):
    shape = run.event("run_start")["item_shape"]
    return run.summary["images_per_second"] * shape[0]


def _utilisation(report, precision, run, attained):
    """MFU, over the peak that the maker states and over the product."""
    start = run.event("run_start")
    flops = start["forward_flops_per_item"] * model_flops.PASSES[run.run.mode]
    tflops = flops * run.summary["images_per_second"] / 1e12
    report.number(f"{precision}: model FLOP/s", tflops, "TFLOP/s")
    peak = device_peaks.peak(start["device_model"], precision, "gpu").tflops
    if peak:
        report.number(f"{precision}: MFU, of the peak of {peak:g} TFLOP/s", tflops / peak)
        report.expect(tflops < peak, f"{precision}: more than the peak")
    if attained:
        report.number(f"{precision}: of the matrix product", tflops / attained)
        report.expect(tflops < 1.02 * attained, f"{precision}: more than a matrix product")
    if peak and attained:
        report.number(f"{precision}: the product, of the peak", attained / peak)
        report.expect(0.5 < attained / peak < 1.02, f"{precision}: product {attained / peak:.2f}")


def _used_bytes(device):
    """What NVML says is used of the first GPU."""
    if not device.is_gpu:
        return 0
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(gpus.find_gpu(pynvml, device.gpus[0])).used


def _memory(report, precision, run, before):
    end = run.event("run_end")
    (allocated,) = end["peak_allocated_bytes_per_device"] or (None,)
    (reserved,) = end["peak_reserved_bytes_per_device"] or (None,)
    used = max(gpu["memory_used_bytes"] or 0 for gpu in _gpu_samples(run)) - before
    for name, value in {"allocated": allocated, "reserved": reserved, "by NVML": used}.items():
        report.number(f"{precision}: memory, {name}", value and value / 2**30, "GiB")
    if report.expect(allocated, f"what is allocated is unknown: {end['device_memory_unknown']}"):
        report.expect(allocated <= used, "more is allocated than NVML says is used")
    if reserved:
        report.expect(allocated <= reserved, "more is allocated than reserved")
        outside_bytes = used - reserved
        report.number(f"{precision}: memory beside the allocator", outside_bytes / 2**30, "GiB")
        report.expect(
            -5e8 < outside_bytes < CONTEXT_BYTES, f"NVML has {outside_bytes / 1e9:.1f} GB more"
        )


def _gpu_samples(run):
    return [sample["gpus"][0] for sample in run.events("sample")]


def _energy(report, precision, run):
    """Energy over the integral of power, and who else was on the GPU."""
    end = run.event("run_end")
    if not report.expect(end["energy_j"], f"{precision}: no energy: {end['energy_unknown']}"):
        return
    times = [sample["t_s"] for sample in run.events("sample")]
    gpus = _gpu_samples(run)
    pairs = [(t, gpu["power_w"]) for t, gpu in zip(times, gpus, strict=True) if gpu["power_w"]]
    area = sum(
        (later - sooner) * (one + other) / 2
        for (sooner, one), (later, other) in itertools.pairwise(pairs)
    )
    report.number(f"{precision}: energy ({end['energy_source']})", end["energy_j"], "J")
    report.number(f"{precision}: energy over power x time", end["energy_j"] / area)
    report.expect(0.8 < end["energy_j"] / area < 1.2, "energy is not power x time")
    report.number(f"{precision}: power at most", max(power for _, power in pairs), "W")
    others = {gpu["other_gpu_processes"] for gpu in gpus} - {None}
    report.number(f"{precision}: other processes on it, at most", max(others, default=None))
    report.expect(others, "NVML does not list the trainer among the processes on its GPU")


@check(
    "our step is as fast as the shortest one of its framework, in turns",
    110,
    when=ALONE,
    frameworks=FRAMEWORKS,
)
def step_ratio(report, device, framework):
    cases = CASES[framework] if device.is_gpu else ("lenet5:8:2",)
    flags = [word for case in cases for word in ("--case", case)]
    precision = "bfloat16" if device.is_gpu else "float32"
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        flags += ["--device", device.kind, "--precision", precision, "--json", str(figures)]
        flags += ["--pairs", "5" if device.is_gpu else "2", "--peer", "the bare step"]
        command = [sys.executable, "-m", "benchmarks.training_step", "--framework", framework]
        done = subprocess.run(
            [*command, *flags], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        lines = figures.read_text().splitlines() if figures.is_file() else []
    report.expect(done.returncode == 0, done.stderr[-300:])
    for figure in map(json.loads, lines):
        middle = statistics.median(figure["values"])
        report.number(f"{figure['name']}, {precision}", middle, figure["unit"])
        if device.is_gpu:
            report.expect(middle > 0.95, f"{figure['name']}: {middle:.3f}")


@check(
    "GPUs find how many steps one wait takes; what a wait costs",
    60,
    when=ALONE,
    frameworks=FRAMEWORKS,
)
def waits(report, device, framework):
    fields = {"batch_per_device": 64, "steps": 500, "warmup_steps": 100}
    if not device.is_gpu:
        fields |= {"steps": 10, "warmup_steps": 3}
    for length in (1, None):
        run = train(device, framework, trained.new_log(), steps_per_sync=length, **fields)
        name = "waited for each step" if length else "as found"
        if report.expect(run.code == 0, f"{name}: {run.why()}"):
            report.number(f"LeNet-5, {name}: step", 1e6 * run.step_s(), "us")
            report.number(f"{name}: steps in a window", run.summary["window_steps"])


@check(
    "GPT-2 small, compiled, and with a vocabulary padded to 50 304: how much faster",
    150,
    when=ALONE,
    frameworks=("pytorch",),
)
def faster(report, device, framework):
    if not device.is_gpu:
        raise NotPossible("no GPU here: benchmarks compare compiled steps on CPUs")
    hows = {
        "as published": {"model": "gpt2_small"},
        "padded": {"model": "gpt2_small", "vocabulary_multiple": 64},
        "compiled": {"model": "gpt2_small", "compile": True},
    }
    runs = {}
    for name, how in hows.items():
        run = train(
            device, framework, trained.new_log(), precision="bfloat16", batch_per_device=16,
            steps=40, warmup_steps=10, **how,
        )  # fmt: skip
        if report.expect(run.code == 0, f"{name}: {run.why()}"):
            runs[name] = run
            report.number(f"{name}: step", 1000 * run.step_s(), "ms")
    for name in ("padded", "compiled"):
        if {name, "as published"} <= runs.keys():
            gain = runs["as published"].step_s() / runs[name].step_s()
            report.number(f"{name}: faster by a factor of", gain)
    if {"compiled", "as published"} <= runs.keys():
        report.number("compiled: first step", runs["compiled"].summary["compile_s"], "s")
        difference = far(runs["compiled"].losses, runs["as published"].losses)
        report.number("compiled: losses, furthest from those as they are", difference)
        report.expect(difference < 2e-2, f"losses differ by {difference:g}")


@check(
    "batch_per_device: max finds a batch whose neighbour does not fit",
    300,
    when=LAST,
    frameworks=("pytorch",),
)
def largest_batch(report, device, framework):
    if not device.is_gpu:
        raise NotPossible("no GPU here: tests/workflow finds batches in the memory of the host")
    if not importlib.util.find_spec("jsonschema"):
        raise NotPossible("the program that finds batches needs jsonschema, which is missing")
    from dlbench.study.batch_searches import Search

    log = trained.new_log()
    run = trained.run_of(
        framework, model="gpt2_small", batch_per_device=1, steps=2, warmup_steps=1,
        precision="bfloat16",
    )  # fmt: skip
    search = Search(run)
    spec = json.dumps(search.attempt(1).values())
    trainer = [sys.executable, str(own_code.PROGRAMS / "train.py"), *search.attempt(1).flags()]
    trainer += ["--device", "gpu", "--log", str(log)]
    flags = [f"--spec={spec}", "--label=try", "--device=gpu", "--", *trainer]
    output = log.parent / "found.json"
    command = [sys.executable, own_code.PROGRAMS / "dlbench", "find-batch", "--spec", spec]
    command += ["--output", output, "--messages", log.parent / "said", "--", *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if not report.expect(output.is_file(), done.stderr[-300:]):
        return
    results = json.loads(output.read_text())
    report.number("batch", results["batch_per_device"])
    report.number("because", results["reason"])
    for one in results["tries"]:
        report.number(f"batch {one['batch_per_device']}", f"{one['status']}: {one['message']}")
    report.expect(results["batch_per_device"], f"none was found: {results['reason']}")
