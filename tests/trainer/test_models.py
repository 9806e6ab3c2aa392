"""Models are those that were published."""

import numpy as np
import pytest

from dlbench import plugins

# Trainable parameters: LeCun et al. 1998 as in later practice (61 706), Keras's
# CIFAR-10 example (1 250 858), He et al. 2016 table 6 (0.85 million).
PARAMETERS = {"lenet5": 61706, "cnn12": 1250858, "resnet56": 853018}


def test_every_model_is_checked():
    assert set(plugins.names("models")) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_published(name):
    model = plugins.load("models", name).build()
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_output_has_one_logit_a_class(name):
    module = plugins.load("models", name)
    model = module.build((*module.INPUT_SHAPE[:2], 1), 7)
    assert model(np.zeros((2, *module.INPUT_SHAPE[:2], 1), np.float32)).shape == (2, 7)
