"""Models are the published ones."""

import ast
import collections
import math
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from dlbench.common import own_code, plugins
from dlbench.trainer.keras.layers import normalisation
from support.trainers.published_models import PARAMETERS
from support.trainers.unmade_weights import unmade_weights

APPLICATIONS = {
    "vgg16": keras.applications.VGG16,
    "vgg19": keras.applications.VGG19,
    "inception_v3": keras.applications.InceptionV3,
    "resnet50": keras.applications.ResNet50,
    "resnet101": keras.applications.ResNet101,
    "resnet152": keras.applications.ResNet152,
}
SMALL = ("lenet5", "cnn12", "resnet20", "resnet56", "unet", "lstm_ptb", "gpt_tiny", "vit_tiny")
TRAINED = ("resnet20", "unet", "lstm_ptb", "alexnet")


def without_weights(build, *args, **kwargs):
    with unmade_weights():
        return build(*args, **kwargs)


def built(name, *args):
    return without_weights(plugins.load("keras/models", name).build, *args)


def size(variables):
    return sum(math.prod(v.shape) for v in variables)


def logits_shape(module, item_shape, classes):
    return {
        "classification": (classes,),
        "segmentation": (*item_shape[:2], 1),
        "language": (*item_shape, classes),
        "masked_language": (*item_shape, classes),
    }[module.TASK]


def test_every_model_is_checked():
    assert set(plugins.names("keras/models")) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_published(name):
    assert size(built(name).trainable_variables) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_model_states_its_task_its_source_and_its_parameters(name):
    constants = plugins.constants("keras/models", name)
    assert constants["TASK"] in plugins.names("tasks")
    assert {"INPUT_SHAPE", "CLASSES"} <= set(constants)
    docstring = ast.get_docstring(plugins.parse_file(plugins.path("keras/models", name)))
    assert re.search(r"\(\d{4}\)|PRACE", docstring), "no publication"
    stated = re.findall(r"\d{1,3}(?: \d{3})+", " ".join(docstring.split()))
    assert f"{PARAMETERS[name]:,}".replace(",", " ") in stated


@pytest.mark.parametrize("name", APPLICATIONS)
def test_parameters_are_those_of_keras_applications(name):
    theirs = without_weights(APPLICATIONS[name], weights=None)
    # Their ResNets have biases in convolutions, which the normalisation after them cancels.
    biases = [
        variable
        for layer in theirs.layers
        if name.startswith("resnet") and isinstance(layer, keras.layers.Conv2D)
        for variable in layer.trainable_variables
        if variable.name == "bias"
    ]
    ours = built(name)
    assert size(ours.trainable_variables) == size(theirs.trainable_variables) - size(biases)
    moments = [v for v in ours.non_trainable_variables if "moving" in v.name]
    assert size(moments) == size(theirs.non_trainable_variables)


def test_every_module_of_googlenet_has_the_maps_of_table_1():
    joined = [x for x in built("googlenet").layers if isinstance(x, keras.layers.Concatenate)]
    maps = [layer.output.shape[-1] for layer in joined]
    assert maps == [256, 480, 512, 512, 512, 528, 832, 832, 1024]


def test_unet_with_the_maps_of_the_paper_has_the_parameters_of_its_figure_1(monkeypatch):
    unet = plugins.load("keras/models", "unet")
    monkeypatch.setattr(unet, "MAPS", (64, 128, 256, 512, 1024))
    down = [(1, 64), (64, 128), (128, 256), (256, 512), (512, 1024)]
    two_convolutions = [(i, o) for i, o in down] + [(o, i) for i, o in down[1:]]
    wanted = sum(9 * i * o + o + 9 * o * o + o for i, o in two_convolutions)
    wanted += sum(4 * o * i + i for i, o in down[1:]) + 64 + 1
    assert size(without_weights(unet.build).trainable_variables) == wanted == 31_030_593


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("resnet50", {7: 1, 1: 3 + 3}), ("resnet50_v1_5", {7: 1, 1: 3, 3: 3})],
)
def test_resnet50_strides_in_a_1x1_convolution_and_v1_5_in_a_3x3(name, kernels):
    convolutions = [x for x in built(name).layers if isinstance(x, keras.layers.Conv2D)]
    strided = [x.kernel_size[0] for x in convolutions if x.strides == (2, 2)]
    assert collections.Counter(strided) == kernels  # each of the three projections has 1x1


@pytest.mark.parametrize("name", PARAMETERS)
def test_logits_have_the_shape_of_their_task(name):
    module = plugins.load("keras/models", name)
    assert built(name).output_shape == (
        None,
        *logits_shape(module, module.INPUT_SHAPE, module.CLASSES),
    )
    if module.TASK == "classification":
        shape = (*module.INPUT_SHAPE[:2], 1)
        assert built(name, shape, 7).output_shape == (None, 7)


@pytest.mark.parametrize("name", SMALL)
def test_logits_are_finite_float32(name):
    module = plugins.load("keras/models", name)
    shape, classes = {
        "classification": ((*module.INPUT_SHAPE[:2], 1), 7),
        "segmentation": ((64, 96, 1), 1),
        "language": ((5,), 30),
    }[module.TASK]
    inputs, _ = plugins.load("tasks", module.TASK).synthetic(
        np.random.default_rng(1), 2, shape, classes
    )
    logits = module.build(shape, classes)(inputs)
    assert logits.shape == (2, *logits_shape(module, shape, classes))
    assert logits.dtype == "float32"
    assert np.isfinite(logits).all()


@pytest.mark.parametrize("name", TRAINED)
def test_every_weight_has_a_part_in_a_finite_loss(name):
    module = plugins.load("keras/models", name)
    task = plugins.load("tasks", module.TASK)
    losses = plugins.load("tensorflow/losses", module.TASK)
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    inputs, targets = task.synthetic(random, 2, module.INPUT_SHAPE, module.CLASSES)
    model = module.build()
    with tf.GradientTape() as tape:
        loss = losses.loss(targets, model(losses.scaled(inputs), training=True))
    assert np.isfinite(loss)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        gradient = tf.convert_to_tensor(gradient)
        assert np.isfinite(gradient).all() and np.any(gradient), variable.path


def test_a_change_of_shared_layers_redoes_the_models_that_have_them_only():
    def files(name):
        executed = own_code.executed_files("train.py", plugins.path("keras/models", name))
        return {Path(path).name for path in executed}

    assert {"resnet_imagenet.py", "convolution.py", "normalisation.py"} <= files("resnet50")
    assert "resnet_cifar.py" not in files("resnet50")
    assert "normalisation.py" not in files("unet")


def test_no_model_or_layer_imports_tensorflow_until_it_is_called():
    for folder in ("models", "layers"):
        for path in (plugins.LIBRARY / "trainer/keras" / folder).rglob("*.py"):
            for node in plugins.parse_file(path).body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    assert "tensorflow" not in ast.unparse(node), path


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


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2), ("float16", 2e-3)]
)
@pytest.mark.parametrize("settings", [{}, {"scale": False}, {"center": False, "epsilon": 1e-5}])
def test_fused_normalisation_equals_that_of_keras(dtype, tolerance, settings):
    ours = normalised(normalisation.BatchNormalization, inputs(), dtype, **settings)
    theirs = normalised(keras.layers.BatchNormalization, inputs(), dtype, **settings)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * 3)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fused_normalisation_equals_that_of_keras_when_compiled(jit_compile):
    def function(step):
        return tf.function(step, jit_compile=jit_compile)

    ours = normalised(normalisation.BatchNormalization, inputs(), function=function)
    theirs = normalised(keras.layers.BatchNormalization, inputs(), function=function)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1, 8), (16, 8)])
def test_normalisation_of_one_value_a_map_and_of_vectors_equals_that_of_keras(shape):
    ours = normalised(normalisation.BatchNormalization, inputs(shape))
    theirs = normalised(keras.layers.BatchNormalization, inputs(shape))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=3e-5)


def test_fused_moments_are_as_exact_as_running_sums_in_float32():
    """Where the layer loses digits: in TensorFlow's kernel, whose sums these are, not around it."""
    values, maps = 128 * 32 * 32, 16
    items = inputs((128, 32, 32, maps))
    rows = items.reshape(values, maps)
    layer = normalisation.BatchNormalization(momentum=0.0)
    layer.build(items.shape)
    layer(items, training=True)
    found = layer.moving_variance.numpy()
    _, mean, kernels, *_ = tf.raw_ops.FusedBatchNormV3(
        x=items,
        scale=np.ones(maps, "f4"),
        offset=np.zeros(maps, "f4"),
        mean=np.zeros(maps, "f4"),
        variance=np.ones(maps, "f4"),
        epsilon=1e-3,
    )
    np.testing.assert_allclose(found, kernels * ((values - 1) / values), rtol=3e-7)
    squares = (rows - mean.numpy()) ** 2
    running = np.cumsum(squares, axis=0, dtype="f4")[-1] / np.float32(values)
    exact = rows.astype("f8").var(axis=0)
    # One thread has one running sum; more threads have shorter ones, which are more exact.
    assert distance(found, exact) <= 1.1 * distance(running, exact) < 1e-3


def distance(one, other):
    """Relative, over all numbers together."""
    return np.linalg.norm(one - other) / np.linalg.norm(other)


def test_the_first_gradient_of_a_normalised_model_is_within_one_percent_of_that_in_float64():
    module = plugins.load("keras/models", "resnet20")
    task, losses = (plugins.load(kind, "classification") for kind in ("tasks", "tensorflow/losses"))
    items, targets = task.synthetic(np.random.default_rng(1), 32, module.INPUT_SHAPE, 10)
    gradients, weights = {}, None
    for dtype in ("float64", "float32"):
        keras.config.set_dtype_policy(dtype)
        try:
            model = module.build()
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


def test_models_normalise_with_one_operation():
    model = plugins.load("keras/models", "resnet20").build()
    step = tf.function(lambda x: model(x, training=True))
    graph = step.get_concrete_function(tf.TensorSpec((2, 32, 32, 3), "float32")).graph
    operations = [operation.type for operation in graph.get_operations()]
    assert operations.count("FusedBatchNormV3") == 19
    assert "SquaredDifference" not in operations


ON_TWO_DEVICES = """
import keras, numpy as np, sys, tensorflow as tf
from dlbench.trainer.keras.layers import normalisation
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
inputs = np.random.default_rng(1).normal(3, 2, (2, 4, 5, 6, 8)).astype("float32")
results = []
for kind in (normalisation.BatchNormalization, keras.layers.BatchNormalization):
    with strategy.scope():
        layer = kind(momentum=0.9)
        layer.build(inputs.shape[1:])
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(inputs[context.replica_id_in_sync_group])
    )
    step = tf.function(lambda x: strategy.run(lambda x: layer(x, training=True), (x,)))
    outputs = strategy.experimental_local_results(step(parts))
    moments = [strategy.experimental_local_results(w.value) for w in layer.weights]
    evaluated = tf.function(lambda x: layer(x, training=False))(inputs[0])
    results.append([np.asarray(t) for t in tf.nest.flatten([outputs, moments, evaluated])])
for ours, theirs in zip(*results, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=3e-5)
"""


def test_normalisation_on_two_mirrored_devices_equals_that_of_keras():
    finished = subprocess.run(
        [sys.executable, "-c", ON_TWO_DEVICES],
        env={"PYTHONPATH": str(plugins.LIBRARY.parent), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
