"""FLOPs of a Keras model for one item, by rules for its layers and Keras's operations.

- The model is called on a symbolic tensor (keras.KerasTensor) of one item, so that layers see
  shapes and compute nothing. A layer without a rule counts as the layers and operations of
  `keras.ops` that its `call` calls.
- A layer that calls the backend directly cannot be followed: it has no rule.
- A layer with `products`, as in models/llama.py, says itself what it needs for an item.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import layers

from dlbench.trainer import model_flops
from dlbench.trainer.model_flops import ModelFlops, Tally

# Layers without matrix products, which count as nothing.
ELEMENTWISE = tuple(
    getattr(layers, name)
    for name in (
        *("InputLayer", "BatchNormalization", "LayerNormalization", "GroupNormalization"),
        *("RMSNormalization", "UnitNormalization", "Normalization", "Rescaling"),
        *("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
        *("GaussianDropout", "GaussianNoise", "AlphaDropout"),
    )
    if hasattr(layers, name)  # some are newer than some Keras 3 in images
)
# Keras operations that are not elementwise and have no rule.
NO_RULE = {
    *("Outer", "Kron", "Correlate", "Vdot", "Corrcoef", "Cross"),
    *("Map", "Scan", "AssociativeScan", "WhileLoop", "ForiLoop", "Cond", "Switch"),
    *("VectorizedMap", "CDist", "Fold", "GaussianBlur", "AffineTransform", "MapCoordinates"),
    *("FFT", "FFT2", "IFFT2", "RFFT", "IRFFT", "STFT", "ISTFT"),
    *("Cholesky", "CholeskyInverse", "Det", "Eig", "Eigh", "Inv", "LuFactor", "Qr", "Solve"),
    *("SolveTriangular", "SVD", "Lstsq", "Pinv", "MatrixRank", "JVP", "Logdet", "Slogdet"),
}
Shape = tuple[int, ...]


def count(model: keras.Model, item_shape: tuple[int, ...]) -> ModelFlops:
    """The work of a built model's forward pass for an item of a shape."""
    inputs = getattr(model, "inputs", None)  # a subclass of keras.Model has none
    item = keras.KerasTensor((1, *item_shape), inputs[0].dtype if inputs else "float32")
    tally = Tally()
    _follow(tally, model, (item,), {})
    return tally.total()


def _follow(tally, operation, arguments, named):
    """Add the work of an operation's `call` on symbolic tensors of these shapes."""
    arguments, named = keras.tree.map_structure(_without_history, (tuple(arguments), dict(named)))
    try:
        calls = list(_calls(operation.call(*arguments, **named)))
    except Exception as error:  # anything that the layer's code may raise for a symbolic tensor
        tally.add_unknown(_label(operation), f"{type(error).__name__}: {error}")
        return
    for call in calls:
        try:
            _add(tally, call)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            tally.add_unknown(_label(call.operation), f"{type(error).__name__}: {error}")


def _without_history(value):
    """A symbolic tensor of the same shape without history: `_calls` does not go beyond it."""
    if not isinstance(value, keras.KerasTensor):
        return value
    return keras.KerasTensor(value.shape, value.dtype)


def _calls(outputs: Any) -> Iterator[Any]:
    """All calls that led to symbolic tensors, each once: Keras's nodes."""
    waiting, seen = keras.tree.flatten(outputs), set()
    while waiting:
        history = getattr(waiting.pop(), "_keras_history", None)
        if history is None or history.operation is None:
            continue
        call = history.operation._inbound_nodes[history.node_index]
        if id(call) not in seen:
            seen.add(id(call))
            waiting += call.input_tensors
            yield call


def _add(tally, call):
    """Add the work of one call of a layer or an operation."""
    operation, arguments = call.operation, call.arguments.args
    if isinstance(operation, (keras.layers.Layer, keras.Function)):
        _add_layer(tally, operation, call)
    elif rule := OPERATIONS.get(_of_keras(operation)):
        shapes = [_shape(array) for array in arguments]
        out = _shape(call.outputs[0])
        values = sum(math.prod(_shape(a)) for a in arguments if isinstance(a, keras.KerasTensor))
        tally.add(rule(operation, shapes, out), values + math.prod(out))
    elif not _of_keras(operation) or _of_keras(operation) in NO_RULE:
        tally.add_unknown(_label(operation), "there is no rule for it")


def _add_layer(tally, layer, call):
    items = [*call.arguments.args, *call.arguments.kwargs.values()][0]
    kind = type(layer)
    if isinstance(layer, ELEMENTWISE):
        return
    if getattr(layer, "recomputes", False):
        inner = Tally()
        _follow(inner, layer, call.arguments.args, call.arguments.kwargs)
        tally.include(inner, recomputed=True)
        return
    if hasattr(layer, "products"):  # what its model needs: it may compute more
        for rows, before, after in layer.products(*items.shape[1:-1]):
            tally.add(rows * before * after, rows * (before + after))
    elif isinstance(layer, layers.Embedding):
        reverse = call.arguments.kwargs.get("reverse") or True in call.arguments.args[1:]
        if reverse:  # the logits, by weights that it shares
            shape, out = _shape(items), _shape(call.outputs[0])
            tally.add(math.prod(out) * shape[-1], math.prod(shape) + math.prod(out))
    elif isinstance(layer, layers.RNN) and kind.call in _CALLS_OF_RNN:
        states = keras.tree.map_structure(_state, layer.cell.state_size)
        states = states if isinstance(states, (list, tuple)) else [states]
        _add_per_timestep(tally, layer.cell, items, list(states))
    elif kind.call is layers.Bidirectional.call:
        for direction in (layer.forward_layer, layer.backward_layer):
            _follow_called(tally, direction, items)
    elif kind.call is layers.EinsumDense.call:  # its outputs may have sizes that are None
        shape = _shape(items)
        multiply_adds, out = model_flops.einsum(layer.equation, shape, _shape(layer.kernel))
        tally.add(multiply_adds, math.prod(shape) + out)
    elif kind.call is layers.MultiHeadAttention.call:
        names = ("query", "value", "key")
        given = dict(zip(names, call.arguments.args, strict=False)) | call.arguments.kwargs
        _attend(tally, layer, given["query"], given["value"], given.get("key"))
    elif kind.call is layers.TimeDistributed.call:
        inner = Tally()
        _follow_called(inner, layer.layer, keras.KerasTensor((1, *items.shape[2:]), items.dtype))
        tally.include(inner, items.shape[1])
    else:
        # A rule holds only if a subclass has not overridden `call`.
        for rules_kind, rule in LAYERS.items():
            if isinstance(layer, rules_kind) and kind.call is rules_kind.call:
                shape, out = _shape(items), _shape(call.outputs[0])
                tally.add(rule(layer, shape, out), math.prod(shape) + math.prod(out))
                return
        _follow(tally, layer, call.arguments.args, call.arguments.kwargs)


def _attend(tally, layer, query, value, key):
    """Add attention with its four projections."""
    query, value = _shape(query), _shape(value)
    key = value if key is None else _shape(key)
    config = layer.get_config()
    heads, width = config["num_heads"], config["key_dim"]
    value_width = config["value_dim"] or width
    queries, keys = math.prod(query[:-1]), math.prod(value[:-1])
    all_width, all_value_width = heads * width, heads * value_width
    shape = config["output_shape"] or query[-1]
    out = math.prod(shape) if isinstance(shape, (list, tuple)) else shape
    for positions, before, after in (
        (queries, query[-1], all_width),
        (keys, key[-1], all_width),
        (keys, value[-1], all_value_width),
        (queries, all_value_width, out),
    ):
        tally.add(positions * before * after, positions * (before + after))
    tally.add(
        model_flops.attention(1, heads, queries, keys, width, value_width),
        (queries + keys) * (all_width + all_value_width),
    )


def _add_per_timestep(tally, cell, sequences, states):
    """Add the work of a cell for all timesteps of a sequence."""
    inner = Tally()
    timestep = keras.KerasTensor((1, *sequences.shape[2:]), sequences.dtype)
    _follow(inner, cell, (timestep, states), {})
    tally.include(inner, sequences.shape[1])


def _follow_called(tally, layer, item):
    """Add the work of a layer within a layer, by its own rule if it has one."""
    for call in _calls(layer(_without_history(item))):
        _add(tally, call)


def _state(size):
    return keras.KerasTensor((1, size))


def _shape(array: Any) -> Shape:
    """The shape of a symbolic tensor, a weight or an array; no size may be None."""
    shape = tuple(array.shape)
    if None in shape:
        raise ValueError(f"a size is open in {shape}")
    return shape


def _of_keras(operation):
    """The class name of an operation of Keras; "" if it is not Keras's."""
    kind = type(operation)
    return kind.__name__ if kind.__module__.split(".")[0] == "keras" else ""


def _label(operation):
    return f"{operation.name} ({type(operation).__name__})"


def _channels(layer, shape):
    return shape[1] if layer.data_format == "channels_first" else shape[-1]


def _dense(layer, shape, out):
    return math.prod(shape) * layer.units


def _convolution(layer, shape, out):
    inputs = _channels(layer, shape) // layer.groups
    return math.prod(out) * math.prod(layer.kernel_size) * inputs


def _transposed(layer, shape, out):
    return math.prod(shape) * math.prod(layer.kernel_size) * layer.filters


def _depthwise(layer, shape, out):
    return math.prod(out) * math.prod(layer.kernel_size)


def _separable(layer, shape, out):
    between = _channels(layer, shape) * layer.depth_multiplier
    places = math.prod(out) // layer.filters
    return places * between * (math.prod(layer.kernel_size) + layer.filters)


# Multiply-adds of a layer by (layer, shape of its input, shape of its output).
LAYERS: dict[Any, Callable[[Any, Shape, Shape], int]] = {
    layers.Dense: _dense,
    **dict.fromkeys((layers.Conv1D, layers.Conv2D, layers.Conv3D), _convolution),
    **dict.fromkeys(
        (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose), _transposed
    ),
    **dict.fromkeys((layers.DepthwiseConv1D, layers.DepthwiseConv2D), _depthwise),
    **dict.fromkeys((layers.SeparableConv1D, layers.SeparableConv2D), _separable),
}
# Each of these calls RNN.call, which calls the cell once for each timestep.
_CALLS_OF_RNN = {kind.call for kind in (layers.RNN, layers.LSTM, layers.GRU, layers.SimpleRNN)}


def _matrix_product(_operation, shapes, out):
    first, _ = shapes
    return math.prod(out) * first[-1]


def _contraction(_operation, shapes, out):
    """For two factors and a result without a common batch index: the root of their sizes' product.

    An index that is summed over is in both factors; any other is in one factor and in the result.
    """
    first, second = shapes
    return math.isqrt(math.prod(first) * math.prod(second) * math.prod(out))


def _einsum(operation, shapes, out):
    return model_flops.einsum(operation.subscripts, *shapes)[0] if len(shapes) > 1 else 0


def _kernel(_operation, shapes, out):
    """Of a convolution by a kernel of shape (..., inputs of a group, outputs)."""
    _, kernel = shapes
    return math.prod(out) * math.prod(kernel) // kernel[-1]


def _depthwise_kernel(_operation, shapes, out):
    _, kernel = shapes
    return math.prod(out) * math.prod(kernel[:-2])


def _separable_kernels(_operation, shapes, out):
    _, by_depth, pointwise = shapes
    return math.prod(out) // pointwise[-1] * (math.prod(by_depth) + math.prod(pointwise))


def _transposed_kernel(_operation, shapes, out):
    """By a kernel of shape (..., outputs, inputs)."""
    first, kernel = shapes
    return math.prod(first) * math.prod(kernel) // kernel[-1]


def _attention(_operation, shapes, out):
    """Of queries, keys and values of shape (batch, positions, heads, width)."""
    (batch, queries, heads, width), (_, keys, *_), (*_, value_width) = shapes[:3]
    return model_flops.attention(batch, heads, queries, keys, width, value_width)


# Multiply-adds of an operation by (operation, shapes of its inputs, shape of its output).
OPERATIONS: dict[str, Callable[[Any, list[Shape], Shape], int]] = {
    "Matmul": _matrix_product,
    "Dot": _contraction,
    "Inner": _contraction,
    "Tensordot": _contraction,
    "Einsum": _einsum,
    "Conv": _kernel,
    "DepthwiseConv": _depthwise_kernel,
    "SeparableConv": _separable_kernels,
    "ConvTranspose": _transposed_kernel,
    "DotProductAttention": _attention,
}
