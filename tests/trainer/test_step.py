"""The compiled step as TensorFlow executes it."""

import collections
import types

import keras
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from dlbench.common import plugins
from dlbench.study.runs import Run
from dlbench.trainer.tensorflow.step import LOSSES, Step
from dlbench.trainer.tensorflow.strategies import Base

pytestmark = pytest.mark.ci


def test_a_step_that_is_called_runs_no_more_operations_than_the_function_that_it_compiles():
    model = plugins.load("keras/models", "lenet5").build((32, 32, 1), 10)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    images, labels = tf.zeros([2, *model.input_shape[1:]]), tf.zeros([2], tf.int32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    one = Base.stepper(None, step, ())
    assert operations(lambda: one(1, 1)) == operations(step)


@pytest.mark.parametrize(("recompute", "parts"), [(False, 1), (True, 2)])
def test_no_weight_changes_before_the_step_has_read_it_for_the_last_time(recompute, parts):
    spec = Run(
        model="gpt_tiny", dataset="synthetic", batch_per_device=2, recompute=recompute,
        accumulate_steps=parts,
    )  # fmt: skip
    model = plugins.load("keras/models", "gpt_tiny").build((16,), 256, recompute=recompute)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    words = tf.zeros([2, 16], tf.int32)
    source = types.SimpleNamespace(
        scaled=lambda inputs: inputs, next=lambda: (words, words), arguments=(), records=None
    )
    losses = LOSSES["language"]
    step = Step(spec, _OneDevice(), losses, model, optimizer, source)
    step.trace(several=False)
    nodes = {node.name: node for node in optimized(lambda: step(1, 1, 1)).node}
    updates = [node for node in nodes.values() if node.op.startswith("Assign")]
    assert len(updates) > len(model.trainable_variables)  # and the optimizer's count of steps
    for update in updates:
        before = all_before(update.name, nodes)
        for read in nodes.values():
            if read.op == "ReadVariableOp" and read.input[0] == update.input[0]:
                assert read.name in before or update.name in all_before(read.name, nodes)


class _OneDevice(Base):
    def __init__(self):
        """Do nothing: TensorFlow is initialized already and cannot be configured again."""


def all_before(name, nodes):
    """The names of all operations that end before one begins."""
    found, to_visit = set(), [name]
    while to_visit:
        inputs = (text.lstrip("^").partition(":")[0] for text in nodes[to_visit.pop()].input)
        new = [each for each in inputs if each not in found]
        found.update(new)
        to_visit += new
    return found


def operations(call):
    """How often each kind of operation that computes stands in the graph made of a call."""
    return collections.Counter(node.op for node in optimized(call).node if node.op != "NoOp")


def optimized(call):
    """The graph that TensorFlow runs for a call, after its own optimizer went over it."""
    context.context().enable_run_metadata()
    call()
    graphs = context.context().export_run_metadata().function_graphs
    context.context().disable_run_metadata()
    # Others are of single operations.
    return max((each.post_optimization_graph for each in graphs), key=lambda each: len(each.node))
