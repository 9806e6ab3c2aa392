"""Items of text: how long they are, and which models can learn from them.

A model file may define POSITIONS, the most tokens of an item; FIXED_CLASSES, that the size of its
vocabulary does not depend on the data; RECOMPUTES, that `build` takes `recompute`. A dataset file
may define VOCABULARY, its number of different tokens.
"""

from dlbench.common import plugins
from dlbench.run_fields.fields import DEFAULTS
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec


def unsupported(run: Spec) -> str | None:
    """Why a run's model cannot take its items or be built as its fields say; None if it can."""
    model = plugins.constants(engine.plugin_kind(run.framework, "models"), run.model)
    if run.recompute and not model.get("RECOMPUTES"):
        return f"recompute is of models of blocks, as gpt2_small; {run.model} has none"
    task = model.get("TASK")
    if task not in plugins.names("tasks") or plugins.constants("tasks", task)["KIND"] != "text":
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
    if tokens and plugins.constants("tasks", model["TASK"]).get("MASKED"):
        tokens += 1  # the mask
    if not model.get("FIXED_CLASSES") or tokens <= model["CLASSES"]:
        return None
    return (
        f"{run.dataset} needs a vocabulary of {tokens} tokens, and that of {run.model} has "
        f"{model['CLASSES']}"
    )
