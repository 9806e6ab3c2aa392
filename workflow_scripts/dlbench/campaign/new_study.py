"""A first study for a machine: what it combines, so that it takes minutes, and its text as YAML."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import yaml

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.data import own_pictures
from dlbench.plan import site_devices, skipping
from dlbench.study import config, config_files, trainer_environments
from dlbench.trainer import engine

MOST_DEVICES = 8
SMALL_ITEM, SMALL_CLASSES = 4096, 10_000  # values of an item, and classes, of a small model
DATASET, SYNTHETIC = "digits", "synthetic"
MODELS = {"cpu": "lenet5", "gpu": "resnet50"}
OF_IMAGES = {"cpu": "resnet20", "gpu": "resnet50"}  # on pictures of the user, which have colours
DEVICES = {"cpu": "CPU core", "gpu": "GPU"}
NOTES = {  # on keys of a block, where they are first
    "strategy": "how the work is spread over devices",
    "environment": "the folder in envs/ with its packages",
    "devices_per_node": "a device is a {device}",
    "batch_per_device": "items of each device in a step",
    "include": "the same by other frameworks",
    "launcher": "starts the processes on all nodes",
    "warmup_steps": "before the measured ones",
    "steps": "measured; more of them narrow the intervals",
    "epochs": "times that all items are trained on",
}
# Strategies by framework: on the devices of one node, and across nodes.
STRATEGIES = {"tensorflow": "mirrored", "jax": "sharded", "pytorch": "ddp"}
ACROSS_NODES = STRATEGIES | {"tensorflow": "multiworker"}


@dataclass(frozen=True)
class Choice:
    """What a study trains.

    Attributes:
        frameworks: the first one is the base of comparisons.
        kind: of devices, cpu or gpu.
        devices: how many of a node are used.
        nodes: how many are used, with all of `devices` on each; () for one node only.
        launcher: of runs across nodes.
        images: from `images`, if the dataset is the user's.
    """

    name: str
    frameworks: tuple[str, ...]
    model: str
    dataset: str
    kind: str
    devices: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    launcher: str = "srun"
    images: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def usable_frameworks(kind: str) -> list[str]:
    """The frameworks whose environments are installed; if none is, the first that can be.

    Args:
        kind: of devices, cpu or gpu.
    """
    names = sorted(engine.names(), key=lambda name: (name != engine.DEFAULT, name))
    folders = {name: environment(name, kind) or engine.environment(name) for name in names}
    folders = {name: trainer_environments.chosen(folder) for name, folder in folders.items()}
    installed = [name for name in names if trainer_environments.is_installed(folders[name])]
    installable = [name for name in names if not trainer_environments.lacks_python(folders[name])]
    return installed or installable[:1] or names[:1]


def environment(framework: str, kind: str) -> str | None:
    """The environment that a run must name: one for GPUs, if the framework's own is for CPUs."""
    name = f"{engine.environment(framework)}-cuda"
    return name if kind == "gpu" and name in trainer_environments.environments() else None


def dataset_for(model: str, framework: str) -> str:
    """The images of the default study if a model was designed for their shape, else synthetic."""
    shape = plugins.constants("datasets", DATASET)["READER"]["shape"]
    return DATASET if list(_constants(model, framework)["INPUT_SHAPE"]) == shape else SYNTHETIC


def counts_up_to(most: int) -> tuple[int, ...]:
    """Powers of two up to a number, and the number itself.

    >>> counts_up_to(6), counts_up_to(1)
    ((1, 2, 4, 6), (1,))
    """
    return tuple(sorted({2**power for power in range(most.bit_length())} | {most}))


def devices_of(site: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """(kind of devices, numbers of them to train on) of the config's `site`."""
    devices = site_devices.devices(dict(site))
    most = devices.per_node or devices.cores
    return devices.kind, counts_up_to(max(1, min(most, MOST_DEVICES)))


def images(path: Path) -> dict[str, dict[str, str]]:
    """data.images of the config for pictures at a path; their dataset is named as that is.

    Raises:
        Error: there are no pictures as docs/data.md describes them.
    """
    # Shards are named by their folder, for theirs is a pattern.
    place = path.absolute().parent if path.suffix.lower() == ".tar" else path.absolute()
    name = re.sub(r"[^a-z0-9]+", "_", place.stem.lower()).strip("_") or "pictures"
    if plugins.is_known("datasets", name):
        name += "_of_mine"
    return {name: own_pictures.at(path)}


def settings(
    site_text: str | None = None, images: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The config without a study: the files that are always read.

    Args:
        site_text: of a site.yaml that is to be written, if one is.
        images: data.images that the study will have.
    """
    files = config_files.read(*config_files.files())
    merged = config_files.merge(files, {"data": {"images": dict(images or {})}})
    config_files.register_folders(merged)
    return config_files.merge(merged, yaml.safe_load(site_text)) if site_text else merged


def check(text: str, settings: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Check the text of a study as the workflow will.

    Args:
        settings: the config without the study.

    Returns:
        The number of runs that are trained, and the reasons for which others are skipped.

    Raises:
        Error: it has mistakes, or nothing remains to be trained.
    """
    study = config.study(config_files.merge(dict(settings), yaml.safe_load(text)))
    devices = site_devices.devices(study.site)
    reasons = [skipping.cannot_run(run, devices, study.images) for run in study.runs]
    if all(reasons):
        raise Error(f"this site can do none of the runs: {reasons[0]}")
    return reasons.count(None), sorted(set(filter(None, reasons)))


def yaml_text(choice: Choice, start: str) -> str:
    """The study as commented YAML.

    Args:
        start: the command that starts it, for its head.
    """
    first, *others = choice.frameworks
    blocks = []
    if choice.devices[-1] > 1:
        blocks += _devices_block(choice)
    if choice.nodes:
        blocks += _nodes_block(choice)
    blocks += _batch_block(choice)
    if choice.dataset == DATASET:
        blocks += _learning_block(choice)
    figures = [
        *(["scaling"] if choice.devices[-1] > 1 or choice.nodes else []),
        *("batch_size", "loss", "step_times", "coverage"),
    ]
    compare = f"[{{field: framework, base: {_plain(first)}}}]" if others else "[]"
    lines = [
        "# Written by dlbench init for this machine; change what you like. It is started by:",
        f"#   {start}",
        "# Merged over config.yaml; docs/config.md has all keys.",
        f"study: {_plain(choice.name)}",
        "# Each combination is trained so often; an interval needs 3 or more.",
        "repeats: 3",
        "# A run that takes longer is stopped, and recorded as timeout.",
        "time_limit_s: 600",
        *_data(choice),
        "# All combinations of the lists in a block are trained.",
        "matrix:",
        *_explained(blocks, choice),
        "# docs/figures.md shows all there are.",
        f"figures: [{', '.join(figures)}]",
        "# Fields to compare by, as in [{field: framework, base: tensorflow}].",
        f"compare: {compare}",
    ]
    return "\n".join(lines) + "\n"


def _data(choice):
    """The lines that say where the user's pictures are."""
    if choice.images:
        yield "# Pictures of your own, each name a dataset (docs/data.md)."
        yield "data:"
        yield "  images:"
        for name, entry in choice.images.items():
            values = ", ".join(f"{key}: {_plain(value)}" for key, value in entry.items())
            yield f"    {name}: {{{values}}}"


def _devices_block(choice):
    batch, (warmup, steps) = _batches(choice)[1], _steps(choice)
    return [
        "  - name: speedup on the devices of a node",
        *_work(choice, STRATEGIES, SYNTHETIC, {"devices_per_node": choice.devices}),
        f"    batch_per_device: {batch}",
        f"    warmup_steps: {warmup}",
        f"    steps: {steps}",
    ]


def _nodes_block(choice):
    warmup, steps = _steps(choice)
    return [
        "  - name: speedup across nodes",
        *_work(choice, ACROSS_NODES, SYNTHETIC, {"nodes": choice.nodes}),
        f"    devices_per_node: {choice.devices[-1]}",
        f"    launcher: {choice.launcher}",
        f"    batch_per_device: {_batches(choice)[1]}",
        f"    warmup_steps: {warmup}",
        f"    steps: {steps}",
    ]


def _batch_block(choice):
    warmup, steps = _steps(choice)
    return [
        "  - name: throughput by batch size, on one device",
        *_work(choice, {}, choice.dataset, {"batch_per_device": _batches(choice)}),
        f"    warmup_steps: {warmup}",
        f"    steps: {steps}",
    ]


def _learning_block(choice):
    return [
        "  - name: learning, until held-out images are recognised",
        *_work(choice, {}, choice.dataset, {}),
        "    batch_per_device: 32",
        "    optimizer: momentum",
        "    learning_rate: 0.02",
        "    epochs: 10",
    ]


def _explained(lines, choice):
    """The lines of the blocks, with a comment on each key where it is first."""
    left = dict(NOTES)
    for line in lines:
        note = left.pop(line.strip().partition(":")[0], None)
        yield f"{line}  # {note.format(device=DEVICES[choice.kind])}" if note else line


def _work(choice, strategies, dataset, lists):
    """Lines about what is trained; the frameworks after the first are entries of `include`."""
    fields = [
        {"framework": framework, "strategy": strategies.get(framework, "single")}
        for framework in choice.frameworks
    ]
    named = [environment(framework, choice.kind) for framework in choice.frameworks]
    if any(named):  # then all: an entry of include would take over that of the block
        for each, name in zip(fields, named, strict=True):
            each["environment"] = name or engine.environment(each["framework"])
    lines = [f"    {key}: {_plain(value)}" for key, value in fields[0].items()]
    lines += [f"    model: {_plain(choice.model)}", f"    dataset: {_plain(dataset)}"]
    lines += [f"    {key}: {list(values)}" for key, values in lists.items()]
    for index, entry in enumerate(fields[1:]):
        values = {key: _plain(value) for key, value in entry.items()}
        values |= {key: str(list(value)) for key, value in lists.items()}
        lines += ["    include:"] if not index else []
        lines.append(f"      - {{{', '.join(f'{key}: {v}' for key, v in values.items())}}}")
    return lines


def _steps(choice):
    """(steps of warm-up, measured steps) that take seconds."""
    if choice.kind == "gpu":
        return (50, 500) if _is_small(choice) else (20, 100)
    if choice.model == MODELS["cpu"]:
        return 50, 300
    return (5, 30) if _is_small(choice) else (1, 5)


def _batches(choice):
    if choice.kind == "gpu":
        return (64, 256, 1024) if _is_small(choice) else (16, 32, 64)
    return (16, 64, 256) if _is_small(choice) else (1, 2, 4)


def _is_small(choice):
    model = _constants(choice.model, choice.frameworks[0])
    return prod(model["INPUT_SHAPE"]) <= SMALL_ITEM and model["CLASSES"] <= SMALL_CLASSES


def _constants(model, framework):
    kind = engine.plugin_kind(framework, "models")
    try:
        return plugins.constants(kind, model)
    except plugins.UnknownName:
        known = plugins.names(kind)
        raise Error(
            f"{framework} has no model {model!r}{phrases.did_you_mean(model, known)}; it has: "
            f"{', '.join(known)}"
        ) from None


def _plain(text):
    """A text as YAML has it: in quotes if another value would be read."""
    try:
        is_same = yaml.safe_load(f"[{text}]") == [text]
    except yaml.YAMLError:
        is_same = False
    return text if is_same else json.dumps(text, ensure_ascii=False)
