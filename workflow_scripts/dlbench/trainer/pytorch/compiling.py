"""How torch.compile compiles a run, by its compile_mode.

    model        the function that computes the loss; PyTorch may split it into several programs
    blocks       each block of the model by itself, in place, before a strategy wraps it, as
                 torchtitan does. PyTorch keeps programs by code, so blocks that are alike share one
    cuda_graphs  as model, with the options of PyTorch's mode reduce-overhead

With the last two, code that cannot become one program is an error, and so is what CUDA graphs
cannot do. Otherwise PyTorch would compute a part without them, and only say so in its own log.
"""

import functools
import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dlbench import Error
from dlbench.trainer.pytorch import blocks
from dlbench.trainer.pytorch.strategies import Base
from dlbench.trainer.strategy import Spec

ONE_PROGRAM = {"dynamic": False, "fullgraph": True}


def check(spec: Spec, strategy: Base) -> None:
    """Check that this process can compile as its run asks.

    Raises:
        Error: there is no C++ compiler, or no device that has CUDA graphs.
    """
    if not spec.compile:
        return
    _check_compiler()
    if spec.compile_mode == "cuda_graphs" and not strategy.on_gpus:
        raise Error("compile_mode cuda_graphs needs a GPU; this device is a CPU")


def check_model(spec: Spec, model: nn.Module) -> None:
    """Check that a model can be compiled as its run asks.

    Raises:
        Error: it has no blocks, or layers that would not become a part of the program.
    """
    if not spec.compile:
        return
    if spec.compile_mode == "blocks" and not blocks.find_blocks(model):
        raise Error(
            f"compile_mode blocks: {spec.model} has no blocks, which are the members of a "
            "torch.nn.ModuleList, all of one class and with several layers"
        )
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in model.modules())
    if spec.compile_mode == "cuda_graphs" and recurrent:
        raise Error(
            f"compile_mode cuda_graphs: torch.compile does not trace the recurrent layers of "
            f"{spec.model}, so they would run outside of the graphs"
        )


def compile_blocks(spec: Spec, model: nn.Module) -> dict[str, Any]:
    """Compile each block of a model in place, if its run asks for that.

    Returns:
        How, for the log.
    """
    if not (spec.compile and spec.compile_mode == "blocks"):
        return {}
    found = blocks.find_blocks(model)
    for block in found:
        block.compile(**ONE_PROGRAM)
    return {"compiled_blocks": len(found), **ONE_PROGRAM}


def compile_loss(
    spec: Spec, loss_of: Callable[..., torch.Tensor]
) -> tuple[Callable[..., torch.Tensor], dict[str, Any]]:
    """Compile the function that computes the loss, if the run asks for that.

    Returns:
        The function, and how it was compiled if not by default, for the log.
    """
    if not spec.compile or spec.compile_mode == "blocks":
        return loss_of, {}
    if spec.compile_mode == "model":
        return torch.compile(loss_of, dynamic=False), {}
    options = {
        **torch._inductor.list_mode_options("reduce-overhead"),
        "triton.cudagraph_or_error": True,
        "graph_partition": False,  # it would compute what graphs cannot do without them
    }
    return torch.compile(loss_of, **ONE_PROGRAM, options=options), {**ONE_PROGRAM, **options}


@functools.cache
def _check_compiler() -> None:
    """Check that torch.compile finds a C++ compiler.

    Raises:
        Error: there is none.
    """
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise Error(
            f"compile: true needs a compiler of C++, and {compiler} is not on the path: install "
            "it, or set CXX"
        )
