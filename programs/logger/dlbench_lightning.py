"""A callback for Lightning's Trainer that logs for dlbench: copy it with dlbench_log.py.

    trainer = lightning.Trainer(..., callbacks=[DlbenchLog()])

`window` steps are timed together; on GPUs the device is waited for once in so many steps.
"""

import re

import dlbench_log
import torch
from lightning.pytorch.callbacks import Callback

# Names under which modules log scores, and those of dlbench. Others that begin with val become
# metrics, as val_f1 of "val/f1".
SCORES = {"val_loss": "loss", "val_acc": "top1", "val_accuracy": "top1"}


class DlbenchLog(Callback):
    """Logs each batch as a step, with its loss; evaluations; and checkpoints.

    Args:
        window: steps that are timed together; None: 10 on GPUs, else 1.
        scores: further names of what the module logs, and those of dlbench.
        stated: as for dlbench_log.Log.
    """

    def __init__(self, window=None, scores=None, **stated):
        self._window, self._stated = window, stated
        self._scores = {**SCORES, **(scores or {})}
        self._saved = False

    def on_train_start(self, trainer, pl_module):
        on_gpu = trainer.strategy.root_device.type == "cuda"
        steps = trainer.estimated_stepping_batches
        if steps != float("inf"):
            self._stated.setdefault("total_steps", int(steps) * trainer.accumulate_grad_batches)
        wait = torch.cuda.synchronize if on_gpu else None
        self._log = dlbench_log.Log(synchronize=wait, rank=trainer.global_rank, **self._stated)
        self._log.window(self._window or (10 if on_gpu else 1))

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self._saved:
            self._saved = False
            self._log.checkpointed()
        self._log.epoch(trainer.current_epoch + 1)
        self._log.begin_step()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if loss is not None:
            self._log.loss(loss.detach())
        self._log.end_step()

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            logged = trainer.callback_metrics.items()
            self._log.evaluation(
                **{
                    self._scores.get(name, re.sub(r"\W", "_", name)): value
                    for name, value in logged
                    if name in self._scores or name.startswith("val")
                }
            )

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        self._saved = True  # the time until the next batch is that of writing it

    def on_train_end(self, trainer, pl_module):
        if self._saved:
            self._log.checkpointed()
        self._log.close()

    def on_exception(self, trainer, pl_module, exception):
        if hasattr(self, "_log"):
            self._log.close("failed", f"{type(exception).__name__}: {exception}")
