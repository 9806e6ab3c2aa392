"""sequences: how long items of text are, and which models can learn from which text."""

import pytest

from dlbench.study.runs import Run
from dlbench.trainer import engine, sequences

GPT = {"model": "gpt_tiny", "dataset": "synthetic", "batch_per_device": 4, "steps": 10}


def reason(**fields):
    return sequences.unsupported(Run(**GPT | fields))


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
    assert reason(**fields) is None


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
    assert words in reason(framework=framework, **fields)


def test_a_model_of_masked_tokens_needs_one_more_token_for_the_mask(monkeypatch):
    models = engine.plugin_kind("tensorflow", "models")
    known = dict(sequences.plugins.constants(models, "bert_base"))

    def constants(kind, name, real=sequences.plugins.constants):
        return known | {"CLASSES": 256} if kind == models else real(kind, name)

    monkeypatch.setattr(sequences.plugins, "constants", constants)
    assert "needs a vocabulary of 257 tokens" in reason(dataset="bytes", model="bert_base")
