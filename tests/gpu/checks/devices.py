"""Checks of the GPUs that a run uses, of several GPUs, and of messages when they cannot be used."""

from support.trainers import framework_runs

from .. import trained
from ..suite import ALONE, NotPossible, check, frameworks
from ..trained import train

# Too large for the memory: logits of 800 GB. JAX takes long to compile large models, so it gets a
# smaller one and a small share of the memory.
TOO_LARGE = {"model": "gpt2_small", "batch_per_device": 4096}
TOO_LARGE_FOR_SHARE = {"model": "gpt_tiny", "batch_per_device": 8192}
STRATEGIES = {
    "pytorch": [
        {"strategy": "ddp", "launcher": "local"},
        {"strategy": "ddp", "launcher": "torchrun"},
        {"strategy": "fsdp", "launcher": "local"},
    ],
    "jax": [{"strategy": "sharded"}],
    "tensorflow": [{"strategy": "mirrored"}],
}


@check(
    "CUDA_VISIBLE_DEVICES as number and UUID chooses the GPU; a wrong one is refused in words",
    240,
    frameworks=frameworks(),
)
def selection(report, device, framework):
    if not device.is_gpu:
        with trained.variables(CUDA_VISIBLE_DEVICES="3"):
            run = _train_steps(device._replace(kind="gpu"), framework)
        _expect_refused(report, run, "a machine without GPUs")
        report.expect("CUDA_VISIBLE_DEVICES=3" in run.output, "it does not say what was visible")
        raise NotPossible("no GPU here: only that it is refused was seen")
    uuid = device.gpus[0]
    number = _nvml_indices(device)[0]
    for name, value in {"number": str(number), "short UUID": uuid[:12]}.items():
        with trained.variables(CUDA_VISIBLE_DEVICES=value, **trained.shared_memory()):
            run = _train_steps(device, framework)
        if not report.expect(run.code == 0, f"{name}: {run.why()}"):
            continue
        recorded = [gpu["uuid"] for gpu in run.event("machine")["present"]["gpus"]]
        report.expect(recorded == [uuid], f"{name}: recorded are other GPUs, {len(recorded)}")
        sampled = run.event("sample").get("gpus") or [{}]
        selector = "its number" if name == "number" else "its UUID"
        report.expect(str(sampled[0].get("gpu")) == value, f"{name}: not sampled by {selector}")
        report.expect(sampled[0].get("power_w"), f"{name}: its samples are empty")
        report.number(f"{name}: device", run.event("run_start").get("device_model"))
        if bound := run.event("run_start").get("binding"):
            report.number(f"{name}: binding", ", ".join(f"{k} {v}" for k, v in bound.items()))
    wrong = {
        "a number that is not there": str(max(_nvml_indices(device)) + 64),
        "a UUID that is not there": "GPU-00000000-0000-0000-0000-000000000000",
        "none": "",
    }
    for name, value in wrong.items():
        with trained.variables(CUDA_VISIBLE_DEVICES=value):
            run = _train_steps(device, framework)
        _expect_refused(report, run, name)
        setting = f"CUDA_VISIBLE_DEVICES={value}"
        report.expect(setting in run.output, f"{name}: what it says does not name {setting}")
    more = len(device.gpus) + 1
    strategy = STRATEGIES[framework][0]
    run = _train_steps(device, framework, devices_per_node=more, **strategy)
    _expect_refused(report, run, f"{more} devices of {len(device.gpus)}")


def _train_steps(device, framework, **fields):
    return train(device, framework, trained.new_log(), **fields)


def _nvml_indices(device):
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in device.gpus]
    return [pynvml.nvmlDeviceGetIndex(handle) for handle in handles]


def _expect_refused(report, run, name):
    """Check that a run ends with a message about what is wrong, not with an exception."""
    last = (run.output.strip().splitlines() or [""])[-1]
    report.expect(run.code != 0, f"{name}: it trained")
    # Before that, JAX prints the exceptions of its plugins.
    message = next((line for line in run.output.splitlines() if line.startswith("failed: ")), last)
    report.expect(message.startswith("failed: "), f"{name}: {run.why()}")
    report.number(f"{name}: refused with", message[:300])


@check(
    "several GPUs end with equal weights; one rank with the library that joins them is as without",
    300,
    frameworks=frameworks(),
)
def collectives(report, device, framework):
    fields = {"model": "resnet20", "steps": 10, "deterministic": True}
    fields |= {} if device.is_gpu else {"model": "lenet5"}
    count = max(1, len(device.gpus))
    report.number("devices", count)
    if count == 1 and device.is_gpu:
        report.note("one GPU here: exchanges between several were not seen")
    alone = train(device, framework, trained.new_log(), **fields)
    report.expect(alone.code == 0, f"one device: {alone.why()}")
    for how in STRATEGIES[framework]:
        name = " by ".join(how.values())
        with trained.variables(NCCL_DEBUG="VERSION"):
            run = train(
                device, framework, trained.new_log(), **fields, **how, devices_per_node=count
            )
        if not report.expect(run.code == 0, f"{name}: {run.why()}"):
            continue
        settings = run.event("run_start")["strategy_settings"]
        report.number(f"{name}: settings", ", ".join(f"{k} {v}" for k, v in settings.items()))
        libraries = run.event("machine").get("libraries") or {}
        nccl = [f"{path} {number}" for path, number in libraries.items() if "nccl" in path]
        report.number(f"{name}: NCCL", ", ".join(nccl) or None)
        digests = framework_runs.digests(run.log)
        report.expect(len(set(digests)) == 1, f"{name}: devices end with other weights")
        if count > 1:  # their items are others than one device's
            continue
        furthest = far(run.losses, alone.losses)
        report.number(f"{name}: losses, furthest from one device", furthest)
        report.expect(furthest < 1e-2, f"{name}: losses differ from one device's by {furthest:g}")


def far(losses, others):
    """The largest relative difference of losses; infinite if there are not as many."""
    if len(losses) != len(others) or not losses:
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, others, strict=True))


@check(
    "a batch that does not fit ends as out of memory, in words",
    60,
    when=ALONE,
    frameworks=frameworks(),
)
def out_of_memory(report, device, framework):
    if not device.is_gpu:
        raise NotPossible("no GPU here: the memory of the host is not to be filled")
    large = TOO_LARGE_FOR_SHARE if framework == "jax" else TOO_LARGE
    with trained.variables(**trained.shared_memory(0.005)):
        run = train(device, framework, trained.new_log(), **large)
    end = run.event("run_end")
    report.number("status", end.get("status"))
    report.number("message", end.get("message", "")[:300])
    report.expect(end.get("status") == "oom", f"status {end.get('status')}: {run.why()}")
    report.expect(run.code != 0, "exit code 0")
