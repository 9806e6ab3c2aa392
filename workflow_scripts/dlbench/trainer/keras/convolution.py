"""Layers of convolutional networks: convolution and batch normalisation.

- Kernels are initialized as in K. He et al. (2015), Delving deep into rectifiers, section 2.2.
- S. Ioffe and C. Szegedy (2015). Batch normalization: accelerating deep network training by
  reducing internal covariate shift. ICML, algorithms 1 and 2. Keras 3 computes it with some ten
  operations, each of which goes over the whole batch; here it is one fused operation on
  TensorFlow, as in tf_cnn_benchmarks and legacy Keras.
"""

from typing import Any

import keras
from keras import layers, ops

FUSED_DTYPES = ("float16", "bfloat16", "float32")


class BatchNormalization(layers.BatchNormalization):
    """keras.layers.BatchNormalization with the same weights, moments and results.

    - Fused for images with channels last on the TensorFlow backend; all else, other
      backends included, goes to Keras's own code.
    - Statistics are float32 where inputs are float16 or bfloat16.
    - The fused operation applies Bessel's correction to the variance it averages,
      Keras does not; here it is undone.
    - On CPUs TensorFlow's fused kernel adds up the values of a map in float32, one running sum
      for each thread; Keras's operations add blocks of them. The fused one is less exact: of
      131 072 values the variance to 8e-6 instead of 3e-6, on two threads. The first gradient of
      ResNet-20 is 0.2 % from that in float64 where Keras's is 0.1 % (batch 128). The kernel is
      also that of tf_cnn_benchmarks and of legacy Keras. tests/trainer/test_models.py has both.
    - Under tf.distribute each device keeps the moving statistics of its own share of
      the batch, as with Keras's layer, and evaluation reads those of the first.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if mask is not None or not self._can_fuse(inputs):
            return super().call(inputs, training=training, mask=mask)
        import tensorflow as tf

        learning = bool(training and self.trainable)
        mean, variance = (
            ops.cast(moment, "float32") for moment in (self.moving_mean, self.moving_variance)
        )
        values = tf.cast(tf.size(inputs, tf.int64) // inputs.shape[-1], tf.float32)
        bessel = values / tf.maximum(values - 1.0, 1.0)
        outputs, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=ops.cast(self.gamma, "float32") if self.scale else tf.ones_like(mean),
            offset=ops.cast(self.beta, "float32") if self.center else tf.zeros_like(mean),
            mean=mean,
            # It returns momentum * variance + (1 - momentum) * bessel * (that of the batch).
            variance=variance * bessel if learning else variance,
            epsilon=self.epsilon,
            exponential_avg_factor=1.0 - self.momentum if learning else 1.0,
            is_training=learning,
        )
        if learning:
            self.moving_mean.assign(new_mean)
            self.moving_variance.assign(new_variance / bessel)
        return ops.cast(outputs, self.compute_dtype)

    def _can_fuse(self, inputs):
        return (
            keras.backend.backend() == "tensorflow"
            and len(inputs.shape) == 4
            and self.axis in (-1, 3)
            and keras.backend.standardize_dtype(inputs.dtype) in FUSED_DTYPES
            and not self.synchronized
            and not getattr(self, "renorm", False)  # newer than some Keras 3 in images
        )


def conv_relu(
    x: keras.KerasTensor,
    maps: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: str = "same",
) -> keras.KerasTensor:
    """A convolution with biases, and ReLU."""
    return layers.Conv2D(
        maps,
        kernel,
        strides=stride,
        padding=padding,
        activation="relu",
        kernel_initializer="he_normal",
    )(x)


def conv_bn_relu(
    x: keras.KerasTensor,
    maps: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: str = "same",
    activation: str | None = "relu",
    **moments: Any,
) -> keras.KerasTensor:
    """A convolution without biases, batch normalisation, and ReLU unless `activation` is None.

    Args:
        padding: "same" (TensorFlow pads unevenly where it strides), "valid", or
            "centred": as many zeros on each side, as in Caffe and PyTorch.
        moments: arguments of the normalisation.
    """
    if padding == "centred":
        if stride > 1 and isinstance(kernel, int) and kernel > 1:
            x = layers.ZeroPadding2D(kernel // 2)(x)
            padding = "valid"
        else:
            padding = "same"
    x = layers.Conv2D(
        maps,
        kernel,
        strides=stride,
        padding=padding,
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)
    x = BatchNormalization(**moments)(x)
    return layers.Activation(activation)(x) if activation else x
