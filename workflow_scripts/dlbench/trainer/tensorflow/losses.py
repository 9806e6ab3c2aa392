"""Losses and sums of each task under TensorFlow: see Losses in dlbench/trainer/tasks.py."""

import tensorflow as tf

from dlbench.trainer.tasks import Losses


class _Language:
    """Softmax cross-entropy of each token."""

    def scaled(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs

    def loss(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(_cross_entropy(targets, logits))

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        losses = _cross_entropy(targets, logits)
        return {"items": tf.size(targets), "loss": tf.reduce_sum(losses)}


class _MaskedLanguage(_Language):
    """Softmax cross-entropy of each masked token; targets elsewhere are -1."""

    def loss(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        sums = self.sums(targets, logits)
        return sums["loss"] / tf.cast(sums["items"], tf.float32)

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        losses = _cross_entropy(tf.maximum(targets, 0), logits)
        return {
            "items": tf.math.count_nonzero(targets >= 0),
            "loss": tf.reduce_sum(tf.where(targets >= 0, losses, 0.0)),
        }


class _Classification(_Language):
    """Softmax cross-entropy of each image, how often its class is among the first one or five."""

    def scaled(self, inputs: tf.Tensor) -> tf.Tensor:
        """uint8 pixels to the range -1 .. 1."""
        return tf.cast(inputs, tf.float32) * (2 / 255) - 1.0

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.cast(logits, tf.float32)
        return super().sums(targets, logits) | {
            "top1": tf.math.count_nonzero(tf.math.in_top_k(targets, logits, 1)),
            "top5": tf.math.count_nonzero(tf.math.in_top_k(targets, logits, 5)),
        }


class _Segmentation:
    """Sigmoid cross-entropy of each pixel; intersection and union of masks and predictions."""

    def scaled(self, inputs: tf.Tensor) -> tf.Tensor:
        """Each image with mean 0 and deviation 1: surveys differ in the unit of their light."""
        return tf.image.per_image_standardization(tf.cast(inputs, tf.float32))

    def loss(self, targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(self._losses(targets, logits))

    def sums(self, targets: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        target, predicted = targets > 0, logits > 0
        return {
            "items": tf.size(targets),
            "loss": tf.reduce_sum(self._losses(targets, logits)),
            "both": tf.math.count_nonzero(target & predicted),
            "either": tf.math.count_nonzero(target | predicted),
        }

    def _losses(self, masks, logits):
        return tf.nn.sigmoid_cross_entropy_with_logits(
            tf.cast(masks, tf.float32), tf.cast(logits, tf.float32)
        )


def _cross_entropy(targets, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, tf.cast(logits, tf.float32))


LOSSES: dict[str, Losses] = {
    "classification": _Classification(),
    "segmentation": _Segmentation(),
    "language": _Language(),
    "masked_language": _MaskedLanguage(),
}
