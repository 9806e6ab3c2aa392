"""The update of the weights from a step's gradients, alike in all frameworks.

- The learning rate is scaled with the global batch (A. Krizhevsky (2014), arXiv:1404.5997,
  section 5: sqrt; P. Goyal et al. (2017), arXiv:1706.02677, section 2.1: linear) and warmed up
  gradually as in section 2.2 there: from the rate before scaling to the scaled one; without
  scaling from zero.
- It decays as in I. Loshchilov and F. Hutter (2017), arXiv:1608.03983, equation 5, without
  restarts: after the warm-up along half a cosine, which reaches zero one step after the last.
- AdamW: I. Loshchilov and F. Hutter (2019). Decoupled weight decay regularization. ICLR,
  arXiv:1711.05101, algorithm 2: before each update a weight is multiplied by
  1 - learning rate * weight_decay. Weights with fewer than two axes (biases, the gains of
  normalisation layers) do not decay; those with two and more do, embeddings among them.
- Clipping: R. Pascanu, T. Mikolov and Y. Bengio (2013). On the difficulty of training recurrent
  neural networks. ICML, algorithm 1: the norm is that of all gradients together, which are means
  over all devices, without the scale that float16 gives the loss.
- Accumulation: a device computes its batch in equal parts, one after the other; gradient and loss
  are the means over the parts. Batch normalisation normalises each part by itself.
- In bfloat16 and float16 the weights and the optimizer's state stay float32; a layer computes with
  copies of lower precision.
"""

import math

from dlbench.common.run_fields import DECLARED, DEFAULTS
from dlbench.trainer.strategy import BaseStrategy, Spec

MIN_AXES = 2  # of a weight that decays
# Of Adam and AdamW: how much of the first and second moment stays from step to step.
BETAS = (0.9, 0.999)
EPSILON = 1e-7  # of Adam, AdamW and RMSprop, as Keras has it


def decays(axes: int) -> bool:
    """Whether weight_decay shrinks a weight with so many axes."""
    return axes >= MIN_AXES


def scaled_learning_rate(spec: Spec, global_batch: int) -> float:
    """The learning rate after the warm-up.

    >>> from types import SimpleNamespace as Spec
    >>> spec = Spec(learning_rate=0.1, learning_rate_scaling="linear", learning_rate_batch=256)
    >>> scaled_learning_rate(spec, 512)
    0.2
    """
    ratio = global_batch / spec.learning_rate_batch
    factor = {"none": 1.0, "linear": ratio, "sqrt": ratio**0.5}[spec.learning_rate_scaling]
    return spec.learning_rate * factor


def learning_rate_changes(spec: Spec, step: int | None = None) -> bool:
    """Whether the rate may change before a step; None: before any step."""
    warms_up = spec.learning_rate_warmup_steps >= (step or 1)
    return warms_up or spec.learning_rate_decay != "none"


def learning_rate_in_step(spec: Spec, global_batch: int, step: int, last: int) -> float:
    """The learning rate of a step; steps count from 1.

    `last`: number of the last step of the run.

    >>> from types import SimpleNamespace as Spec
    >>> spec = Spec(learning_rate=0.1, learning_rate_scaling="linear", learning_rate_batch=256,
    ...             learning_rate_warmup_steps=4, learning_rate_decay="cosine")
    >>> [round(learning_rate_in_step(spec, 1024, step, last=8), 3) for step in (1, 2, 4, 5, 7, 8)]
    [0.175, 0.25, 0.4, 0.4, 0.2, 0.059]
    """
    end, warm_up = scaled_learning_rate(spec, global_batch), spec.learning_rate_warmup_steps
    if step < warm_up:
        start = 0.0 if spec.learning_rate_scaling == "none" else spec.learning_rate
        return start + (end - start) * step / warm_up
    if spec.learning_rate_decay == "none" or step == warm_up:
        return end
    return end * (1 + math.cos(math.pi * (step - 1 - warm_up) / (last - warm_up))) / 2


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run of a class of strategy cannot update its weights so; None if it can."""
    if run.warmup_s and run.learning_rate_decay != "none":
        return (
            f"learning_rate_decay {run.learning_rate_decay} needs to know the last step beforehand,"
            " and warmup_s adds steps by the clock: leave out one of them"
        )
    if run.batch_per_device % run.accumulate_steps:
        return (
            f"accumulate_steps must divide batch_per_device, for the parts to be equal: "
            f"{run.batch_per_device} cannot be cut into {run.accumulate_steps}"
        )
    if run.mode == "forward":
        for name, field in DECLARED.items():
            if field.needs_gradients and getattr(run, name) != DEFAULTS[name]:
                return f"{name} is of gradients, and mode forward computes none: leave it out"
    if run.optimizer == "adamw" and not run.weight_decay:
        return (
            "optimizer adamw needs a weight_decay above 0, as 0.01 (PyTorch's default) or 0.1 "
            "(GPT-3's); without it, it is adam"
        )
    if run.weight_decay and run.optimizer != "adamw":
        return f"weight_decay is of optimizer adamw, and this run has {run.optimizer}"
    if run.clip_norm and not strategy.clips_mean:
        return (
            f"clip_norm does not work with strategy {run.strategy}: there each device's gradients "
            "would be clipped by themselves, before they are added up"
        )
    return None
