"""The settings by which float32 is float32 under PyTorch; TF32 itself needs a GPU (tests/gpu)."""

import subprocess

from support.machines.paths import REPOSITORY

# As PyTorch's versions have them by default, or as somebody has set them before.
PROGRAM = """
import sys
from types import SimpleNamespace

sys.path.insert(0, "workflow_scripts")
import torch
from dlbench.trainer.pytorch import step

cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
backends = torch.backends, matmul, cudnn, cudnn.conv, cudnn.rnn
for backend in backends:
    backend.fp32_precision = "tf32"
how = {"precision": "float32", "deterministic": False}
of_cpu = SimpleNamespace(on_gpus=False, device=torch.device("cpu"))
step.set_precision(SimpleNamespace(**how), of_cpu)
print(*(backend.fp32_precision for backend in (torch.backends, matmul, cudnn.conv, cudnn.rnn)))
"""


def test_float32_is_float32_in_all_operations_that_would_use_tf32(python):
    program = [python("pytorch"), "-c", PROGRAM]
    found = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["ieee"] * 4
