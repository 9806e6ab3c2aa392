"""Models are the published ones, and normalise as Keras does."""

import ast
import math
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from dlbench.common import plugins
from dlbench.study.runs import Run
from dlbench.trainer.keras import building, convolution, flops
from dlbench.trainer.keras.models.llama import BALANCE, Balanced, Experts, frequencies
from dlbench.trainer.tasks import TASKS
from dlbench.trainer.tensorflow.step import LOSSES
from support.trainers.published_models import PARAMETERS
from support.trainers.unmade_weights import unmade_weights


@pytest.mark.ci
def test_each_model_has_the_parameters_of_its_publication_the_form_of_its_task_and_known_work():
    assert set(plugins.names("keras/models")) == set(PARAMETERS)
    for name, parameters in PARAMETERS.items():
        native = plugins.load("keras/models", name)
        source = types.SimpleNamespace(item_shape=native.INPUT_SHAPE, classes=native.CLASSES)
        spec = Run(model=name, dataset="synthetic", batch_per_device=1, steps=1)
        with unmade_weights():
            task = TASKS[native.TASK]
            model = building.build_model(spec, native, task, source)
        assert sum(math.prod(v.shape) for v in model.trainable_variables) == parameters, name
        docstring = ast.get_docstring(plugins.parse_file(plugins.path("keras/models", name)))
        assert re.search(r"\(\d{4}\)|PRACE", docstring), f"no publication of {name}"
        assert f"{parameters:,}".replace(",", " ") in " ".join(docstring.split()), name
        counted = flops.count(model, native.INPUT_SHAPE)
        assert counted.unknown == [], name
        assert counted.forward_per_item > counted.values_per_item > math.prod(native.INPUT_SHAPE)


@pytest.mark.ci
def test_a_token_is_computed_by_the_experts_it_is_sent_to_and_balance_is_a_loss_of_training():
    """Mixtral, section 2.1; Switch transformers, equations 4 to 6, over two blocks together."""
    random = np.random.default_rng(1)
    layer = Experts(types.SimpleNamespace(hidden=12, experts=4, chosen=2))
    x = random.normal(size=(3, 5, 8)).astype("f4")
    layer.build(x.shape)
    router, up, down = (random.normal(size=w.shape).astype("f4") for w in layer.weights)
    layer.set_weights([router, up, down])
    outputs, routing = layer(x)
    often, probability = np.zeros((3, 4)), np.zeros((3, 4))
    for at in np.ndindex(3, 5):
        odds = np.exp(x[at] @ router)
        chosen = np.argsort(odds)[-2:]
        expected = 0
        for expert in chosen:
            gate, y = np.split(x[at] @ up[expert], 2)
            share = odds[expert] / odds[chosen].sum()
            expected += share * ((gate / (1 + np.exp(-gate)) * y) @ down[expert])
        np.testing.assert_allclose(outputs[at], expected, rtol=1e-4, atol=1e-4)
        often[at[0], chosen] += 1 / 5
        probability[at[0]] += odds / odds.sum() / 5
    np.testing.assert_allclose(routing, np.stack([often, probability], 1), rtol=1e-5)
    balanced, logits = Balanced(autocast=False), tf.zeros((3, 5, 7))
    blocks = [routing, 2 - routing]
    for training, losses in ((False, []), (True, [BALANCE * 4 * 4])):
        assert balanced([logits, *blocks], training=training) is not None
        np.testing.assert_allclose(balanced.losses, losses, rtol=1e-5)


TURNS = {  # by pair: of base 1e4, and of Llama 3.1
    1: (0.8659643530845642, 0.8146172165870667),
    29: (0.015399265103042126, 0.0021665706299245358),
    32: (0.009999999776482582, 0.0005248460220173001),
    63: (0.00011547819303814322, 3.068925877869333e-07),
}


@pytest.mark.ci
def test_pairs_of_llama_turn_as_in_transformers():
    """LlamaRotaryEmbedding.inv_freq of transformers 5.24.0, for heads of 128 elements."""
    for column, settings in enumerate(({"base": 1e4}, {"base": 5e5, "slower": 8.0})):
        found, expected = frequencies(128, **settings), [both[column] for both in TURNS.values()]
        np.testing.assert_allclose(found[list(TURNS)], expected, rtol=1e-6)


# Batch normalisation.

SHAPE = (4, 5, 6, 8)


def normalised(kind, inputs, dtype="float32", function=lambda f: f, **settings):
    """What a layer makes of inputs: outputs of training and evaluation, gradients, moments."""
    layer = kind(momentum=0.9, dtype=f"mixed_{dtype}" if dtype != "float32" else dtype, **settings)
    layer.build(inputs.shape)
    random = np.random.default_rng(2)
    for weight in layer.weights:
        weight.assign(random.uniform(0.5, 1.5, weight.shape))
    upstream = tf.constant(random.normal(size=inputs.shape), layer.compute_dtype)
    x = tf.constant(inputs, layer.compute_dtype)

    @function
    def step(training):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=training)
        return outputs, tape.gradient(
            outputs, [x, *(v.value for v in layer.trainable_variables)], upstream
        )

    results = [step(True), step(False)]
    layer.trainable = False
    results.append([layer(x, training=True)])
    weights = [weight.numpy() for weight in layer.weights]
    return [tf.cast(t, "float32").numpy() for t in tf.nest.flatten(results)] + weights


def inputs(shape=SHAPE):
    return np.random.default_rng(1).normal(3, 2, shape).astype(np.float32)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("dtype", "settings", "function", "shape"),
    [
        ("float32", {}, None, SHAPE),
        ("float32", {"center": False, "epsilon": 1e-5}, None, SHAPE),
        ("bfloat16", {}, None, SHAPE),
        ("float16", {"scale": False}, None, SHAPE),
        ("float32", {}, tf.function, SHAPE),
        ("float32", {}, tf.function(jit_compile=True), SHAPE),
        ("float32", {}, None, (1, 1, 1, 8)),
        ("float32", {}, None, (16, 8)),
    ],
    ids=["float32", "centre", "bfloat16", "float16", "graph", "xla", "one value", "vectors"],
)
def test_fused_normalisation_equals_that_of_keras(dtype, settings, function, shape):
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}[dtype]
    ours, theirs = (
        normalised(kind, inputs(shape), dtype, function or (lambda f: f), **settings)
        for kind in (convolution.BatchNormalization, keras.layers.BatchNormalization)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * 3)


def distance(one, other):
    """Relative, over all numbers together."""
    return np.linalg.norm(one - other) / np.linalg.norm(other)


def test_the_first_gradient_of_a_normalised_model_is_within_one_percent_of_that_in_float64():
    module = plugins.load("keras/models", "resnet20")
    task, losses = TASKS["classification"], LOSSES["classification"]
    items, targets = task.synthetic(np.random.default_rng(1), 32, module.INPUT_SHAPE, 10)
    gradients, weights = {}, None
    for dtype in ("float64", "float32"):
        keras.config.set_dtype_policy(dtype)
        try:
            model = module.build(module.INPUT_SHAPE, 10)
        finally:
            keras.config.set_dtype_policy("float32")
        weights = weights or [weight.astype("f4") for weight in model.get_weights()]
        model.set_weights(weights)
        with tf.GradientTape() as tape:
            logits = model(tf.cast(losses.scaled(items), dtype), training=True)
            loss = losses.loss(targets, logits)
        found = tape.gradient(loss, [v.value for v in model.trainable_variables])
        gradients[dtype] = np.concatenate([np.ravel(g).astype("f8") for g in found])
    assert 0 < distance(gradients["float32"], gradients["float64"]) < 0.01


@pytest.mark.ci
def test_models_normalise_with_one_operation():
    model = plugins.load("keras/models", "resnet20").build((32, 32, 3), 10)
    step = tf.function(lambda x: model(x, training=True))
    graph = step.get_concrete_function(tf.TensorSpec((2, 32, 32, 3), "float32")).graph
    operations = [operation.type for operation in graph.get_operations()]
    assert operations.count("FusedBatchNormV3") == 19
    assert "SquaredDifference" not in operations
