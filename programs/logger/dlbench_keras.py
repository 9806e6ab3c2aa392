"""A callback for Keras' `fit` that logs for dlbench: copy it with dlbench_log.py.

    model.fit(..., callbacks=[DlbenchLog(log=dlbench_log.Log())])

Keras' logs have the mean loss since the epoch began; the loss of each step follows from it.
"""

import dlbench_log
import keras

# Keras' names of metrics, and those of dlbench.
SCORES = {"accuracy": "top1", "sparse_categorical_accuracy": "top1", "top5": "top5"}


class DlbenchLog(keras.callbacks.Callback):
    """Logs each step with its loss, and each evaluation.

    Args:
        log: a dlbench_log.Log; None: that of DLBENCH_LOG.
    """

    def __init__(self, log=None):
        super().__init__()
        self._log = log or dlbench_log.Log()
        self._trains = False

    def on_train_begin(self, logs=None):
        self._trains = True

    def on_epoch_begin(self, epoch, logs=None):
        self._log.epoch(epoch + 1)
        self._mean, self._steps = 0.0, 0

    def on_train_batch_begin(self, batch, logs=None):
        self._log.begin_step()

    def on_train_batch_end(self, batch, logs=None):
        if logs and "loss" in logs:
            mean, self._steps = float(logs["loss"]), self._steps + 1
            self._log.loss(mean * self._steps - self._mean * (self._steps - 1))
            self._mean = mean
        self._log.end_step()

    def on_test_end(self, logs=None):
        if self._trains:
            found = {SCORES.get(name, name): value for name, value in (logs or {}).items()}
            found.pop("compile_metrics", None)
            self._log.evaluation(**found)

    def on_train_end(self, logs=None):
        self._trains = False
        self._log.close()
