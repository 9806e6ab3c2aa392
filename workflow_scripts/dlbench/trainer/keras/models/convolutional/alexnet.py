"""AlexNet in one tower, as in tf_cnn_benchmarks.

- A. Krizhevsky (2014). One weird trick for parallelizing convolutional neural
  networks. arXiv:1404.5997: the network of A. Krizhevsky, I. Sutskever and
  G. Hinton (2012) without its two towers and its response normalisation.
- Maps of the five convolutions as in tf_cnn_benchmarks: 64, 192, 384, 384, 256.
  convnet-benchmarks and torchvision have 256 in the fourth too (61 100 840
  parameters), which is about a sixth less work.
- Images of 224x224 get three rows and columns of zeros, where tf_cnn_benchmarks
  takes images of 227x227.
- 61 838 248 parameters.
"""

import keras
from keras import layers

from dlbench.trainer.keras.layers import classifier, convolution

TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000


def build(input_shape: tuple[int, ...] = INPUT_SHAPE, classes: int = CLASSES) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = layers.ZeroPadding2D(((1, 2), (1, 2)))(inputs)
    x = convolution.conv_relu(x, 64, 11, stride=4, padding="valid")
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = convolution.conv_relu(x, 192, 5)
    x = layers.MaxPooling2D(3, strides=2)(x)
    for maps in (384, 384, 256):
        x = convolution.conv_relu(x, maps, 3)
    x = layers.MaxPooling2D(3, strides=2)(x)
    return keras.Model(inputs, classifier.dense(x, (4096, 4096), classes), name="alexnet")
