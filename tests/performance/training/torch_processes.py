"""Our two processes under PyTorch beside a bare program in the same layout, in turns.

    uv run dlbench environment envs/pytorch
    envs/pytorch/.venv/bin/python -m tests.performance.training.torch_processes

A round runs strategy ddp and a bare program, both by torchrun: the same model, optimizer and batch
under DistributedDataParallel in a loop of three lines, channels last, no log. Prints images per
second and ours / bare; the target is 0.95. Of the two processes the one that took longest counts,
on both sides.
"""

import time

import numpy as np

from dlbench.common import plugins
from dlbench.trainer import engine

from ..bench import launched

ALIKE = {"framework": "pytorch", "environment": "pytorch", "devices_per_node": 2}
LAYOUTS = {"ddp": {**ALIKE, "strategy": "ddp", "launcher": "torchrun"}}


def bare(run, result):
    """The shortest program that trains in two processes; rank r writes seconds to `result`r."""
    # It sets up devices and processes, which is no part of what is timed.
    strategy = engine.strategy_of(run)(run, "cpu")
    import torch
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    native = plugins.load("pytorch/models", run.model)
    module = DistributedDataParallel(
        native.build().to(memory_format=torch.channels_last),
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    )
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    random = np.random.default_rng(strategy.rank)
    shape = (run.batch_per_device, *native.INPUT_SHAPE)
    images = strategy.to_devices(random.uniform(-1, 1, shape).astype(np.float32))
    labels = strategy.to_devices(random.integers(0, native.CLASSES, len(images)))

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(module(images), labels).backward()
            optimizer.step()

    train(run.warmup_steps)
    before = time.perf_counter()
    train(run.steps)
    seconds = time.perf_counter() - before
    result.with_name(f"{result.name}{strategy.rank}").write_text(str(seconds))
    strategy.leave()


if __name__ == "__main__":
    launched.main(__doc__, __spec__.name, LAYOUTS, bare)
