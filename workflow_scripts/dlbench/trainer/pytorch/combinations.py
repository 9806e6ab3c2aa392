"""Which fields of a run PyTorch cannot combine, and why; the workflow asks, without PyTorch.

- A model file may define BLOCKS = True: its blocks (dlbench/trainer/pytorch/building.py) are alike.
  Models that define RECOMPUTES have such blocks.
- What CUDA graphs cannot do is said in PyTorch's documentation, "CUDAGraph Trees": kernels are
  replayed with the arguments and addresses of the recording. DDP and FSDP exchange gradients in
  hooks, outside of the compiled program, and FSDP gathers weights at other addresses in each step.
"""

from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

RECORDING_STEPS = 2  # in which CUDA graphs are not replayed yet: the first warms up for recording


def unsupported(run: Spec) -> str | None:
    """Why PyTorch cannot combine the fields of a run; None if it can."""
    if run.compile_mode == "model":
        return None
    if not run.compile:
        return (
            f"compile_mode {run.compile_mode} says how compile: true compiles, and this run does "
            "not compile: say compile: true, or leave compile_mode out"
        )
    return _without_blocks(run) if run.compile_mode == "blocks" else _not_captured(run)


def _without_blocks(run):
    model = plugins.constants("pytorch/models", run.model)
    if model.get("BLOCKS", model.get("RECOMPUTES")):
        return None
    return (
        f"compile_mode blocks is of models of blocks that are alike, as gpt2_small; {run.model} "
        "has none (a model file of your own says BLOCKS = True)"
    )


def _not_captured(run):
    """Why CUDA graphs cannot be recorded of a run's steps; None if they can."""
    if not engine.strategy_of(run).supports_cuda_graphs:
        return (
            f"compile_mode cuda_graphs does not work with strategy {run.strategy}, whose exchange "
            "between devices is outside of the compiled program: choose strategy single"
        )
    if run.accumulate_steps > 1:
        return (
            "compile_mode cuda_graphs does not work with accumulate_steps: the graph of a part "
            "would overwrite the gradients of the part before it"
        )
    if run.deterministic:
        return (
            "compile_mode cuda_graphs does not work with deterministic: PyTorch leaves some "
            "deterministic operations, as that of an embedding's gradient, out of CUDA graphs"
        )
    if run.steps is not None and run.warmup_steps < RECORDING_STEPS:
        return (
            f"compile_mode cuda_graphs needs warmup_steps {RECORDING_STEPS} or more: the graphs "
            f"are recorded in the first {RECORDING_STEPS} steps"
        )
    return None
