"""The model of a run and its optimizer, on the backend that Keras was imported with.

- The model must take the run's items and give what its task learns from.
"""

from collections.abc import Sequence
from types import ModuleType

import keras

from dlbench import Error
from dlbench.trainer import engine, updates
from dlbench.trainer.reading.converted import Source
from dlbench.trainer.strategy import Spec

KERAS_AT_LEAST = 3
MOMENTUM = 0.9  # as in tf_cnn_benchmarks


def check_keras(backend: str) -> None:
    """Check that Keras is the one that an engine needs.

    Raises:
        Error: it is too old, or was imported for another backend.
    """
    if int(keras.__version__.partition(".")[0]) < KERAS_AT_LEAST:
        raise Error(f"needs Keras {KERAS_AT_LEAST} or newer, found {keras.__version__}")
    if keras.backend.backend() != backend:
        raise Error(
            f"Keras was imported for {keras.backend.backend()}, and this run is of {backend}: "
            "leave KERAS_BACKEND to the trainer"
        )


def set_policy(spec: Spec) -> None:
    """Have the layers made from now on compute in the numbers of a run."""
    keras.mixed_precision.set_global_policy(
        "float32" if spec.precision in ("float32", "tf32") else f"mixed_{spec.precision}"
    )


def make_optimizer(spec: Spec, weights: Sequence[keras.Variable]) -> keras.optimizers.Optimizer:
    """The optimizer of a run, built for its weights; it scales the loss for float16."""
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
    """What a checkpoint keeps, by name: variables that are equal on all ranks, and the others.

    Raises:
        Error: two variables of the model have one name.
    """
    trained = {v.path: v for v in model.trainable_variables}
    optimized = {f"optimizer/{v.path}": v for v in optimizer.variables}
    own = {v.path: v for v in model.variables if v.path not in trained}
    if len(trained) + len(own) != len(model.variables):
        raise Error("two variables of the model have one name: it cannot be checkpointed")
    return trained | optimized, own


def build_model(
    spec: Spec, model_module: ModuleType, task: ModuleType, source: Source
) -> keras.Model:
    """What engine.build_checked gives, seen to fit the module of a task.

    Raises:
        Error: it cannot be built, or takes or gives something else than the task needs.
    """
    model = engine.build_checked(spec, model_module, source, keras.Model, "keras.Model")
    _check_shapes(model, spec, model_module.TASK, task, source)
    return model


def attention_kind(model: keras.Model, kernel: str) -> str | None:
    """The call that computes a model's attention, and its kernel; None: the model has none.

    A layer that makes the call says so by an attribute `attends`.
    """
    has = any(getattr(layer, "attends", False) for layer in model._flatten_layers())
    return f"keras.ops.dot_product_attention: {kernel}" if has else None


def _check_shapes(model, spec, task_name, task, source):
    """Check that a model takes one item of a source, and gives what its task learns from."""
    where = f"models/{spec.model}.py: build"
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
