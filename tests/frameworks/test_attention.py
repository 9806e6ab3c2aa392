"""The kernel of attention that a run records is that of its steps; test_text.py has runs."""

import subprocess

import pytest

from support.machines.paths import REPOSITORY

# The autograd node of a call that is computed names the kernel that ran.
OF_PYTORCH = """
import sys
sys.path.insert(0, "workflow_scripts")
import itertools
import torch
from torch.nn import functional
from dlbench.trainer.pytorch import flops

called = functional.scaled_dot_product_attention

def inputs(batch, dtype, tokens=12):
    x = torch.ones(batch, tokens, 3 * 64, dtype=dtype, requires_grad=True)
    return [part.view(batch, tokens, 4, 16).transpose(1, 2) for part in x.chunk(3, -1)]

causal = torch.ones(12, 12, dtype=torch.bool).tril()
ways = [
    {}, {"is_causal": True}, {"attn_mask": causal}, {"attn_mask": causal[None, None]},
    {"scale": 0.5}, {"dropout_p": 0.5}, {"attn_mask": torch.zeros(1, 4, 12, 12)},
]
kernels = set()
for dtype, way in itertools.product((torch.float32, torch.bfloat16), ways):
    with flops.Noted() as noted:
        called(*inputs(1, torch.float32), **way)
    if "attn_mask" in way and way["attn_mask"].is_floating_point():
        way = {"attn_mask": way["attn_mask"].to(dtype)}
    how = flops.How(8, dtype, True, torch.device("cpu"))
    found = flops.attention_kernel(noted.first, how)
    ran = called(*inputs(8, dtype), **way).grad_fn.name()
    assert found.startswith("scaled_dot_product_attention: ")
    kernel = found.partition(": ")[2]
    assert (kernel == "flash_attention") == ("Flash" in ran), (dtype, way, found, ran)
    assert (kernel == "math") == ("ScaledDotProduct" not in ran), (dtype, way, found, ran)
    kernels.add(kernel)
assert kernels == {"flash_attention", "math"}, kernels
"""
# Programs for a GPU can be lowered without one, if JAX's two questions to it are answered.
OF_JAX = """
import sys
sys.path.insert(0, "workflow_scripts")
import os
os.environ["KERAS_BACKEND"] = "jax"
import jax
import keras
from jax._src.cudnn import fused_attention_stablehlo
from dlbench.trainer.jax import measuring
from dlbench.trainer.keras.transformer import Attention

def of(dtype, learns=True, heads=2, width=64):
    keras.mixed_precision.set_global_policy(dtype)
    layer = Attention(heads, causal=True)
    keras.Model(x := keras.Input((16, 3 * width)), layer(x))
    return measuring.attention_kernel(layer, 4, learns)

assert of("mixed_bfloat16") == of("float32") == of("float32", learns=False) == "xla"
unbuilt = Attention(2, causal=True)
assert measuring.attention_kernel(unbuilt, 4, True) == "unknown"
fused_attention_stablehlo.check_cudnn_version = lambda: 91000
fused_attention_stablehlo.check_compute_capability = lambda least: True
jit = jax.jit
class ForGpu:
    def __init__(self, function):
        self.traced = jit(function)
    def lower(self, x):
        return self.traced.trace(x).lower(lowering_platforms=("cuda",))
jax.jit = ForGpu
assert of("mixed_bfloat16") == of("mixed_bfloat16", learns=False) == "cudnn"
assert of("float32") == "xla"  # which cuDNN's kernel does not take
assert of("mixed_bfloat16", width=28, heads=2) == "xla"  # 14 numbers of each head
"""


@pytest.mark.parametrize(
    ("framework", "program"), [("pytorch", OF_PYTORCH), ("jax", OF_JAX)], ids=["pytorch", "jax"]
)
def test_the_kernel_is_that_of_a_call_with_the_runs_batch_and_dtype(python, framework, program):
    finished = subprocess.run(
        [python(framework), "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
