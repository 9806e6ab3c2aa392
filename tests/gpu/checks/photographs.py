"""Checks of input: photographs that are decoded and copied to the device, and copies alone."""

import gzip
import importlib.util
import json
import tempfile
from pathlib import Path

from dlbench.common import tfrecord
from dlbench.log import event_log
from dlbench.trainer.reading import inputs, manifest

from .. import trained
from ..suite import ALONE, NotPossible, check
from ..trained import train

PHOTOGRAPHS, SHARDS = 512, 8


@check("photographs are decoded, copied and trained on", 90, when=ALONE, frameworks=("pytorch",))
def photographs(report, device, framework):
    small = not device.is_gpu
    if not importlib.util.find_spec("simplejpeg"):
        raise NotPossible("simplejpeg, which encodes and decodes photographs, is not installed")
    with tempfile.TemporaryDirectory() as folder:
        data = photographs_in(Path(folder) / "data", 16 if small else PHOTOGRAPHS)
        fields = {
            "model": "resnet20" if small else "resnet50",
            "batch_per_device": 4 if small else 64,
        }
        fields |= {} if small else {"precision": "bfloat16"}
        fields |= {"steps": 1 if small else 60, "warmup_steps": 1 if small else 20}
        rates = {}
        for name, how in {
            "synthetic": {},
            "photographs": {"dataset": "imagenet", "profile": True},
            "photographs, read alone": {"dataset": "imagenet", "mode": "input"},
        }.items():
            place = None if name == "synthetic" else data
            run = train(device, framework, trained.new_log(), data=place, **fields, **how)
            if report.expect(run.code == 0, f"{name}: {run.why()}"):
                rates[name] = run.summary["images_per_second"]
                report.number(name, rates[name], "images/s")
            if name == "photographs" and run.code == 0:
                _copies(report, run)
    if len(rates) == 3:
        report.number("photographs over synthetic", rates["photographs"] / rates["synthetic"])
        reader = min(rates["synthetic"], rates["photographs, read alone"])
        report.number("over what the reader or the step allow", rates["photographs"] / reader)


def photographs_in(folder, count):
    """A converted dataset of JPEGs as large as those of ImageNet, in the layout of its shards."""
    import numpy as np
    import simplejpeg

    noise = np.random.default_rng(1)
    encoded = []
    for _ in range(16):  # smooth patches with some grain, of about the bytes of a photograph
        patches = np.kron(noise.integers(0, 224, (15, 20, 3)), np.ones((25, 25, 1), int))
        grain = noise.integers(0, 32, patches.shape)
        encoded.append(simplejpeg.encode_jpeg((patches + grain).astype(np.uint8), quality=90))
    folder.mkdir()
    splits = {}
    for split, records in {"train": count, "validation": 16}.items():
        shards = []
        for shard in range(SHARDS):
            name = f"{split}-{shard:05d}-of-{SHARDS:05d}"
            indices = range(records * shard // SHARDS, records * (shard + 1) // SHARDS)
            features = [
                {"image/encoded": encoded[n % 16], "image/class/label": [1 + n % 1000]}
                for n in indices
            ]
            written = b"".join(tfrecord.record(tfrecord.example(values)) for values in features)
            (folder / name).write_bytes(written)
            shards.append(
                {"file": name, "records": len(indices), "bytes": len(written), "sha256": None}
            )
        splits[split] = {"records": records, "shards": shards}
    return _with_manifest(folder, splits)


def _with_manifest(folder, splits):
    reader = {"encoding": "jpeg", "classes": 1000, "first_label": 1, "augmentation": "crop_flip"}
    content = {"dataset": "imagenet", "kind": "image", "reader": reader, "splits": splits}
    manifest.write(folder / manifest.NAME, content)
    return folder


@check(
    "copies of photographs that nothing reads: what they cost, and that they overlap",
    80,
    when=ALONE,
    frameworks=("pytorch", "jax"),
)
def copies(report, device, framework):
    fields = {"model": "resnet50", "batch_per_device": 64, "steps": 60, "warmup_steps": 20}
    fields |= {"precision": "bfloat16"}
    if not device.is_gpu:
        fields = {"model": "resnet20", "batch_per_device": 4, "steps": 2, "warmup_steps": 1}
    shard = {"file": "none", "records": PHOTOGRAPHS, "bytes": 0, "sha256": None}
    split = {"records": PHOTOGRAPHS, "shards": [shard]}
    splits = {"train": split, "validation": split}
    steps_s = {}
    with tempfile.TemporaryDirectory() as name:
        data = _with_manifest(Path(name), splits)  # probes take its shapes alone
        for probe in (inputs.SYNTHETIC, inputs.COPIED):
            how = {"dataset": "imagenet", "probe": probe, "profile": probe == inputs.COPIED}
            run = train(device, framework, trained.new_log(), data=data, **fields, **how)
            if report.expect(run.code == 0, f"{probe}: {run.why()}"):
                steps_s[probe] = run.step_s()
                report.number(f"{probe}: step", 1000 * run.step_s(), "ms")
    if len(steps_s) == 2:
        longer = steps_s[inputs.COPIED] / steps_s[inputs.SYNTHETIC]
        report.number("step with copies over one without", longer)
        beside = _copies(report, run)
        if beside is not None:
            report.expect(beside > 0.5, f"{beside:.2f} of the time of copies is beside kernels")


def _copies(report, run):
    """The share of the time of copies to the device in which something was computed beside them.

    None: the profile has no copies.
    """
    with gzip.open(run.log.parent / event_log.TRACE, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    copies = [e for e in events if e.get("cat") == "gpu_memcpy" and "HtoD" in e["name"]]
    if not copies:
        report.note("no copies from the host in the profile")
        return None
    kernels = _spans(e for e in events if e.get("cat") == "kernel")
    spent = sum(e["dur"] for e in copies)
    overlapping = sum(
        max(0.0, min(end, e["ts"] + e["dur"]) - max(begin, e["ts"]))
        for e in copies
        for begin, end in kernels
    )
    report.number("copies to the device, of a step", spent / 1e6 / 5 / run.step_s())
    report.number("share of them beside kernels", overlapping / spent)
    report.number("from pinned memory", str(sorted({e["name"] for e in copies})))
    return overlapping / spent


def _spans(events):
    """(begin, end) in which any of some events was under way, in order."""
    merged = []
    for event in sorted(events, key=lambda event: event["ts"]):
        begin, end = event["ts"], event["ts"] + event["dur"]
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged
