"""inputs: which settings of reading and which texts a run cannot have, and why."""

import pytest

from dlbench.common.run_fields import DECLARED
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.trainer import engine
from dlbench.trainer.reading import inputs

LENET = {"model": "lenet5", "dataset": "digits", "batch_per_device": 12, "steps": 10}
TORCH = {"framework": "pytorch", "input": "torch"}
GPT = {"model": "gpt_tiny", "dataset": "synthetic", "batch_per_device": 4, "steps": 10}
GRAIN = {"framework": "jax", "input": "grain"}


def reason(**fields):
    run = Run(**LENET | fields)
    return inputs.unsupported(run, engine.strategy_of(run))


def test_the_readers_of_a_config_are_those_of_the_frameworks():
    assert list(DECLARED["input"].choices) == [inputs.AUTO, *inputs.names()]


@pytest.mark.parametrize(
    ("fields", "reader"),
    [
        ({}, "tf.data"),
        ({"framework": "jax"}, "dlbench"),
        ({"framework": "pytorch"}, "dlbench"),
        (TORCH, "torch"),
        (GRAIN, "grain"),
    ],
)
def test_a_run_that_names_no_reader_has_the_usual_one_of_its_framework(fields, reader):
    assert inputs.reader_of(Run(**LENET | fields)) == reader
    usable = {"input_workers": 2, "prefetch": 3, "page_cache": "cold"}
    assert reason(**fields, **usable) is reason(**fields, mode=inputs.INPUT_ONLY) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": "torch"}, "input torch is a reader of pytorch; tensorflow has: tf.data"),
        ({"input": "grain"}, "input grain is a reader of jax and pytorch; tensorflow has: tf.data"),
        (
            {"input_workers": 2, "dataset": "synthetic"},
            "input_workers is about reading, and dataset synthetic has nothing to read",
        ),
        (TORCH | {"prefetch": 0}, "each worker of input torch prepares at least one batch ahead"),
        (GRAIN | {"prefetch": 0}, "each worker of input grain prepares at least one batch ahead"),
        ({"page_cache": "cold", "copies_per_node": 2}, "page_cache cold needs copies_per_node 1"),
        (
            {"page_cache": "warm", "strategy": "parameter_server", "launcher": "local"},
            "those of strategy parameter_server do not",
        ),
    ],
)
def test_what_cannot_be_read_so_is_said_with_what_can(fields, words):
    assert words in reason(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dataset": "synthetic"}, "mode input reads items, and dataset synthetic has none"),
        (
            {"strategy": "parameter_server", "launcher": "local"},
            "mode input does not go with strategy parameter_server",
        ),
        ({"xla": True}, "xla is about a model, and mode input has none: leave it out"),
        ({"accumulate_steps": 2}, "accumulate_steps is about a model"),
        ({"profile": True}, "profile is about a model"),
    ],
)
def test_without_a_model_there_is_nothing_but_reading(fields, words):
    assert words in reason(mode=inputs.INPUT_ONLY, **fields)


def test_what_a_reader_needs_beside_its_framework_is_an_extra_of_the_environments_that_have_it():
    assert inputs.packages(Run(**LENET)) == inputs.packages(Run(**LENET | TORCH)) == ()
    assert inputs.packages(Run(**LENET | GRAIN)) == ("grain",)
    offered = trainer_environments.extras()
    for reader, packages in inputs.PACKAGES.items():
        for framework in engine.names():
            if reader in engine.inputs(framework):
                assert set(packages) <= offered[engine.environment(framework)], (reader, framework)


def reason_of_text(**fields):
    return inputs.unsupported_text(Run(**GPT | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence_length": 256},
        {"dataset": "bytes", "sequence_length": 1, "recompute": True},
        {"dataset": "bytes", "model": "lstm_ptb", "sequence_length": 5000},
        {"dataset": "bytes", "model": "bert_base"},
        {"model": "vit_tiny", "recompute": True},
        {"model": "resnet20"},
        {"dataset": "bytes", "model": "gpt2_small", "vocabulary_multiple": 64},
    ],
)
def test_what_fits_is_trained(fields):
    assert reason_of_text(**fields) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sequence_length": 257}, "257 is more than the 256 positions of gpt_tiny"),
        ({"dataset": "ptb"}, "needs a vocabulary of 10000 tokens, and that of gpt_tiny has 256"),
        ({"model": "vit_tiny", "sequence_length": 64}, "vit_tiny learns classification"),
        ({"model": "resnet20", "recompute": True}, "resnet20 has none"),
        ({"model": "resnet20", "vocabulary_multiple": 64}, "vocabulary_multiple is of models of t"),
    ],
)
@pytest.mark.parametrize("framework", engine.names())
def test_what_does_not_fit_is_skipped_with_the_reason(framework, fields, words):
    assert words in reason_of_text(framework=framework, **fields)


def test_a_model_of_masked_tokens_needs_one_more_token_for_the_mask(monkeypatch):
    models = engine.plugin_kind("tensorflow", "models")
    known = dict(inputs.plugins.constants(models, "bert_base"))

    def constants(kind, name, real=inputs.plugins.constants):
        return known | {"CLASSES": 256} if kind == models else real(kind, name)

    monkeypatch.setattr(inputs.plugins, "constants", constants)
    assert "needs a vocabulary of 257 tokens" in reason_of_text(dataset="bytes", model="bert_base")
