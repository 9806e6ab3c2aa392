"""The learning rate of each step: scaled with the global batch, and warmed up.

- A. Krizhevsky (2014), arXiv:1404.5997, section 5: sqrt; P. Goyal et al. (2017),
  arXiv:1706.02677, section 2.1: linear.
- Gradual warm-up as in section 2.2 there: from the rate before scaling to the
  scaled one. Without scaling it begins at zero.
"""

from dlbench.trainer.strategy import Spec


def scaled(spec: Spec, global_batch: int) -> float:
    """The learning rate after the warm-up.

    >>> from types import SimpleNamespace as Spec
    >>> spec = Spec(learning_rate=0.1, learning_rate_scaling="linear", learning_rate_batch=256)
    >>> scaled(spec, 512)
    0.2
    """
    ratio = global_batch / spec.learning_rate_batch
    factor = {"none": 1.0, "linear": ratio, "sqrt": ratio**0.5}[spec.learning_rate_scaling]
    return spec.learning_rate * factor


def in_step(spec: Spec, global_batch: int, step: int) -> float:
    """The learning rate of a step; steps count from 1.

    >>> from types import SimpleNamespace as Spec
    >>> spec = Spec(learning_rate=0.1, learning_rate_scaling="linear", learning_rate_batch=256,
    ...             learning_rate_warmup_steps=4)
    >>> [round(in_step(spec, 1024, step), 3) for step in (1, 2, 4, 5)]
    [0.175, 0.25, 0.4, 0.4]
    """
    end = scaled(spec, global_batch)
    if step >= spec.learning_rate_warmup_steps:
        return end
    start = 0.0 if spec.learning_rate_scaling == "none" else spec.learning_rate
    return start + (end - start) * step / spec.learning_rate_warmup_steps
