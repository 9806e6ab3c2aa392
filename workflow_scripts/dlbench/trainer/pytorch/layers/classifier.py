"""The classifier of networks before 2015: wide dense layers, half of their units dropped."""

from torch import nn

from dlbench.trainer.pytorch.layers import initial, pooling, shapes


def with_classifier(
    features: list[nn.Module],
    input_shape: tuple[int, ...],
    units: tuple[int, ...],
    classes: int,
) -> nn.Module:
    """Layers, then rectified dense layers of the given widths with dropout, and the logits.

    Raises:
        ValueError: an input is too small for the layers.
    """
    layers = [*features, pooling.Flatten()]
    (inputs,) = shapes.after(nn.Sequential(*layers), input_shape)
    for width in units:
        layers += [initial.dense(inputs, width, initial.he_normal), nn.ReLU(inplace=True)]
        layers.append(nn.Dropout(0.5))
        inputs = width
    return nn.Sequential(*layers, initial.dense(inputs, classes))
