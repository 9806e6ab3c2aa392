"""AlexNet in one tower, as in trainer/keras/models/convolutional/alexnet.py."""

from torch import nn

from dlbench.trainer.pytorch.layers import classifier, convolution

TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000


def build(input_shape: tuple[int, ...] = INPUT_SHAPE, classes: int = CLASSES) -> nn.Module:
    conv_relu = convolution.conv_relu
    layers = [
        nn.ZeroPad2d((1, 2, 1, 2)),
        *conv_relu(input_shape[-1], 64, 11, stride=4, padding="valid"),
        nn.MaxPool2d(3, 2),
        *conv_relu(64, 192, 5),
        nn.MaxPool2d(3, 2),
        *conv_relu(192, 384, 3),
        *conv_relu(384, 384, 3),
        *conv_relu(384, 256, 3),
        nn.MaxPool2d(3, 2),
    ]
    return classifier.with_classifier(layers, input_shape, (4096, 4096), classes)
