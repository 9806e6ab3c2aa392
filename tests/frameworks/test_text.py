"""Transformers learn text in each framework, of any length, with or without recomputation."""

import pytest

from dlbench.data import sources
from dlbench.data.datasets import bytes as generated
from dlbench.trainer import engine
from support.trainers.framework_runs import losses
from support.trainers.training_runs import convert, events, train

TINY = {"model": "gpt_tiny", "warmup_steps": 0}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1, "learning_rate": 0.003, "clip_norm": 1.0}
ATTENTION = {
    "tensorflow": "keras.ops.dot_product_attention: einsum",
    "jax": "keras.ops.dot_product_attention: xla",
    "pytorch": "scaled_dot_product_attention: flash_attention",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return convert("bytes", tmp_path_factory.mktemp("bytes"))


# JAX compiles for minutes, and what TensorFlow learns of texts is tested in tests/trainer, too.
@pytest.fixture(
    scope="module",
    params=["jax", "tensorflow", pytest.param("pytorch", marks=pytest.mark.ci)],
)
def trained(request, python):
    """A function that trains with a framework and gives its log."""

    def run(log, data=None, flags=(), **fields):
        own = {"framework": request.param, "environment": engine.environment(request.param)}
        finished = train(log, data, flags, python(request.param), **own, **fields)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return log

    run.framework = request.param
    return run


@pytest.mark.parametrize("model", ["gpt_tiny", "llama_tiny", "mixtral_tiny"])
def test_a_model_learns_more_of_a_text_than_how_often_its_bytes_occur(
    trained, text, tmp_path, model
):
    log = trained(
        tmp_path / "train.jsonl", text, **TINY | {"model": model}, **ADAMW, dataset="bytes",
        batch_per_device=16, steps=60, sequence_length=64, evaluate="yes",
        learning_rate_warmup_steps=10, learning_rate_decay="cosine",
    )  # fmt: skip
    before, after = (events(log, "eval")[place]["loss"] for place in (0, -1))
    entropy = sources.unigram_entropy(generated.texts()["validation"])
    assert after < 0.95 * entropy < entropy < before
    start = events(log, "run_start")[0]
    assert start["item_shape"] == [64]
    assert start["records"] == (generated.TOKENS["train"] - 1) // 64
    assert start["attention"] == ATTENTION[trained.framework]


@pytest.mark.parametrize(
    ("model", "parameters"), [("gpt_tiny", 858_880), ("mixtral_tiny", 2_626_688)]
)
def test_recomputing_changes_no_loss(trained, tmp_path, model, parameters):
    found = []
    for recompute in (False, True):
        log = tmp_path / str(recompute) / "train.jsonl"
        trained(log, **TINY | {"model": model}, batch_per_device=2, steps=3, sequence_length=16,
                recompute=recompute, learning_rate=0.1)  # fmt: skip
        found.append(losses(log))
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert len(set(found[0])) == 3
    assert events(log, "run_start")[0]["parameters"] == parameters


SMALL_BERT = """
from dlbench.trainer.{kind} import transformers

TASK, INPUT_SHAPE, CLASSES, FIXED_CLASSES = "masked_language", (64,), 257, True
SIZE = {{"width": 64, "heads": 2, "depth": 1}}


def build(input_shape, classes, recompute=False):
    constants = {{"NAME": "bert", "TASK": TASK, "POSITIONS": 64, "SIZE": SIZE}}
    return transformers.build(input_shape, classes, constants=constants, recompute=recompute)
"""


def test_masked_tokens_are_learned_and_scored(trained, text, tmp_path):
    kind = engine.plugin_kind(trained.framework, "models").replace("/", ".")
    (tmp_path / "small_bert.py").write_text(SMALL_BERT.format(kind=kind))
    flags = ["--model-folder", str(tmp_path)]
    log = trained(
        tmp_path / "train.jsonl", text, flags, **ADAMW,
        model="small_bert", dataset="bytes", batch_per_device=32, steps=40, warmup_steps=0,
        evaluate="yes",
    )  # fmt: skip
    before, after = (events(log, "eval")[place] for place in (0, -1))
    assert after["loss"] < 3.2 < 5 < before["loss"] < 6
    assert after["perplexity"] == pytest.approx(2.718281828 ** after["loss"])
    assert before["examples"] == 1023
