"""OverFeat, the fast model, as in trainer/keras/models/convolutional/overfeat.py."""

from torch import nn

from dlbench.trainer.pytorch.layers import classifier, convolution

TASK = "classification"
INPUT_SHAPE = (231, 231, 3)
CLASSES = 1000


def build(input_shape: tuple[int, ...] = INPUT_SHAPE, classes: int = CLASSES) -> nn.Module:
    conv_relu = convolution.conv_relu
    layers = [
        *conv_relu(input_shape[-1], 96, 11, stride=4, padding="valid"),
        nn.MaxPool2d(2),
        *conv_relu(96, 256, 5, padding="valid"),
        nn.MaxPool2d(2),
        *conv_relu(256, 512, 3),
        *conv_relu(512, 1024, 3),
        *conv_relu(1024, 1024, 3),
        nn.MaxPool2d(2),
    ]
    return classifier.with_classifier(layers, input_shape, (3072, 4096), classes)
