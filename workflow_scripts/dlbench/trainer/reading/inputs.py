"""Which runs can have their items read as they say: by which reader, how far ahead, cold or warm.

A framework names its readers in its `engine.py` (INPUTS).
"""

from dlbench.common import plugins
from dlbench.run_fields.declaring import MODEL, READING
from dlbench.run_fields.fields import DECLARED, DEFAULTS
from dlbench.trainer import engine
from dlbench.trainer.strategy import BaseStrategy, Spec

AUTO = "auto"
ALONE = "input"  # the mode of runs that read items, and do nothing with them
PAGE_CACHES = AS_FOUND, COLD, WARM = DECLARED["page_cache"].choices
# What a reader needs beside its framework: extras of environments, named as their packages.
PACKAGES = {"grain": ("grain",)}
# Readers whose workers make whole batches, each at least one ahead.
OF_WORKERS = ("grain", "torch")


def names() -> list[str]:
    """The readers that any framework has."""
    return sorted({name for framework in engine.names() for name in engine.inputs(framework)})


def chosen(run: Spec) -> str:
    """The reader of a run: the one that it names, or its framework's usual one."""
    return engine.inputs(run.framework)[0] if run.input == AUTO else run.input


def packages(run: Spec) -> tuple[str, ...]:
    """What Python must be able to import for the reader of a run, beside its framework."""
    return PACKAGES.get(run.input, ())


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run cannot have its items read as it says, or None.

    Args:
        strategy: its class.
    """
    if run.mode == ALONE and (reason := _not_alone(run, strategy)):
        return reason
    asked = _asked(run, READING)
    if asked and plugins.constants("datasets", run.dataset)["SYNTHETIC"]:
        return f"{asked[0]} is about reading, and dataset {run.dataset} has nothing to read"
    there = engine.inputs(run.framework)
    if chosen(run) not in there:
        others = [name for name in engine.names() if run.input in engine.inputs(name)]
        return (
            f"input {run.input} is a reader of {' and '.join(others)}; {run.framework} has: "
            f"{', '.join(there)}"
        )
    if run.input in OF_WORKERS and run.prefetch == 0:
        return (
            f"each worker of input {run.input} makes at least one batch ahead: give a prefetch of "
            "1 or more, or leave it out"
        )
    if run.page_cache == AS_FOUND:
        return None
    if run.page_cache == COLD and run.copies_per_node > 1:
        return (
            "page_cache cold is of one copy: one that drops the files would slow down others that "
            "read already; choose warm, or copies_per_node 1"
        )
    if not strategy.first_computes:
        return (
            f"page_cache {run.page_cache} needs processes that meet before they read, and those of "
            f"strategy {run.strategy} do not: choose as_found"
        )
    return None


def _not_alone(run, strategy):
    """Why the items of a run cannot be read alone, without a model, or None."""
    if plugins.constants("datasets", run.dataset)["SYNTHETIC"]:
        return f"mode input reads items, and dataset {run.dataset} has none to read"
    if not strategy.first_computes:
        return (
            f"mode input does not go with strategy {run.strategy}, whose processes read when the "
            "first one tells them: choose another strategy"
        )
    asked = _asked(run, MODEL)
    if asked:
        return f"{asked[0]} is about a model, and mode input has none: leave it out"
    return None


def _asked(run, part):
    """The fields about a part of the work of which a run says something."""
    names = [name for name, field in DECLARED.items() if field.part == part]
    return [name for name in names if getattr(run, name) != DEFAULTS[name]]
