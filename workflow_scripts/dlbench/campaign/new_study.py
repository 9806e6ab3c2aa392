"""A first study for a machine: what it combines, so that it takes minutes, and its text as YAML."""

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
from dlbench.plan import skipping
from dlbench.study import config, trainer_environments
from dlbench.trainer import engine

MOST_DEVICES = 8
SMALL_ITEM, SMALL_CLASSES = 4096, 10_000  # values of an item, and classes, of a small model
DATASET, SYNTHETIC = "digits", "synthetic"
MODELS = {"cpu": "lenet5", "gpu": "resnet50"}
OF_IMAGES = {"cpu": "resnet20", "gpu": "resnet50"}  # on pictures of the user, which have colours
DEVICES = {"cpu": "CPU core", "gpu": "GPU"}
# Strategies by framework: on the devices of one node, and across nodes.
STRATEGIES = {"tensorflow": "mirrored", "jax": "sharded", "pytorch": "ddp"}
ACROSS_NODES = STRATEGIES | {"tensorflow": "multiworker"}
# (steps of warm-up, measured steps) that take seconds, and batches of a device.
SMALL_ON_GPUS, SMALL, LARGE_ON_GPUS, LARGE = (
    ((50, 500), [64, 256, 1024]),
    ((5, 30), [16, 64, 256]),
    ((20, 100), [16, 32, 64]),
    ((1, 5), [1, 2, 4]),
)
TEXT = """\
# Written by dlbench init for this machine; change what you like. It is started by:
#   {start}
# Merged over config.yaml; docs/config.md has all keys.
study: {study}
# Each combination is trained so often; an interval needs 3 or more.
repeats: 3
# A run that takes longer is stopped, and recorded as timeout.
time_limit_s: 600
{data}\
# All combinations of the lists in a block are trained; entries of include do the same by other
# frameworks. strategy: how the work is spread over devices, each a {device}; environment: the
# folder in envs/ with its packages; launcher: starts the processes on all nodes; batch_per_device:
# items of each device in a step; warmup_steps: before the measured steps, of which more narrow the
# intervals; epochs: times that all items are trained on.
matrix:
{matrix}\
# docs/figures.md shows all there are.
figures: {figures}
# Fields to compare by, as in [{{field: framework, base: tensorflow}}].
compare: {compare}
"""
PICTURES = "# Pictures of your own, each name a dataset (docs/data.md).\ndata:\n  images:\n"


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

    `kind`: of devices, cpu or gpu.
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
    devices = skipping.devices(dict(site))
    most = devices.per_node or devices.cores
    return devices.kind, counts_up_to(max(1, min(most, MOST_DEVICES)))


def images(path: Path) -> dict[str, dict[str, str]]:
    """data.images of the config for pictures at a path; their dataset is named as that is.

    Raises Error: there are no pictures as docs/data.md describes them.
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
    files = config.read(*config.files())
    merged = config.merge(files, {"data": {"images": dict(images or {})}})
    config.register_folders(merged)
    return config.merge(merged, yaml.safe_load(site_text)) if site_text else merged


def check(text: str, settings: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Check the text of a study as the workflow will.

    Returns the number of runs that are trained, and the reasons for which others are skipped.
    `settings`: the config without the study. Raises Error: it has mistakes, or nothing remains.
    """
    study = config.study(config.merge(dict(settings), yaml.safe_load(text)))
    devices = skipping.devices(study.site)
    reasons = [skipping.cannot_run(run, devices, study.images) for run in study.runs]
    if all(reasons):
        raise Error(f"this site can do none of the runs: {reasons[0]}")
    return reasons.count(None), sorted(set(filter(None, reasons)))


def yaml_text(choice: Choice, start: str) -> str:
    """The study as commented YAML. `start`: the command that starts it, for its head."""
    (warmup_steps, steps), batches = _size(choice)
    length = {"warmup_steps": warmup_steps, "steps": steps}
    blocks, scales = [], choice.devices[-1] > 1 or bool(choice.nodes)
    if choice.devices[-1] > 1:
        blocks.append(
            {"name": "speedup on the devices of a node"}
            | _work(choice, STRATEGIES, SYNTHETIC, {"devices_per_node": [*choice.devices]})
            | {"batch_per_device": batches[1], **length}
        )
    if choice.nodes:
        blocks.append(
            {"name": "speedup across nodes"}
            | _work(choice, ACROSS_NODES, SYNTHETIC, {"nodes": [*choice.nodes]})
            | {"devices_per_node": choice.devices[-1], "launcher": choice.launcher}
            | {"batch_per_device": batches[1], **length}
        )
    blocks.append(
        {"name": "throughput by batch size, on one device"}
        | _work(choice, {}, choice.dataset, {"batch_per_device": batches})
        | length
    )
    if choice.dataset == DATASET:
        blocks.append(
            {"name": "learning, until held-out images are recognised"}
            | _work(choice, {}, choice.dataset, {})
            | {"batch_per_device": 32, "optimizer": "momentum", "learning_rate": 0.02, "epochs": 10}
        )
    first, *others = choice.frameworks
    return TEXT.format(
        start=start,
        study=_yaml(choice.name),
        data="".join([PICTURES * bool(choice.images), *_lines(choice.images, 4)]),
        device=DEVICES[choice.kind],
        matrix="".join(f"  - {''.join(_lines(block, 4)).lstrip()}" for block in blocks),
        figures=_yaml(["scaling"] * scales + ["batch_size", "loss", "step_times", "coverage"]),
        compare=_yaml([{"field": "framework", "base": first}] * bool(others)),
    )


def _lines(values, indentation):
    """The lines of a mapping, each of its values on one; but of a list of mappings each on one."""
    for key, value in values.items():
        each = value if isinstance(value, list) and isinstance(value[0], dict) else []
        yield f"{' ' * indentation}{_yaml(key)}:{'' if each else f' {_yaml(value)}'}\n"
        yield from (f"{' ' * indentation}  - {_yaml(one)}\n" for one in each)


def _yaml(value):
    """A value in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def _work(choice, strategies, dataset, lists):
    """What is trained; the frameworks after the first are entries of `include`."""
    fields = [
        {"framework": framework, "strategy": strategies.get(framework, "single")}
        for framework in choice.frameworks
    ]
    named = [environment(framework, choice.kind) for framework in choice.frameworks]
    if any(named):  # then all: an entry of include would take over that of the block
        for each, name in zip(fields, named, strict=True):
            each["environment"] = name or engine.environment(each["framework"])
    first, *others = ({**each, **lists} for each in fields)
    block = {"model": choice.model, "dataset": dataset} | first
    return block | ({"include": others} if others else {})


def _size(choice):
    """(steps of warm-up and measured, batches) that take seconds."""
    model = _constants(choice.model, choice.frameworks[0])
    is_small = prod(model["INPUT_SHAPE"]) <= SMALL_ITEM and model["CLASSES"] <= SMALL_CLASSES
    if choice.kind == "gpu":
        return SMALL_ON_GPUS if is_small else LARGE_ON_GPUS
    steps, batches = SMALL if is_small else LARGE
    return ((50, 300) if choice.model == MODELS["cpu"] else steps), batches


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
