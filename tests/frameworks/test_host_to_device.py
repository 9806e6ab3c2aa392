"""PyTorch's prefetching to a GPU, with simulated streams: tests/gpu has real ones."""

import subprocess

import pytest

from support.machines.paths import REPOSITORY

# What a stream is to do is done as late as what waits for it allows; copies are done at once.
PROGRAM = """
import sys
from contextlib import nullcontext
from types import SimpleNamespace

sys.path.insert(0, "workflow_scripts")
import numpy as np
import torch
from dlbench.trainer.pytorch import loading

class Stream:
    def __init__(self):
        self.queued, self.done = [], 0

    def do(self, count):
        while self.done < count:
            self.queued[self.done]()
            self.done += 1

    def wait_event(self, event):
        event.synchronize()

    def wait_stream(self, other):
        other.do(len(other.queued))

class Event:
    after = None

    def record(self, stream):
        self.after = stream, len(stream.queued)

    def synchronize(self):
        if self.after:
            stream, count = self.after
            stream.do(count)

steps = Stream()
of_device = SimpleNamespace(
    Stream=Stream, Event=Event, current_stream=lambda: steps, stream=lambda one: nullcontext()
)
torch.get_device_module = lambda device: of_device
seen, ahead, places = [], [], set()

def step(inputs, targets):
    steps.queued.append(lambda: seen.append((inputs.float().mean().item(), targets.tolist())))

batches = ((np.full((4, 3, 2, 1), n, np.uint8), np.full(4, n, np.int32)) for n in range(6))
for inputs, targets in loading.ahead(batches, torch.device("cpu")):
    assert inputs.shape == (4, 1, 3, 2) and targets.dtype == torch.int64
    ahead.append(len(steps.queued) - steps.done)
    places.add(inputs.data_ptr())
    step(inputs, targets)
steps.do(len(steps.queued))
print(seen == [(n, [n] * 4) for n in range(6)], ahead, len(places))
"""


@pytest.fixture(scope="module")
def torch(python):
    return python("pytorch")


def test_a_batch_is_copied_beside_one_step_into_memory_that_no_step_needs_any_more(torch):
    program = [torch, "-c", PROGRAM]
    found = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    # Each step had its own batch; as one was handed over, the step before was still to be done, but
    # for the second batch, whose memory is new.
    assert found.stdout.strip() == "True [0, 0, 1, 1, 1, 1] 2"
