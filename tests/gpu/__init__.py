"""Checks on GPUs: run on a machine with a GPU, and as far as possible on CPUs.

    python -m tests.gpu [--file results/gpu_checks.json] [CHECK ...]

needs Python 3.11 or newer with PyTorch, or JAX and Keras, or TensorFlow, and no network. Checks of
a framework that is not installed are `not possible`. Importing this package puts the library and
tests/, for tests/support, on the path.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[1:1] = [str(REPOSITORY / "tests"), str(REPOSITORY / "workflow_scripts")]
