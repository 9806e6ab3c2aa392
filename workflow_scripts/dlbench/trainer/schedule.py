"""Which steps a run has: how many, where its epochs end, and which of them are warm-up."""

from dlbench.trainer.strategy import Spec


class Schedule:
    """The steps of one run, which count from 1, as its epochs do.

    Args:
        spec: the run's fields as attributes.
        records: of the training split; None if the items are synthetic.

    Attributes:
        global_batch: items that one step takes from the dataset.
        total: the number of the last step.
        evaluates: whether the run is scored on held-out items, after each epoch and at its end.
    """

    def __init__(self, spec: Spec, records: int | None):
        self._spec, self._records = spec, records
        self.global_batch = global_batch(spec)
        self.total: int = spec.warmup_steps + (spec.steps or 0)
        if spec.epochs:
            self.total = self.epoch_end(spec.epochs)
        self.evaluates = bool(
            spec.mode == "train"
            and records
            and (spec.evaluate == "yes" or (spec.evaluate == "auto" and spec.epochs is not None))
        )

    def epoch_end(self, epoch: int) -> int:
        """The last step of an epoch; synthetic items are one epoch, however many the steps."""
        if not self._records:
            return self.total
        return steps_in(epoch, self._records, self.global_batch)

    def epoch_after(self, step: int) -> int:
        """The epoch that the step after this one belongs to."""
        epoch = 1
        while self._records and self.epoch_end(epoch) <= step:
            epoch += 1
        return epoch

    def is_warm_up(self, step: int, epoch: int, first: int) -> bool:
        """Whether a step is not measured: at the beginning, and as many after `first`.

        Args:
            first: the step after which a resumed run went on; 0 if it was not resumed.
        """
        spec = self._spec
        warm_up = (spec.epochs > 1 and epoch == 1) if spec.epochs else step <= spec.warmup_steps
        return warm_up or 0 < first >= step - spec.warmup_steps


def global_batch(spec: Spec) -> int:
    """Items that one step takes from the dataset, over all devices."""
    return spec.batch_per_device * spec.devices_per_node * spec.nodes


def steps_in(epochs: int, records: int, global_batch: int) -> int:
    """The step in which the last record of an epoch is read; batches go across epochs.

    >>> [steps_in(epochs, records=10, global_batch=4) for epochs in (1, 2, 3)]
    [3, 5, 8]
    """
    return -(-epochs * records // global_batch)
