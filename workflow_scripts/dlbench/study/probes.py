"""Probes: short runs that tell what a step of a run is made of.

- A block with `explain: true` has probes for each of its runs: the run itself in a few steps, then
  the same without its input, then also without the exchange of gradients, then also without other
  devices beside it, then also without the wait for each step's loss. The time by which a step gets
  shorter is what the part left out costs (dlbench/analysis/explanations.py).
- They are runs as any other, of fields that there are: planned among the others in random order,
  kept, repeated where missing. They enter no statistics of the study. Probes that are alike are
  made once, as that on one device is for two strategies.
"""

from dataclasses import replace
from types import SimpleNamespace

from dlbench.common import plugins
from dlbench.run_fields.fields import DECLARED
from dlbench.study.runs import DEFAULTS, READING, Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

STORED, SYNTHETIC = DECLARED["probe"].choices  # whose items are
STEPS = 30  # at most, measured; a run of fewer has as many as it has
WINDOW_STEPS = 10  # that a device does in a row where none is waited for
# What is left out, each beside all before it; the first is the run as it is.
KINDS = WHOLE, INPUT, EXCHANGE, OTHER_DEVICES, WAITS = (
    "whole",
    "no_input",
    "no_exchange",
    "one_device",
    "no_waits",
)


def of(run: Run, copies: bool = True) -> dict[str, Run]:
    """The probes of a run by what they leave out, in the order of KINDS; some runs lack some.

    - Without input: made-up items of the same shape, which are there before the first step.
    - Without exchange: on each device of a node a copy of the run on one device, all at once.
    - One device: one such copy alone.
    - Without waits: steps in windows, whose losses arrive together.

    Args:
        run: one of ours, no other program's. One that reads items alone, without a model, has none.
        copies: whether runs may be trained as several copies at once.
    """
    if run.mode == inputs.ALONE:
        return {}
    steps = min(run.steps or STEPS, STEPS)
    own = {name: DEFAULTS[name] for name in ("evaluate", "profile")}
    last = replace(run, probe=STORED, steps=steps, epochs=None, **own)
    probes = {WHOLE: last}
    if not plugins.constants("datasets", run.dataset)["SYNTHETIC"]:
        own = {name: DEFAULTS[name] for name in ("augment", "cache", *READING)}
        last = probes[INPUT] = replace(last, probe=SYNTHETIC, **own)
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
