"""How much a Keras model computes for one item, by rules for its layers and Keras's operations.

- The model is called on a symbol of one item, so that each layer is told shapes and computes
  nothing. A layer without a rule of its own is what its `call` does, in the same way: layers,
  operations of `keras.ops`.
- A layer that calls the backend itself cannot be followed: it has no rule.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import layers

from dlbench.trainer import model_flops
from dlbench.trainer.model_flops import ModelFlops, Tally

# Layers that take values one by one, whatever they do with them.
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
# Operations of Keras's that are more than value by value, for which there is no rule.
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
    """What a model that was built does for an item of a shape, in the forward pass."""
    inputs = getattr(model, "inputs", None)  # one of a class of the user's own has none
    item = keras.KerasTensor((1, *item_shape), inputs[0].dtype if inputs else "float32")
    tally = Tally()
    _follow(tally, model, (item,), {})
    return tally.total()


def _follow(tally, operation, arguments, named):
    """Add what an operation's `call` does with symbols of these shapes."""
    arguments, named = keras.tree.map_structure(_without_history, (tuple(arguments), dict(named)))
    try:
        calls = list(_calls(operation.call(*arguments, **named)))
    except Exception as error:  # whatever a layer's own code makes of a symbol
        tally.add_unknown(_label(operation), f"{type(error).__name__}: {error}")
        return
    for call in calls:
        try:
            _add(tally, call)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            tally.add_unknown(_label(call.operation), f"{type(error).__name__}: {error}")


def _without_history(value):
    """A symbol of the same shape with no history: where it is followed to, `_calls` ends."""
    if not isinstance(value, keras.KerasTensor):
        return value
    return keras.KerasTensor(value.shape, value.dtype)


def _calls(outputs: Any) -> Iterator[Any]:
    """All calls that led to symbols, each once: Keras's nodes."""
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
    """Add what one call of a layer or an operation does."""
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
        tally.include(inner, again=True)
        return
    if isinstance(layer, layers.Embedding):
        reverse = call.arguments.kwargs.get("reverse") or True in call.arguments.args[1:]
        if reverse:  # the logits, by weights that it shares
            shape, out = _shape(items), _shape(call.outputs[0])
            tally.add(math.prod(out) * shape[-1], math.prod(shape) + math.prod(out))
    elif isinstance(layer, layers.RNN) and kind.call in _CALLS_OF_RNN:
        states = keras.tree.map_structure(_state, layer.cell.state_size)
        states = states if isinstance(states, (list, tuple)) else [states]
        _add_per_timestep(tally, layer.cell, items, list(states))
    elif kind.call is layers.Bidirectional.call:
        for one in (layer.forward_layer, layer.backward_layer):
            _follow_called(tally, one, items)
    elif kind.call is layers.EinsumDense.call:  # whose symbols may leave sizes open
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
        # A class that is derived from one of Keras's may call more than that one does.
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
    given = layer.get_config()
    heads, width = given["num_heads"], given["key_dim"]
    of_value = given["value_dim"] or width
    asked, kept = math.prod(query[:-1]), math.prod(value[:-1])
    wide, of_values = heads * width, heads * of_value
    shape = given["output_shape"] or query[-1]
    out = math.prod(shape) if isinstance(shape, (list, tuple)) else shape
    for places, before, after in (
        (asked, query[-1], wide),
        (kept, key[-1], wide),
        (kept, value[-1], of_values),
        (asked, of_values, out),
    ):
        tally.add(places * before * after, places * (before + after))
    tally.add(
        model_flops.attention(1, heads, asked, kept, width, of_value),
        (asked + kept) * (wide + of_values),
    )


def _add_per_timestep(tally, cell, sequences, states):
    """Add what a cell does with each part of a sequence."""
    inner = Tally()
    part = keras.KerasTensor((1, *sequences.shape[2:]), sequences.dtype)
    _follow(inner, cell, (part, states), {})
    tally.include(inner, sequences.shape[1])


def _follow_called(tally, layer, item):
    """Add what a layer within a layer does, by its own rule if it has one."""
    for call in _calls(layer(_without_history(item))):
        _add(tally, call)


def _state(size):
    return keras.KerasTensor((1, size))


def _shape(array: Any) -> Shape:
    """The shape of a symbol, a weight or an array.

    Raises:
        ValueError: a size is open.
    """
    shape = tuple(array.shape)
    if None in shape:
        raise ValueError(f"a size is open in {shape}")
    return shape


def _of_keras(operation):
    """The name of an operation of Keras's own; "" for one of others."""
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
# Each of these hands over to that of RNN, which asks the cell once for each part.
_CALLS_OF_RNN = {kind.call for kind in (layers.RNN, layers.LSTM, layers.GRU, layers.SimpleRNN)}


def _matrix_product(_operation, shapes, out):
    first, _ = shapes
    return math.prod(out) * first[-1]


def _contraction(_operation, shapes, out):
    """Of two arrays without an index that all three have: the root of the product of their sizes.

    What is summed over is in both factors, every other index in one of them and in the result.
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
    """Of queries, keys and values of shape (batch, positions, heads, numbers)."""
    (batch, queries, heads, width), (_, keys, *_), (*_, of_value) = shapes[:3]
    return model_flops.attention(batch, heads, queries, keys, width, of_value)


# Multiply-adds of an operation by (operation, shapes of what it takes, shape of what it gives).
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
