"""Fields of a run: how gradients become new weights."""

from dataclasses import dataclass

from dlbench.run_fields.declaring import MODEL, declared


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Learning:
    """How gradients become new weights."""

    optimizer: str = declared(
        "sgd",
        "sgd, momentum (sgd with momentum 0.9), rmsprop, adam, or adamw, which needs a "
        "weight_decay.",
        choices=("sgd", "momentum", "rmsprop", "adam", "adamw"),
        label="{}",
    )
    weight_decay: float = declared(
        0.0,
        "Of adamw: each step shrinks a weight by this times the learning rate; weights with "
        "one axis (biases, gains) keep their size. 0 for all other optimizers.",
        minimum=0,
        changes_speed=False,
    )
    clip_norm: float = declared(
        0.0,
        "Gradients whose common norm is larger are shortened to it, after their mean over the"
        " devices; 0: none are.",
        minimum=0,
        label="gradients up to {}",
        part=MODEL,
        needs_gradients=True,
    )
    accumulate_steps: int = declared(
        1,
        "Equal parts of batch_per_device that a device computes one after the other before "
        "the weights are updated; must divide it.",
        minimum=1,
        label="in {} parts",
        part=MODEL,
        needs_gradients=True,
    )
    learning_rate: float = declared(
        0.01,
        "Learning rate; that of every step, unless it is scaled, warmed up or brought down.",
        above=0,
        note="before scaling",
        label="rate {}",
        changes_memory=False,
        changes_speed=False,
    )
    learning_rate_scaling: str = declared(
        "none",
        "Multiply the learning rate with global batch / learning_rate_batch, or with its root.",
        choices=("none", "linear", "sqrt"),
        label="{} scaling of the rate",
        changes_memory=False,
        changes_speed=False,
    )
    learning_rate_batch: int = declared(
        256,
        "The global batch for which learning_rate is meant, where it is scaled.",
        minimum=1,
        unit="items",
        note="reference batch size of the learning-rate scaling",
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
    learning_rate_warmup_steps: int = declared(
        0,
        "Steps in which the learning rate rises linearly: to the scaled one from that before "
        "scaling, without scaling from zero.",
        minimum=0,
        unit="steps",
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
    learning_rate_decay: str = declared(
        "none",
        "cosine: after its warm-up the learning rate falls along half a cosine, to zero "
        "behind the last step.",
        choices=("none", "cosine"),
        label="{} decay of the rate",
        changes_memory=False,
        changes_speed=False,
    )
