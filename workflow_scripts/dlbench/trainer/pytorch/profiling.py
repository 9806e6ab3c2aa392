"""A trace by PyTorch's profiler: see dlbench/trainer/profiling.py."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def traced(work: Callable[[], None], folder: Path, on_gpu: bool) -> list[dict[str, Any]]:
    """The trace of `work`, as Engine.profile returns it.

    Args:
        folder: for the profiler's files.
        on_gpu: whether the device of this process is a GPU.
    """
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, *[kinds.CUDA] * on_gpu]) as profiler:
        work()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
