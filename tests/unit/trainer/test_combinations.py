"""combinations of PyTorch: which ways to compile go with which other fields, and why not."""

import dataclasses
import types

import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine

RUN = Run(
    model="gpt_tiny", dataset="bytes", batch_per_device=8, steps=5,
    framework="pytorch", environment="pytorch", compile=True,
)  # fmt: skip
GRAPHS = {"compile_mode": "cuda_graphs"}
TWO = {"devices_per_node": 2, "launcher": "torchrun"}


def reasons(**fields):
    """The reasons for a run of a study, and for the flags of train.py, which must be the same."""
    run = dataclasses.replace(RUN, **fields)
    flags = types.SimpleNamespace(**dataclasses.asdict(run))
    first, second = engine.unsupported(run), engine.unsupported(flags)
    assert first == second
    return first


def test_the_default_way_to_compile_changes_no_run():
    before = dataclasses.replace(RUN, compile=False)
    for run in (RUN, before):
        said = dataclasses.replace(run, compile_mode="model")
        assert (said.id, said.values()) == (run.id, run.values())
        assert "compile_mode" not in run.values()
        assert "--compile-mode" not in run.flags()
    assert RUN.id == "gpt_tiny-bytes-b8-compile-single-1x1-r1-e321ce5985"
    assert before.id == "gpt_tiny-bytes-b8-single-1x1-r1-6027150679"
    blocks = dataclasses.replace(RUN, compile_mode="blocks")
    assert blocks.id != RUN.id
    assert "--compile-mode" in blocks.flags()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"compile": False},
        {"compile_mode": "blocks", "recompute": True, "accumulate_steps": 2, "warmup_steps": 0},
        {"compile_mode": "blocks", "strategy": "fsdp", "deterministic": True, **TWO},
        {"compile_mode": "blocks", "model": "vit_tiny", "dataset": "digits", "mode": "forward"},
        GRAPHS,
        {**GRAPHS, "model": "lenet5", "dataset": "synthetic", "precision": "float16"},
        {**GRAPHS, "clip_norm": 1.0, "recompute": True, "warmup_steps": 2},
        {**GRAPHS, "steps": None, "epochs": 2, "warmup_steps": 0},
    ],
)
def test_what_can_be_combined_is_trained(fields):
    assert reasons(**fields) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"compile": False, "compile_mode": "blocks"}, "does not compile: say compile: true"),
        ({"compile": False, **GRAPHS}, "compile_mode cuda_graphs says how compile: true compiles"),
        ({"compile_mode": "blocks", "model": "resnet20"}, "as gpt2_small; resnet20 has none"),
        ({**GRAPHS, "strategy": "ddp", **TWO}, "does not work with strategy ddp, whose exchange"),
        ({**GRAPHS, "accumulate_steps": 2}, "overwrite the gradients of the part before it"),
        ({**GRAPHS, "deterministic": True}, "does not work with deterministic"),
        ({**GRAPHS, "warmup_steps": 1}, "needs warmup_steps 2 or more"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_reason(fields, words):
    assert words in reasons(**fields)


def test_other_frameworks_have_no_way_to_compile():
    for framework in ("tensorflow", "jax"):
        own = {"framework": framework, "environment": "train", "compile": False}
        assert "compile_mode is a field of framework pytorch" in reasons(**own, **GRAPHS)
        assert reasons(**own) is None
