"""OverFeat, the fast model, as in convnet-benchmarks and tf_cnn_benchmarks.

- P. Sermanet, D. Eigen, X. Zhang, M. Mathieu, R. Fergus and Y. LeCun (2014).
  OverFeat: integrated recognition, localization and detection using convolutional
  networks. ICLR, table 1.
- The classifier only, on its training size of 231x231; dropout as in the paper and
  tf_cnn_benchmarks, which convnet-benchmarks leaves out.
- 145 920 872 parameters, as in table 4 there (145 million).
"""

import keras
from keras import layers

from dlbench.trainer.keras.layers import classifier, convolution

TASK = "classification"
INPUT_SHAPE = (231, 231, 3)
CLASSES = 1000


def build(input_shape: tuple[int, ...] = INPUT_SHAPE, classes: int = CLASSES) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = convolution.conv_relu(inputs, 96, 11, stride=4, padding="valid")
    x = layers.MaxPooling2D(2)(x)
    x = convolution.conv_relu(x, 256, 5, padding="valid")
    x = layers.MaxPooling2D(2)(x)
    for maps in (512, 1024, 1024):
        x = convolution.conv_relu(x, maps, 3)
    x = layers.MaxPooling2D(2)(x)
    return keras.Model(inputs, classifier.dense(x, (3072, 4096), classes), name="overfeat")
