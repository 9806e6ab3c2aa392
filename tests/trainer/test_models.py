"""Models are those that were published."""

import numpy as np
import pytest

from dlbench import plugins

# Trainable parameters: LeCun et al. 1998 as in later practice (61 706), Keras's
# CIFAR-10 example (1 250 858), He et al. 2016 table 6 (0.85 million). Those of the
# others are counted by hand from the layers, as their docstrings say.
PARAMETERS = {
    "lenet5": 61706,
    "cnn12": 1250858,
    "resnet56": 853018,
    "lstm_ptb": 10_000 * 200 + 2 * 4 * 200 * (200 + 200 + 1) + 201 * 10_000,
    "unet": 1940817,
}
IMAGE_MODELS = ("lenet5", "cnn12", "resnet56")


def test_every_model_is_checked():
    assert set(plugins.names("models")) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_published(name):
    model = plugins.load("models", name).build()
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == PARAMETERS[name]


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_output_has_one_logit_a_class(name):
    module = plugins.load("models", name)
    model = module.build((*module.INPUT_SHAPE[:2], 1), 7)
    assert model(np.zeros((2, *module.INPUT_SHAPE[:2], 1), np.float32)).shape == (2, 7)


def test_a_mask_has_the_size_of_its_image():
    model = plugins.load("models", "unet").build((64, 96, 1))
    assert model(np.zeros((2, 64, 96, 1), np.float32)).shape == (2, 64, 96, 1)


def test_every_word_of_a_window_has_its_logits():
    model = plugins.load("models", "lstm_ptb").build((5,), 30)
    assert model(np.zeros((2, 5), np.int32)).shape == (2, 5, 30)
