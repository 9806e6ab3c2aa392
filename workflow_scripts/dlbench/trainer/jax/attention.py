"""The kernel that computes a model's attention in a run, read from the program of one layer.

- Keras decides between cuDNN's kernel and XLA's products when it traces the call, by shapes, dtype
  and device: a layer is lowered for the run's batch, with gradient if the run takes gradients.
  cuDNN's kernel is then a call in that program; XLA neither removes nor adds one.
- Lowering compiles nothing and allocates nothing.
"""

import jax
import keras

CUDNN = "__cudnn$fmha"  # how the targets of its calls begin


def kernel(layer: keras.Layer, batch: int, learns: bool) -> str:
    """Which kernel computes the attention of a layer: cudnn, xla, or unknown.

    Args:
        layer: one that calls keras.ops.dot_product_attention and has one input.
        batch: items of a call.
        learns: whether the run takes gradients.
    """
    inputs = getattr(layer, "input", None)
    if not isinstance(inputs, keras.KerasTensor):  # of a model without a graph of its layers
        return "unknown"

    def total(x):
        return layer(x).astype("float32").sum()

    x = jax.ShapeDtypeStruct((batch, *inputs.shape[1:]), layer.compute_dtype)
    lowered = jax.jit(jax.grad(total) if learns else total).lower(x)
    return name_in(lowered.as_text())


def name_in(program: str) -> str:
    """The kernel of attention in a lowered program, in which cuDNN's is a custom call."""
    return "cudnn" if CUDNN in program else "xla"
