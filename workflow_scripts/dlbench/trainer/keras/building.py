"""The model of a run and its optimizer, on the backend that Keras was imported with.

- The model must accept the run's items and return the logits of its task.
"""

from collections.abc import Callable, Sequence
from types import ModuleType

import keras

from dlbench import Error
from dlbench.trainer import engine, updates
from dlbench.trainer.reading.converted import Source
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import Task

KERAS_AT_LEAST = 3
MOMENTUM = 0.9  # as in tf_cnn_benchmarks


def check_keras(backend: str) -> None:
    """Check the version of Keras, and that it was imported for a backend."""
    if int(keras.__version__.partition(".")[0]) < KERAS_AT_LEAST:
        raise Error(f"needs Keras {KERAS_AT_LEAST} or newer, found {keras.__version__}")
    if keras.backend.backend() != backend:
        raise Error(
            f"Keras was imported for {keras.backend.backend()}, and this run is of {backend}: "
            "leave KERAS_BACKEND to the trainer"
        )


def set_policy(spec: Spec) -> None:
    """Set the dtype policy of all layers that are created from now on to that of a run."""
    keras.mixed_precision.set_global_policy(
        "float32" if spec.precision in ("float32", "tf32") else f"mixed_{spec.precision}"
    )


def make_optimizer(spec: Spec, weights: Sequence[keras.Variable]) -> keras.optimizers.Optimizer:
    """The optimizer of a run, built for its weights; for float16 it scales the loss."""
    adam = {"beta_1": updates.BETAS[0], "beta_2": updates.BETAS[1], "epsilon": updates.EPSILON}
    kind, settings = {
        "sgd": (keras.optimizers.SGD, {}),
        "momentum": (keras.optimizers.SGD, {"momentum": MOMENTUM}),
        "rmsprop": (keras.optimizers.RMSprop, {}),
        "adam": (keras.optimizers.Adam, adam),
        "adamw": (keras.optimizers.AdamW, {**adam, "weight_decay": spec.weight_decay}),
    }[spec.optimizer]
    optimizer = kind(spec.learning_rate, global_clipnorm=spec.clip_norm or None, **settings)
    if spec.weight_decay:
        optimizer.exclude_from_weight_decay([w for w in weights if not updates.decays(w.ndim)])
    if spec.precision == "float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(weights)
    return optimizer


def named_variables(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> tuple[dict[str, keras.Variable], dict[str, keras.Variable]]:
    """The variables that a checkpoint saves, by name: (replicated on all ranks, the others)."""
    trained = {v.path: v for v in model.trainable_variables}
    of_optimizer = {f"optimizer/{v.path}": v for v in optimizer.variables}
    others = {v.path: v for v in model.variables if v.path not in trained}
    if len(trained) + len(others) != len(model.variables):
        raise Error("two variables of the model have one name: it cannot be checkpointed")
    return trained | of_optimizer, others


def build_model(spec: Spec, model_module: ModuleType, task: Task, source: Source) -> keras.Model:
    """Build the model of a run, and check the shapes of its inputs and outputs."""
    model = engine.build_checked(spec, model_module, source, keras.Model, "keras.Model")
    _check_shapes(model, spec, model_module.TASK, task, source)
    return model


def attention_kind(model: keras.Model, kernel_of: Callable[[keras.Layer], str]) -> str | None:
    """The call that computes a model's attention, and its kernel; None if it has no attention.

    A layer that makes this call has an attribute `attends`. All such layers of a model are alike.
    """
    layers = (layer for layer in model._flatten_layers() if getattr(layer, "attends", False))
    layer = next(layers, None)
    return layer and f"keras.ops.dot_product_attention: {kernel_of(layer)}"


def _check_shapes(model, spec, task_name, task, source):
    """Check that a model accepts one item of a source, and returns the logits of its task."""
    where = f"models/{spec.model}.py: build"
    if getattr(model, "inputs", None):
        inputs, outputs = model.inputs, model.outputs
    else:  # a subclass of keras.Model: it has none before it is called
        inputs = [keras.Input(source.item_shape)]
        outputs = keras.tree.flatten(model(*inputs))
    classes = engine.model_classes(spec, source)
    logits = task.logits_shape(source.item_shape, classes)
    logits_meaning = f"the logits of {task_name} in {classes} classes"
    for kind, tensors, expected, meaning in (
        ("input", inputs, tuple(source.item_shape), f"an item of {spec.dataset}"),
        ("output", outputs, logits, logits_meaning),
    ):
        shapes = [tuple(tensor.shape[1:]) for tensor in tensors]
        if len(shapes) != 1 or not _fits(shapes[0], expected):
            raise Error(
                f"{where}: expected a model with one {kind} of shape {expected}, {meaning}; found "
                f"{len(shapes)} of shape {' and '.join(map(str, shapes))}"
            )


def _fits(shape, expected):
    """Whether a shape is the expected one, apart from sizes that are None."""
    return len(shape) == len(expected) and all(
        size in (None, other) for size, other in zip(shape, expected, strict=True)
    )
