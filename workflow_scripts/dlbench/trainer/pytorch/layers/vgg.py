"""The VGG family, as in dlbench/trainer/keras/layers/vgg.py."""

from torch import nn

from dlbench.trainer.pytorch.layers import classifier, convolution

MAPS = (64, 128, 256, 512, 512)


def network(convolutions: tuple[int, ...], input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network with so many convolutions in each of its five stages."""
    layers: list[nn.Module] = []
    maps_in = input_shape[-1]
    for maps, count in zip(MAPS, convolutions, strict=True):
        for _ in range(count):
            layers += convolution.conv_relu(maps_in, maps, 3)
            maps_in = maps
        layers.append(nn.MaxPool2d(2))
    return classifier.with_classifier(layers, input_shape, (4096, 4096), classes)
