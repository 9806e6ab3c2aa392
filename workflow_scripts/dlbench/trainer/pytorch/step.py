"""The step under PyTorch: forward pass, backward pass and update.

- `compile: true` compiles forward and backward pass by torch.compile, but neither the update nor
  the exchange of gradients. An evaluation is not compiled. The run's compile_mode says how:
    model        the function that computes the loss; PyTorch may split it into several programs
    blocks       each block of the model by itself, in place, before a strategy wraps it, as
                 torchtitan does. PyTorch keeps programs by code, so blocks that are alike share one
    cuda_graphs  as model, with the options of PyTorch's mode reduce-overhead
  With the last two, code that cannot become one program is an error, and so is what CUDA graphs
  cannot do. Otherwise PyTorch would compute a part without them, and only say so in its own log.
- With CUDA graphs, each step replays a graph of the forward and one of the backward pass. What they
  return lies in memory that the next step overwrites: gradients are dropped before it, and the loss
  is copied.
- With bfloat16 and float16, torch.autocast chooses the operations that compute in them, unless the
  strategy casts weights and inputs itself; weights stay float32. With float16,
  torch.amp.GradScaler scales the loss, with the same initial scale as Keras.
- With gradient accumulation, gradients are exchanged after the last part of the batch.
- Losses and sums of each task (Losses in dlbench/trainer/tasks.py) are at the end. Inputs are a
  tensor or a NumPy array; the axes after the first may be in any order. Targets are whole numbers
  of int64, or masks of uint8 with channels first, as the logits.
"""

import collections
import contextlib
import functools
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dlbench import Error
from dlbench.trainer.engine import CheckpointState, Variable, check_precision
from dlbench.trainer.pytorch import building
from dlbench.trainer.pytorch.strategies import Base
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import Losses

ONE_PROGRAM = {"dynamic": False, "fullgraph": True}


def check_compiling(spec: Spec, strategy: Base) -> None:
    """Check that there are a C++ compiler, and a device with CUDA graphs, if a run needs them."""
    if not spec.compile:
        return
    _check_compiler()
    if spec.compile_mode == "cuda_graphs" and not strategy.on_gpus:
        raise Error("compile_mode cuda_graphs needs a GPU; this device is a CPU")


def check_model(spec: Spec, model: nn.Module) -> None:
    """Check that a model has what its run compiles: blocks, or layers that graphs can have."""
    if not spec.compile:
        return
    if spec.compile_mode == "blocks" and not building.find_blocks(model):
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
    """Compile each block of a model in place, if its run asks for it. Returns how, for the log."""
    if not (spec.compile and spec.compile_mode == "blocks"):
        return {}
    found = building.find_blocks(model)
    for block in found:
        block.compile(**ONE_PROGRAM)
    return {"compiled_blocks": len(found), **ONE_PROGRAM}


def compile_loss(
    spec: Spec, loss_of: Callable[..., torch.Tensor]
) -> tuple[Callable[..., torch.Tensor], dict[str, Any]]:
    """Compile the function that computes the loss, if the run asks for that.

    Returns the function, and how it was compiled if not by default, for the log.
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
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise Error(
            f"compile: true needs a compiler of C++, and {compiler} is not on the path: install "
            "it, or set CXX"
        )


AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def set_precision(spec: Spec, strategy: Base) -> None:
    """Set the precision, which the device must have, and whether to be deterministic."""
    device = strategy.device
    capability = name = None
    if strategy.on_gpus:
        name = torch.cuda.get_device_name(device)
        if torch.version.cuda:  # AMD's devices have other compute capabilities
            capability = torch.cuda.get_device_capability(device)
    check_precision(spec.precision, name, capability)
    if not hasattr(torch.backends, "fp32_precision"):
        raise Error(f"needs PyTorch 2.9 or newer, found {torch.__version__}")
    # By default convolutions and recurrent layers use TF32 where a GPU has it; then float32 would
    # not be float32. Whether the setting of all reaches those two depends on PyTorch's version.
    fp32_precision = "tf32" if spec.precision == "tf32" else "ieee"
    cudnn = torch.backends.cudnn
    for backend in (torch.backends, torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
        backend.fp32_precision = fp32_precision
    torch.use_deterministic_algorithms(spec.deterministic)
    # As under TensorFlow: the first step tries convolution algorithms and chooses the fastest.
    cudnn.benchmark = not spec.deterministic


class Step:
    """The step of a run in this process; calling it returns the mean loss of a batch, a tensor.

    `scaled` makes the model's inputs from those of a batch. The `model` is on the device of this
    process; under strategy fsdp it then holds a shard of each weight.
    """

    def __init__(
        self,
        spec: Spec,
        strategy: Base,
        losses: Losses,
        model: nn.Module,
        scaled: Callable[[torch.Tensor], torch.Tensor],
    ):
        by_blocks = compile_blocks(spec, model)
        self._parallel_model = parallel_model = strategy.parallelize(model)
        self._strategy, self._device = strategy, strategy.device
        self._parts, self._clip_norm = spec.accumulate_steps, spec.clip_norm
        self.model, self._losses = model, losses
        self._dtype = AUTOCAST.get(spec.precision) if strategy.uses_autocast else None
        learns = spec.mode != "forward"
        model.train(learns)
        self._optimizer = building.make_optimizer(
            spec, model.parameters(), sharded=not strategy.replicates_weights
        )
        self._scaler = _scaler(spec, strategy.device) if learns else None
        if spec.mode == "train":
            building.initialize_state(self._optimizer)
        # Gradients are exchanged only if they update weights.
        logits_of = self._logits_of(parallel_model if spec.mode == "train" else model)

        def loss_of(inputs, targets):
            logits = logits_of(scaled(inputs))
            if not isinstance(logits, tuple):
                return losses.loss(targets, logits)
            logits, added = logits  # minimised with the loss, which is logged alone
            return losses.loss(targets, logits) + (added - added.detach())

        loss_of, as_whole = compile_loss(spec, loss_of)
        strategy.compiled = by_blocks | as_whole
        self._replays_graphs = spec.compile and spec.compile_mode == "cuda_graphs"
        steps = {
            "forward": self._forward,
            "forward_backward": self._forward_backward,
            "train": self._train,
        }
        self._step = functools.partial(steps[spec.mode], loss_of)

    def __call__(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not self._replays_graphs:
            return self._step(inputs, targets)
        torch.compiler.cudagraph_mark_step_begin()
        return self._step(inputs, targets).clone()

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the steps to come."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def sums(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
        """The task's sums over a batch of held-out items; the model is in evaluation mode."""
        learns = self.model.training
        self.model.train(False)
        with torch.no_grad(), self._not_compiled():
            logits = self._logits_of(self.model)(self._losses.scaled(inputs))
            sums = self._losses.sums(targets, logits)
        self.model.train(learns)
        return sums

    def checkpoint_state(self) -> CheckpointState:
        """The variables that a checkpoint saves: see dlbench/trainer/engine.py."""
        weights = dict(self.model.named_parameters())
        learned: dict[str, torch.Tensor] = dict(weights)
        for name, weight in weights.items():
            for key, value in self._optimizer.state[weight].items():
                if isinstance(value, torch.Tensor):
                    learned[f"optimizer/{name}/{key}"] = value
        shard = self._strategy.local_shard
        replicated: dict[str, list[Variable]] = {n: [_Array(shard(t))] for n, t in learned.items()}
        per_rank: dict[str, list[Variable]] = {
            name: [_Array(buffer)]
            for name, buffer in building.named_weights(self.model)
            if name not in weights
        }
        if not self._strategy.replicates_weights:
            replicated, per_rank = {}, {**replicated, **per_rank}
        if self._scaler:
            replicated["optimizer/scale"] = [_Scale(self._scaler)]
        per_rank["random/cpu"] = [_RandomState(torch)]
        if self._device.type == "cuda":
            per_rank["random/gpu"] = [_RandomState(torch.cuda)]
        return CheckpointState(replicated, per_rank)

    def _not_compiled(self) -> AbstractContextManager[Any]:
        """The context of an evaluation, for whose batches blocks would be compiled anew."""
        if not self._strategy.compiled:
            return contextlib.nullcontext()  # the other imports the compiler, which takes a second
        return torch.compiler.set_stance("force_eager")

    def _logits_of(self, model):
        """A function that calls a model in the precision of the run."""
        dtype, device_type = self._dtype, self._device.type
        if dtype is None:
            return model

        def logits_of(inputs):
            with torch.autocast(device_type, dtype):
                return model(inputs)

        return logits_of

    def _forward(self, loss_of, inputs, targets):
        with torch.no_grad():
            return loss_of(inputs, targets)

    def _forward_backward(self, loss_of, inputs, targets):
        self._optimizer.zero_grad()
        if self._parts == 1:
            return self._backward(loss_of, inputs, targets)
        losses = []
        parts = zip(inputs.chunk(self._parts), targets.chunk(self._parts), strict=True)
        for number, part in enumerate(parts, 1):
            with self._strategy.gradient_sync(self._parallel_model, number == self._parts):
                losses.append(self._backward(loss_of, *part))
        return torch.stack(losses).mean()

    def _backward(self, loss_of, inputs, targets):
        """The loss of a part of the batch; its gradients are added to those of the other parts."""
        loss = loss_of(inputs, targets)
        divided = loss / self._parts if self._parts > 1 else loss
        (self._scaler.scale(divided) if self._scaler else divided).backward()
        return loss.detach()

    def _train(self, loss_of, inputs, targets):
        loss = self._forward_backward(loss_of, inputs, targets)
        if self._clip_norm:
            self._clip()
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        return loss

    def _clip(self):
        """Scale the gradients down to the norm clip_norm, if theirs is larger."""
        if self._scaler:
            self._scaler.unscale_(self._optimizer)
        weights = self.model.parameters()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        # Weights that are sharded over different devices have norms that cannot be in one list.
        by_mesh = collections.defaultdict(list)
        for gradient in gradients:
            by_mesh[getattr(gradient, "device_mesh", None)].append(gradient)
        norms = [nn.utils.get_total_norm(group) for group in by_mesh.values()]
        norm = nn.utils.get_total_norm(
            [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
        )
        # torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm, which Keras does not.
        factor = self._clip_norm / norm.clamp(min=self._clip_norm)
        for gradient in gradients:
            self._strategy.local_shard(gradient).mul_(factor)


def _scaler(spec, device):
    """The scaler of the loss for float16; None for other precisions."""
    if spec.precision != "float16":
        return None
    scaler = torch.amp.GradScaler(device.type, init_scale=building.INITIAL_SCALE)
    scaler.scale(torch.zeros((), device=device))  # creates its state, which a checkpoint saves
    return scaler


class _Array:
    """A tensor that a checkpoint saves."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor.detach()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def numpy(self) -> np.ndarray:
        return self.tensor.cpu().numpy()

    def assign(self, value: np.ndarray) -> None:
        self.tensor.copy_(torch.from_numpy(value))


class _Scale:
    """The loss scale, and for how many steps it has caused no overflow."""

    shape = (2,)

    def __init__(self, scaler: torch.amp.GradScaler):
        self._scaler = scaler

    def numpy(self) -> np.ndarray:
        state = self._scaler.state_dict()
        return np.asarray([state["scale"], state["_growth_tracker"]])

    def assign(self, value: np.ndarray) -> None:
        scale, good_steps = value.tolist()
        state = {"scale": scale, "_growth_tracker": int(good_steps)}
        self._scaler.load_state_dict(self._scaler.state_dict() | state)


class _RandomState:
    """The state of the random generator of torch (the CPU) or torch.cuda (this process's GPU)."""

    def __init__(self, of: Any):
        self._of = of

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._of.get_rng_state().shape)

    def numpy(self) -> np.ndarray:
        return self._of.get_rng_state().numpy()

    def assign(self, value: np.ndarray) -> None:
        self._of.set_rng_state(torch.from_numpy(value))


class _Language:
    ignored = -100  # a target that is none; PyTorch's default

    def scaled(self, inputs: Any) -> torch.Tensor:
        return torch.as_tensor(inputs)

    def loss(self, targets: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return self._cross_entropy(targets, logits, "mean")

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        return {"items": targets.numel(), "loss": self._cross_entropy(targets, logits, "sum")}

    def _cross_entropy(self, targets, logits, reduction):
        return functional.cross_entropy(
            logits.float().flatten(0, -2),
            targets.flatten(),
            ignore_index=self.ignored,
            reduction=reduction,
        )


class _MaskedLanguage(_Language):
    """Softmax cross-entropy of each masked token; targets elsewhere are -1."""

    ignored = -1

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        return super().sums(targets, logits) | {"items": (targets >= 0).sum()}


class _Classification(_Language):
    """Softmax cross-entropy of each image, how often its class is among the first one or five."""

    def scaled(self, inputs: Any) -> torch.Tensor:
        """uint8 pixels to the range -1 .. 1."""
        return torch.as_tensor(inputs).float().mul(2 / 255).sub_(1)

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        logits = logits.float()
        of_label = logits.gather(1, targets[:, None])
        higher = (logits > of_label).sum(1)
        finite = of_label[:, 0].isfinite()
        return super().sums(targets, logits) | {
            "top1": ((higher < 1) & finite).sum(),
            "top5": ((higher < 5) & finite).sum(),
        }


class _Segmentation:
    """Sigmoid cross-entropy of each pixel; intersection and union of masks and predictions."""

    def scaled(self, inputs: Any) -> torch.Tensor:
        """Each image with mean 0 and deviation 1: surveys differ in the unit of their light.

        An image of one value keeps a deviation of 1 / sqrt(its values), as with TensorFlow.
        """
        images = torch.as_tensor(inputs).float()
        values = images[0].numel()
        axes = tuple(range(1, images.ndim))
        deviation, mean = torch.std_mean(images, axes, correction=0, keepdim=True)
        return (images - mean) / deviation.clamp(min=values**-0.5)

    def loss(self, targets: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return self._cross_entropy(targets, logits, "mean")

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        target, predicted = targets > 0, logits > 0
        return {
            "items": targets.numel(),
            "loss": self._cross_entropy(targets, logits, "sum"),
            "both": (target & predicted).sum(),
            "either": (target | predicted).sum(),
        }

    def _cross_entropy(self, masks, logits, reduction):
        return functional.binary_cross_entropy_with_logits(
            logits.float(), masks.float(), reduction=reduction
        )


LOSSES: dict[str, Losses] = {
    "classification": _Classification(),
    "segmentation": _Segmentation(),
    "language": _Language(),
    "masked_language": _MaskedLanguage(),
}
