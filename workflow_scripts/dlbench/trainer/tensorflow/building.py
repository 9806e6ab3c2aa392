"""The model of a run: it must take the run's items and give what its task learns from."""

from types import ModuleType

import keras

from dlbench import Error
from dlbench.common import terminal
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.items import Source


def build_model(spec: Spec, native: ModuleType, task: ModuleType, source: Source) -> keras.Model:
    """The model for the items of a source.

    Args:
        spec: the run's fields as attributes (see runs.Run).
        native: the module of the model.
        task: the module of its task.
        source: of its items.

    Raises:
        Error: it cannot be built, or takes or gives something else than the task needs.
    """
    try:
        model = native.build(source.item_shape, source.classes)
    except ValueError as error:
        raise Error(
            f"model {spec.model} cannot be built for items of shape {source.item_shape} in "
            f"{source.classes} classes of {spec.dataset}; it was designed for "
            f"{native.INPUT_SHAPE}: {terminal.message(str(error), 300)}"
        ) from error
    _see_form(model, spec, native.TASK, task, source)
    return model


def _see_form(model, spec, task_name, task, source):
    """Check that a model takes one item of a source, and gives what its task learns from."""
    where = f"models/{spec.model}.py: build"
    if not isinstance(model, keras.Model):
        returned = "nothing; is its return missing?" if model is None else type(model).__name__
        raise Error(f"{where}: expected it to return a keras.Model, found {returned}")
    if getattr(model, "inputs", None):
        inputs, outputs = model.inputs, model.outputs
    else:  # of a class of the user's own: it has none before it is called
        inputs = [keras.Input(source.item_shape)]
        outputs = keras.tree.flatten(model(*inputs))
    logits = task.logits_shape(source.item_shape, source.classes)
    why_logits = f"the logits of {task_name} in {source.classes} classes"
    for what, tensors, wanted, why in (
        ("input", inputs, tuple(source.item_shape), f"an item of {spec.dataset}"),
        ("output", outputs, logits, why_logits),
    ):
        shapes = [tuple(tensor.shape[1:]) for tensor in tensors]
        if len(shapes) != 1 or not _fits(shapes[0], wanted):
            raise Error(
                f"{where}: expected a model with one {what} of shape {wanted}, {why}; found "
                f"{len(shapes)} of shape {' and '.join(map(str, shapes))}"
            )


def _fits(shape, wanted):
    """Whether a shape is the one wanted, or leaves sizes open."""
    return len(shape) == len(wanted) and all(
        size in (None, other) for size, other in zip(shape, wanted, strict=True)
    )
