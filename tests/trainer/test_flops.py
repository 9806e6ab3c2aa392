"""FLOPs counted from the layers of Keras's models, beside sums by hand and TensorFlow's counter."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from dlbench.common import plugins
from dlbench.trainer.keras import flops
from support.trainers.training_runs import events
from support.trainers.unmade_weights import built

pytestmark = pytest.mark.ci


def multiply_adds(name):
    counted = flops.count(*built(name))
    assert not counted.unknown
    return counted.forward_per_item / 2


def of(*made, shape=(6, 8), dtype="float32"):
    """What is counted of layers one after the other."""
    inputs = x = keras.Input(shape, dtype=dtype)
    for layer in made:
        x = layer(x)
    return flops.count(keras.Model(inputs, x), shape)


@pytest.mark.parametrize(
    ("name", "published"),
    # As torchvision prints them ("GFLOPS", which are multiply-adds), and the two papers' 3.8e9 and
    # 7.6e9 for ResNets that stride in their 1x1 convolutions.
    [
        ("resnet50_v1_5", 4.09e9),
        ("resnet50", 3.86e9),
        ("vgg16", 15.47e9),
    ],
)
def test_networks_for_imagenet_do_the_published_work(name, published):
    assert multiply_adds(name) == pytest.approx(published, rel=0.002)


def test_the_blocks_of_a_transformer_that_recomputes_count_once_more():
    plain, recomputing = (
        flops.count(*built("gpt_tiny", **how)) for how in ({}, {"recompute": True})
    )
    logits = 2 * 128 * 128 * 256
    assert plain.recomputed_per_item == 0
    assert recomputing.recomputed_per_item == plain.forward_per_item - logits
    assert recomputing.forward_per_item == plain.forward_per_item


@pytest.mark.parametrize(
    ("name", "active"), [("llama31_8b", 8_030_261_248), ("mixtral_8x7b", 12_879_925_248)]
)
def test_a_token_costs_two_flops_for_each_weight_that_it_meets_and_attention(name, active):
    """As PaLM counts (2204.02311, appendix B), whose 6 and 12 include the backward pass."""
    constants = plugins.constants("keras/models", name)
    (tokens,), width = constants["INPUT_SHAPE"], constants["SIZE"]["width"]
    depth = constants["SIZE"]["depth"]
    looked_up, scales = constants["CLASSES"] * width, (2 * depth + 1) * width
    products = active - looked_up - scales + 2 * depth * width * tokens
    assert multiply_adds(name) == tokens * products


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ([layers.Dense(5)], 6 * 8 * 5),
        ([layers.EinsumDense("abc,cde->abde", (None, 2, 3))], 6 * 8 * 2 * 3),
        ([layers.Conv1D(4, 3, groups=2)], 4 * 4 * 3 * 4),
        ([layers.Conv1DTranspose(4, 3, strides=2)], 6 * 8 * 3 * 4),
        ([layers.DepthwiseConv1D(3, depth_multiplier=2)], 4 * 16 * 3),
        ([layers.SeparableConv1D(5, 3, depth_multiplier=2)], 4 * 16 * (3 + 5)),
        ([layers.GRU(7)], 6 * 3 * 7 * (8 + 7)),
        ([layers.SimpleRNN(7)], 6 * 7 * (8 + 7)),
        ([layers.RNN([layers.LSTMCell(3), layers.LSTMCell(2)])], 6 * 4 * (3 * 11 + 2 * 5)),
        ([layers.Bidirectional(layers.LSTM(7))], 2 * 6 * 4 * 7 * (8 + 7)),
        ([layers.TimeDistributed(layers.Dense(5))], 6 * 8 * 5),
        ([layers.BatchNormalization(), layers.Dropout(0.5), layers.ReLU()], 0),
        ([layers.Reshape((3, 16)), layers.Permute((2, 1)), layers.GlobalMaxPooling1D()], 0),
        ([keras.Sequential([layers.Dense(5), layers.Dense(3)])], 6 * (8 * 5 + 5 * 3)),
        ([layers.Lambda(lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))))], 6 * 8 * 6),
        ([layers.Lambda(lambda x: ops.einsum("bij,bkj->bik", x, x))], 6 * 8 * 6),
        ([layers.Lambda(lambda x: ops.tensordot(x[0], x[0], axes=((1,), (1,))))], 6 * 8 * 6),
    ],
)
def test_layers_have_rules(made, expected):
    assert of(*made)[::2] == (2 * expected, [])


def test_attention_counts_its_products_whatever_mask_it_has():
    x = keras.Input((6, 8))
    attended = layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    projections, scores = 4 * 6 * 8 * 2 * 3, 2 * 2 * 6 * 6 * 3
    assert flops.count(keras.Model(x, attended), (6, 8))[::2] == (2 * (projections + scores), [])


def test_weights_that_logits_share_with_the_embedding_count_once_a_look_up_is_nothing():
    words, table = keras.Input((6,), dtype="int32"), layers.ReversibleEmbedding(100, 8)
    logits = table(table(words), reverse=True)
    assert flops.count(keras.Model(words, logits), (6,)).forward_per_item == 2 * 6 * 8 * 100


class Gated(layers.Layer):
    """What users write: layers within a layer, and a product of its own."""

    def __init__(self):
        super().__init__()
        self.gate, self.out = layers.Dense(8, activation="sigmoid"), layers.Dense(3)

    def build(self, shape):
        self.mix = self.add_weight(shape=(8, 8))

    def call(self, inputs):
        return self.out(ops.matmul(inputs * self.gate(inputs), self.mix))


class OfItsOwn(keras.Model):
    def __init__(self):
        super().__init__()
        self.gated = Gated()

    def call(self, inputs, training=None):
        return self.gated(self.gated.gate(inputs))


def test_layers_and_models_of_the_users_own_are_followed_without_a_line_of_theirs():
    inner = 6 * (8 * 8 + 8 * 8 + 8 * 3)
    assert of(Gated()).forward_per_item == 2 * inner
    model = OfItsOwn()
    model(np.zeros((1, 6, 8), "f4"))
    assert flops.count(model, (6, 8)).forward_per_item == 2 * (inner + 6 * 8 * 8)


class Opaque(layers.Layer):
    def call(self, inputs):
        return tf.linalg.matmul(inputs, inputs, transpose_b=True)

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-2])


@pytest.mark.parametrize(
    ("layer", "named"),
    [(Opaque(name="mine"), r"mine \(Opaque\)"), (layers.Lambda(ops.fft), r"\(FFT\): there is no")],
)
def test_a_layer_without_a_rule_makes_the_sum_unknown_and_is_named(layer, named):
    complex_pair = isinstance(layer, layers.Lambda)
    first = layers.Lambda(lambda x: (x, x)) if complex_pair else layers.Dense(8)
    counted = of(first, layer)
    assert (counted.forward_per_item, counted.values_per_item) == (None, None)
    assert len(counted.unknown) == 1
    assert re.search(named, counted.unknown[0])


def test_counting_changes_no_weight_and_no_counter_of_random_numbers():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.Dropout(0.5)])
    before = [v.numpy() for v in model.variables]
    flops.count(model, (6,))
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("name", ["resnet20", "unet"])
def test_tensorflows_own_counter_says_the_same_within_five_percent(name):
    """It counts biases, activations and normalisation too, and of loops one turn: no LSTM here."""
    native = plugins.load("keras/models", name)
    model = native.build(native.INPUT_SHAPE, native.CLASSES)
    call = tf.function(lambda x: model(x, training=False))
    graph = call.get_concrete_function(tf.TensorSpec((1, *native.INPUT_SHAPE))).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    theirs = tf.compat.v1.profiler.profile(graph, options=options).total_float_ops
    ours = flops.count(model, native.INPUT_SHAPE).forward_per_item
    assert ours == pytest.approx(theirs, rel=0.05)


def test_a_log_says_what_the_model_does_for_one_item(one_process):
    (start,) = events(one_process, "run_start")
    convolutions = 28**2 * 6 * 25 + 10**2 * 16 * 25 * 6 + 120 * 25 * 16
    assert start["forward_flops_per_item"] == 2 * (convolutions + 120 * 84 + 84 * 10)
    assert start["flops_unknown"] == []
