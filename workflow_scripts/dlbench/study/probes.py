"""Probes: short runs that show what the steps of a run consist of.

- A block with `explain: true` has probes for each of its runs: the run itself for a few steps; the
  same without reading its items; then also without copies of them to the devices; then also without
  the exchange of gradients; then also without other devices beside it; then also without waiting
  for each step's loss. The time by which a step gets shorter is the cost of what was left out
  (dlbench/analysis/limits.py).
- Probes are ordinary runs with ordinary fields: they are trained in random order among the others,
  recorded, and repeated if missing. They enter no statistics of the study. Equal probes are trained
  once: two strategies share the one on one device.
- Another program leaves parts out by parameters that the block names. Its probes have as many steps
  as its runs: how many it needs before it prints a rate is unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from dlbench.common import phrases, plugins
from dlbench.study import parameters, runs
from dlbench.study.config_schema import ConfigError
from dlbench.study.runs import DEFAULTS, Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

STEPS = 30  # at most, measured; a run of fewer has as many as it has
WINDOW_STEPS = 10  # that a device does in a row where none is waited for
# What is left out, in addition to everything before it; the first is the run as it is.
KINDS = WHOLE, READING, COPIES, EXCHANGE, OTHER_DEVICES, WAITS = (
    "whole",
    "no_reading",
    "no_input",
    "no_exchange",
    "one_device",
    "no_waits",
)
# What another program leaves out, by the name of the part in a block's `explain`.
BY_PARAMETERS = {"input": READING, "copies": COPIES, "exchange": EXCHANGE, "waits": WAITS}


def of(run: Run, copies: bool = True) -> dict[str, Run]:
    """The probes of a run by what they leave out, in the order of KINDS; not all apply to each run.

    - Without reading: one batch of synthetic items of the same shape, made before the first step
      and copied from the memory of the host for each step.
    - Without copies: such a batch, on the devices before the first step.
    - Without exchange: a single-device copy of the run on each device of a node, all at once.
    - One device: one such copy alone.
    - Without waits: steps in windows, whose losses arrive together.

    Args:
        run: trained by dlbench. A run of mode input, which has no model, has no probes.
        copies: whether runs may be trained as several copies at once.
    """
    if run.mode == inputs.INPUT_ONLY:
        return {}
    steps = min(run.steps or STEPS, STEPS)
    changes = {name: DEFAULTS[name] for name in ("evaluate", "profile")}
    last = replace(run, probe=inputs.STORED, steps=steps, epochs=None, **changes)
    probes = {WHOLE: last}
    if not plugins.constants("datasets", run.dataset)["SYNTHETIC"]:
        changes = {name: DEFAULTS[name] for name in ("augment", "cache", *runs.READING)}
        probes[READING] = replace(last, probe=inputs.COPIED, **changes)
        last = probes[COPIES] = replace(last, probe=inputs.SYNTHETIC, **changes)
    if run.devices > 1:
        single = SimpleNamespace(framework=run.framework, strategy="single")
        last = replace(
            last,
            strategy="single",
            strategy_options="",
            launcher=engine.strategy_of(single).launcher,
            nodes=1,
            devices_per_node=1,
        )
        if run.devices_per_node > 1 and copies and run.copies_per_node == 1:
            probes[EXCHANGE] = replace(last, copies_per_node=run.devices_per_node)
        last = probes[OTHER_DEVICES] = replace(last, copies_per_node=1)
    if run.steps_per_sync in (None, 1) and steps >= WINDOW_STEPS:
        probes[WAITS] = replace(last, steps_per_sync=WINDOW_STEPS)
    return probes


def of_program(
    run: Run,
    combination: Mapping[str, Any],
    where: str,
    explain: bool | Mapping[str, Mapping[str, Any]],
    run_of: Callable[[Mapping[str, Any]], Run],
) -> dict[str, Run]:
    """The probes of a run of another program, by what they leave out, in the order of KINDS.

    A part that the run lacks already has no probe. Raises ConfigError: the block names no
    parameters, or one that it has not, or the step has other items with them.

    Args:
        combination: the values of the run's block for it.
        where: its place in the config.
        explain: {a name of BY_PARAMETERS: the parameters by which the program leaves it out}.
        run_of: makes a run of such values.
    """
    if isinstance(explain, bool):
        raise ConfigError(
            f"{where}.explain: {run.label()} is trained by another program; expected parameters by "
            "which it leaves out a part of its steps, as in {input: {items: synthetic}}"
        )
    values = {**combination, "repeat": run.repeat, "probe": inputs.STORED}
    known = parameters.own_names(values)
    whole = last = run_of(values)
    found = {WHOLE: whole}
    for part in (part for part in BY_PARAMETERS if part in explain):
        for name, value in explain[part].items():
            if name not in known:
                raise ConfigError(
                    f"{where}.explain.{part}: the block has no parameter {name}"
                    f"{phrases.did_you_mean(name, known)}; it has: {', '.join(known) or 'none'}"
                )
            values[f"{parameters.PREFIX}{name}"] = value
        probe = run_of(values)
        if (probe.global_batch, probe.devices) != (run.global_batch, run.devices):
            raise ConfigError(
                f"{where}.explain.{part}: with it a step has {probe.global_batch} items on "
                f"{probe.devices} devices, instead of {run.global_batch} on {run.devices}; what "
                "is left out must leave the items of a step as they are"
            )
        if probe != last:
            found[BY_PARAMETERS[part]] = last = probe
    return found if last is not whole else {}
