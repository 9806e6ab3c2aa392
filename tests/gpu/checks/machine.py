"""Checks of what is read of GPUs: facts, samples, energy, power limits."""

import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dlbench.log.event_log import EventLog, read
from dlbench.machine import gpus, hardware
from dlbench.starting import power
from dlbench.trainer.sampling import Sampler

from ..suite import ALONE, NotPossible, check

MAY_SET_POWER_LIMIT = False  # __main__.py sets it
QUERIES = {  # of nvidia-smi: the fact that it is compared with
    "name": "name",
    "uuid": "uuid",
    "driver_version": "driver",
    "pci.bus_id": "pci",
    "compute_cap": "compute_capability",
    "vbios_version": "vbios",
    "memory.total": "memory_bytes",
    "clocks.max.sm": "clock_sm_max_mhz",
    "clocks.max.memory": "clock_memory_max_mhz",
    "enforced.power.limit": "power_limit_w",
    "power.default_limit": "power_limit_default_w",
    "pcie.link.gen.max": "pcie_generation",
    "pcie.link.width.max": "pcie_width",
    "ecc.mode.current": "ecc",
    "persistence_mode": "persistence",
    "mig.mode.current": "mig",
}
VALUES_BY_TEXT = {"enabled": True, "disabled": False, "[n/a]": None, "n/a": None}
LOAD = {
    "torch": "import torch as t; a = t.ones(8192, 8192, device='cuda', dtype=t.bfloat16)\n"
    "print(flush=True)\nwhile True: [a @ a for _ in range(9)]; t.cuda.synchronize()",
    "jax": "import jax; a = jax.numpy.ones((8192, 8192), 'bfloat16'); print(flush=True)\n"
    "while True: (a @ a).block_until_ready()",
}
SAMPLED_S, INTERVAL_S = 4.0, 0.1


@check("facts of GPUs are those that nvidia-smi tells; NUMA nodes and cores near them", 60)
def facts(report, device):
    unknown = {}
    node = hardware.constant_facts(hardware.Files())
    report.number("processor", node["cpu"]["model"])
    report.expect(node["cpu"]["threads"], "the number of CPUs is not known")
    if not device.is_gpu:
        raise NotPossible("no GPU here: its facts are not there to be compared")
    gathered = gpus.gather_facts(device.gpus, unknown)
    for name, reason in unknown.items():
        report.note(f"{name}: {reason}")
    reported = _query_nvidia_smi(report)
    for kind in gathered["kinds"]:
        report.number("GPU", kind["name"])
    for gpu in gathered["devices"]:
        row = reported.get(gpu["uuid"], {})
        report.expect(row, "nvidia-smi does not list the GPU with this UUID")
        kind = next((one for one in gathered["kinds"] if one["name"] == row.get("name")), {})
        known = {"driver": gathered["driver"], "uuid": gpu["uuid"], "pci": gpu["pci"], **kind}
        for name, fact in QUERIES.items():
            ours, theirs = known.get(fact), _parse_value(row.get(name, ""), fact)
            if fact != "uuid":
                report.number(fact, ours)
            report.expect(
                _equal(ours, theirs), f"{fact}: ours {ours}, nvidia-smi's {theirs} ({name})"
            )
        _place(report, gpu["pci"])


def _query_nvidia_smi(report):
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERIES)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report.expect(not done.returncode, f"nvidia-smi: {done.stdout} {done.stderr}")
    rows = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
    named = [dict(zip(QUERIES, row, strict=False)) for row in rows if len(row) == len(QUERIES)]
    return {row["uuid"]: row for row in named}


def _parse_value(text, fact):
    """A value that nvidia-smi prints, with the type and unit of our fact."""
    if text.lower() in VALUES_BY_TEXT:
        return VALUES_BY_TEXT[text.lower()]
    if fact == "memory_bytes":
        return float(text or "nan") * 2**20
    try:
        return float(text) if fact not in ("compute_capability", "driver") else text
    except ValueError:
        return text


def _equal(ours, theirs):
    if isinstance(ours, bool) or isinstance(theirs, str | None):
        return str(ours).lower() == str(theirs).lower()
    # Watts and bytes are rounded.
    return ours is not None and abs(ours - theirs) <= 1e-4 * abs(theirs) + 1


def _place(report, pci):
    """Report a GPU's NUMA node and nearby CPUs, as Linux states them."""
    domain, _, rest = pci.lower().partition(":")
    folder = f"sys/bus/pci/devices/{domain[-4:]}:{rest}"
    files = hardware.Files()
    for name in ("numa_node", "local_cpulist"):
        report.number(name, files.read(name, f"{folder}/{name}"))
    for name, reason in files.unknown.items():
        report.note(f"{name}: {reason}")


@check("samples and energy are those of NVML's counter and of power over time", 120, when=ALONE)
def sampling(report, device):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        log = EventLog(path)
        log.start(spec={})
        if not device.is_gpu:
            sampler = Sampler(log, INTERVAL_S)
            started = sampler.start()
            time.sleep(5 * INTERVAL_S)
            totals = sampler.stop()
            report.expect(started["gpus_not_sampled"] is None, f"{started['gpus_not_sampled']}")
            report.number("samples", len(_samples(path)))
            report.number("CPU time", totals["cpu_time_s"], "s")
            raise NotPossible("no GPU here: the node alone was sampled")
        _costs(report, device)
        with _loaded(report, device):
            _compare_with_counter(report, device, log, path)


def _samples(path):
    return [event for event in read(path) if event["event"] == "sample"]


def _costs(report, device):
    """Report the time and CPU time of a sample of a GPU."""
    import pynvml

    pynvml.nvmlInit()
    gpu = gpus.Gpu(pynvml, device.gpus[0], time.monotonic)
    gpu.sample()
    wall, cpu, times = time.monotonic(), time.thread_time(), 50
    for _ in range(times):
        gpu.sample()
    report.number("a sample of one GPU", (time.monotonic() - wall) / times * 1e3, "ms")
    cpu_ms = (time.thread_time() - cpu) / times * 1e3
    report.number("CPU time of it", cpu_ms, "ms")
    report.expect(cpu_ms < 10, "samples at 1 Hz take more than 1 % of a core")


class _loaded:
    """A process that multiplies matrices on the first GPU."""

    def __init__(self, report, device):
        program = next((LOAD[n] for n in LOAD if not device.missing(_FRAMEWORKS[n])), None)
        if not program:
            raise NotPossible("neither PyTorch nor JAX is installed: nothing loads the GPU")
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        self._process.stdout.readline()
        time.sleep(1.5)  # power is a mean over a second

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()


_FRAMEWORKS = {"torch": "pytorch", "jax": "jax"}


def _compare_with_counter(report, device, log, path):
    import pynvml

    pynvml.nvmlInit()
    handles = [gpus.find_gpu(pynvml, uuid) for uuid in device.gpus]

    def counted():
        return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(h) for h in handles) / 1000

    sampler = Sampler(log, INTERVAL_S, device.gpus)
    before_j, begin = counted(), time.monotonic()
    started = sampler.start()
    watts = []
    while time.monotonic() < begin + SAMPLED_S:
        time.sleep(0.02)
        watts.append(sum(pynvml.nvmlDeviceGetPowerUsage(h) for h in handles) / 1000)
    totals = sampler.stop()
    took_s, counter_j = time.monotonic() - begin, counted() - before_j
    report.expect(
        started["gpus_not_sampled"] is None, f"not sampled: {started['gpus_not_sampled']}"
    )
    report.number("energy_source", totals["energy_source"])
    if not report.expect(totals["energy_j"], f"no energy: {totals['energy_unknown']}"):
        return
    ratio = totals["energy_j"] / counter_j
    report.number("energy by the samples", totals["energy_j"], "J")
    report.number("over NVML's counter", ratio)
    report.expect(0.93 < ratio < 1.07, f"energy is {ratio:.3f} of NVML's counter")
    integral = sum(watts) / len(watts) * took_s
    report.number("over power x time", totals["energy_j"] / integral)
    report.expect(0.85 < totals["energy_j"] / integral < 1.15, "energy is not power x time")
    samples = [gpu for event in _samples(path) for gpu in event["gpus"]]
    number = int(SAMPLED_S / INTERVAL_S)
    report.number("samples", len(samples))
    report.expect(len(samples) >= 0.9 * number * len(handles), f"{len(samples)} of {number}")
    for name in samples[0]:
        values = [sample[name] for sample in samples if sample[name] is not None]
        if name in ("gpu", "throttle_reasons", "other_gpu_processes"):
            continue
        if report.expect(values, f"{name} was never read"):
            report.number(f"{name}, median", float(sorted(values)[len(values) // 2]))
    reasons = {reason for sample in samples for reason in sample["throttle_reasons"] or ()}
    report.number("throttle_reasons", ", ".join(sorted(reasons)) or "none")
    busy = max(sample["utilisation_percent"] or 0 for sample in samples)
    report.expect(busy > 90, f"a GPU that multiplies matrices is used by {busy} %")
    unknown = sum(reason.startswith("unknown") for reason in reasons)
    report.expect(not unknown, f"reasons without a name: {reasons}")


@check("a power limit that a GPU does not take, or may not be set, is refused in words", 60)
def power_limit(report, device):
    try:
        gpus = power._gpus()
    except power.Refused as refused:
        report.expect(not device.is_gpu, str(refused))
        report.number("refused with", str(refused))
        raise NotPossible("no GPU whose limit could be set") from None
    for gpu in gpus:
        report.number("range", f"{gpu.least_w:g} to {gpu.most_w:g}", "W")
        report.number("enforced", gpu.enforced_w, "W")
        report.number("persistence mode", str(gpu.persists))
    most = max(gpu.most_w or 0 for gpu in gpus)
    reason = _refused(most + 1000)
    report.number("above the range", reason or "taken")
    report.expect("takes from" in (reason or ""), f"above its range: {reason}")
    if not MAY_SET_POWER_LIMIT:
        report.note("no limit was set: --set-power-limit asks for that")
        return
    reason = _refused(max(gpu.least_w or 0 for gpu in gpus), report)
    report.number("the least limit", reason or "set and restored")


def _refused(limit_w, report=None):
    """Why a limit is refused; None if it was set, and restored."""
    limits = power.Limits(int(limit_w), 1)
    try:
        with limits.held():
            pass
    except power.Refused as error:
        return str(error)
    if report:
        for gpu in limits.fields()["gpus"]:
            report.expect(gpu["restored"], "the limit was not restored")
    return None
