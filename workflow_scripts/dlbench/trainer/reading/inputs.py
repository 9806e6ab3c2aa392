"""The readers of items, which settings of reading a run may have, and which texts a model.

A framework names its readers in its `engine.py` (INPUTS). A model file may define POSITIONS, the
most tokens of an item; FIXED_CLASSES, that the size of its vocabulary does not depend on the data;
RECOMPUTES, that `build` takes `recompute`. A dataset file may define VOCABULARY, its number of
different tokens.
"""

from dlbench.common import plugins
from dlbench.common.run_fields import DECLARED, DEFAULTS, MODEL, READING
from dlbench.trainer import engine
from dlbench.trainer.strategy import BaseStrategy, Spec
from dlbench.trainer.tasks import TASKS

AUTO = "auto"
INPUT_ONLY = "input"  # the mode of runs that only read items
# Whose items a probe has: its dataset's, or made-up ones on the devices or in the host's memory.
STORED, SYNTHETIC, COPIED = DECLARED["probe"].choices
PAGE_CACHES = AS_FOUND, COLD, WARM = DECLARED["page_cache"].choices
# Packages that a reader needs beside its framework; extras of environments have the same names.
PACKAGES = {"grain": ("grain",)}
# Readers whose workers prepare whole batches, each at least one ahead.
OF_WORKERS = ("grain", "torch")


def names() -> list[str]:
    """The readers of all frameworks."""
    return sorted({name for framework in engine.names() for name in engine.inputs(framework)})


def reader_of(run: Spec) -> str:
    """The reader of a run: the one that it names, or its framework's default."""
    return engine.inputs(run.framework)[0] if run.input == AUTO else run.input


def packages(run: Spec) -> tuple[str, ...]:
    """The packages that Python must be able to import for a run's reader, beside its framework."""
    return PACKAGES.get(run.input, ())


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run's items cannot be read as its fields say; None if they can.

    `strategy`: its class.
    """
    if run.mode == INPUT_ONLY and (reason := _unsupported_input_only(run, strategy)):
        return reason
    fields = _fields_set(run, READING)
    if fields and _is_synthetic(run.dataset):
        return f"{fields[0]} is about reading, and dataset {run.dataset} has nothing to read"
    readers = engine.inputs(run.framework)
    if reader_of(run) not in readers:
        others = [name for name in engine.names() if run.input in engine.inputs(name)]
        return (
            f"input {run.input} is a reader of {' and '.join(others)}; {run.framework} has: "
            f"{', '.join(readers)}"
        )
    if run.input in OF_WORKERS and run.prefetch == 0:
        return (
            f"each worker of input {run.input} prepares at least one batch ahead: give a prefetch "
            "of 1 or more, or leave it out"
        )
    if run.page_cache == AS_FOUND:
        return None
    if run.page_cache == COLD and run.copies_per_node > 1:
        return (
            "page_cache cold needs copies_per_node 1: a copy that drops the files would slow down "
            "others that already read; choose warm, or copies_per_node 1"
        )
    if not strategy.first_computes:
        return (
            f"page_cache {run.page_cache} needs processes that wait for one another before they "
            f"read, and those of strategy {run.strategy} do not: choose as_found"
        )
    return None


def unsupported_text(run: Spec) -> str | None:
    """Why a run's model cannot take its items or be built as its fields say; None if it can."""
    model = plugins.constants(engine.plugin_kind(run.framework, "models"), run.model)
    if run.recompute and not model.get("RECOMPUTES"):
        return f"recompute is of models of blocks, as gpt2_small; {run.model} has none"
    task = model.get("TASK")
    known = TASKS.get(task or "")
    if known is None or known.KIND != "text":
        for name in ("sequence_length", "vocabulary_multiple"):
            if getattr(run, name) != DEFAULTS[name]:
                return f"{name} is of models of text; {run.model} learns {task}"
        return None
    tokens, most = run.sequence_length or 0, model.get("POSITIONS")
    if most and tokens > most:
        return f"sequence_length {tokens} is more than the {most} positions of {run.model}"
    return _unsupported_vocabulary(run, model)


def _unsupported_vocabulary(run, model):
    is_known = plugins.is_known("datasets", run.dataset)  # the user's pictures have no file
    tokens = plugins.constants("datasets", run.dataset).get("VOCABULARY", 0) if is_known else 0
    if tokens and TASKS[model["TASK"]].MASKED:
        tokens += 1  # the mask
    if not model.get("FIXED_CLASSES") or tokens <= model["CLASSES"]:
        return None
    return (
        f"{run.dataset} needs a vocabulary of {tokens} tokens, and that of {run.model} has "
        f"{model['CLASSES']}"
    )


def _unsupported_input_only(run, strategy):
    """Why a run cannot have mode input, which reads items without a model; None if it can."""
    if _is_synthetic(run.dataset):
        return f"mode input reads items, and dataset {run.dataset} has none to read"
    if not strategy.first_computes:
        return (
            f"mode input does not go with strategy {run.strategy}, whose processes read when the "
            "first one tells them: choose another strategy"
        )
    fields = _fields_set(run, MODEL)
    if fields:
        return f"{fields[0]} is about a model, and mode input has none: leave it out"
    return None


def _is_synthetic(dataset):
    """Whether a dataset has no stored items; those of the user's pictures have no file here."""
    return (
        plugins.is_known("datasets", dataset)
        and plugins.constants("datasets", dataset)["SYNTHETIC"]
    )


def _fields_set(run, part):
    """The fields about a part of the work that a run sets to another value than the default."""
    names = [name for name, field in DECLARED.items() if field.part == part]
    return [name for name in names if getattr(run, name) != DEFAULTS[name]]
