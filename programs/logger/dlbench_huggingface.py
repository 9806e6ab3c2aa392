"""A callback for Hugging Face's Trainer that logs for dlbench: copy it with dlbench_log.py.

    trainer = transformers.Trainer(..., callbacks=[DlbenchLog()])

A step is one of the optimizer's: with accumulation, several batches. The Trainer hands the loss to
callbacks each `logging_steps` steps only, as the mean since then.
"""

import re

import dlbench_log
import torch
from transformers import TrainerCallback

# Names of the Trainer's scores, and those of dlbench. Others become metrics, as eval_f1.
SCORES = {"eval_loss": "loss", "eval_accuracy": "top1"}


class DlbenchLog(TrainerCallback):
    """Logs each step, its loss and learning rate where these are known, evaluations, checkpoints.

    Args:
        window: steps that are timed together; None: 10 on GPUs, else 1.
        stated: as for dlbench_log.Log.
    """

    def __init__(self, window=None, **stated):
        self._window, self._stated, self._log = window, stated, None

    def on_train_begin(self, args, state, control, **_):
        on_gpu = torch.cuda.is_available() and args.device.type == "cuda"
        self._stated.setdefault("total_steps", state.max_steps)
        wait = torch.cuda.synchronize if on_gpu else None
        self._log = dlbench_log.Log(synchronize=wait, rank=args.process_index, **self._stated)
        self._log.window(self._window or (10 if on_gpu else 1))

    def on_step_begin(self, args, state, control, **_):
        self._log.epoch(int(state.epoch or 0) + 1)
        self._log.begin_step()

    def on_step_end(self, args, state, control, **_):
        self._log.end_step()

    def on_log(self, args, state, control, logs=None, **_):
        if self._log and logs and "loss" in logs:
            self._log.loss(float(logs["loss"]), learning_rate=logs.get("learning_rate"))

    def on_evaluate(self, args, state, control, metrics=None, **_):
        if self._log:
            found = {re.sub(r"\W", "_", name): value for name, value in (metrics or {}).items()}
            found.pop("epoch", None)
            self._log.evaluation(**{SCORES.get(name, name): found[name] for name in found})

    def on_save(self, args, state, control, **_):
        self._log.checkpointed()

    def on_train_end(self, args, state, control, **_):
        self._log.close()
