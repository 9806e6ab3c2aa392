"""Our training step under JAX beside the shortest one, on the same model, batch and core, in turns.

    uv run dlbench environment envs/jax
    envs/jax/.venv/bin/python -m tests.performance.training.jax_step

The shortest one is Keras's stateless model and optimizer in one jax.jit with donated buffers; it
waits for the last step only. The batch is an argument, as in any training: of a batch that is a
constant of the program XLA computes parts beforehand (392 operations instead of 461 with LeNet-5).

Prints, for each model, the ratios of images per second (ours over theirs) over the pairs, on one
core or one GPU; the target is 0.97. Last, the CPU time of importing all of our trainer over that of
importing JAX and Keras; the target is 1.5.
"""

import functools

from dlbench.common import plugins

from .. import bench
from ..bench import steps

PAIRS = 45
# Model, batch, steps in one half of a pair: some 0.4 seconds each on one core.
CASES = (("lenet5", 64, 40), ("resnet20", 32, 2), ("gpt_tiny", 8, 3), ("vit_tiny", 32, 4))


def main():
    args = steps.parser(__doc__, PAIRS).parse_args()
    figures = bench.Figures(args.json)
    steps.keep_to_one_core(args)
    steps.beside_shortest(figures, "jax", args.case or CASES, Bare, args.pairs, *steps.how(args))
    if not args.steps_alone:
        steps.beside_imports(figures, "jax", "JAX and Keras", args.pairs)


class Bare:
    """The same model and optimizer in the shortest compiled step there is."""

    def __init__(self, spec, batch):
        import jax
        import keras

        self.batch = batch
        network = plugins.load("keras/models", spec.model).build()
        optimizer = keras.optimizers.SGD(spec.learning_rate)
        optimizer.build(network.trainable_variables)
        self.steps = spec.steps
        self.state = [
            [variable.value for variable in part]
            for part in (
                network.trainable_variables,
                network.non_trainable_variables,
                optimizer.variables,
            )
        ]

        def loss_of(trained, others, images, labels):
            logits, others = network.stateless_call(trained, others, images, training=True)
            chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
            return -chosen.mean(), others

        @functools.partial(jax.jit, donate_argnums=0)
        def step(state, images, labels):
            trained, others, variables = state
            value, gradients = jax.value_and_grad(loss_of, has_aux=True)(
                trained, others, images, labels
            )
            trained, variables = optimizer.stateless_apply(variables, gradients, trained)
            return [trained, value[1], variables], value[0]

        self.step = step

    def __call__(self):
        for _ in range(self.steps):
            self.state, loss = self.step(self.state, *self.batch)
        return float(loss)


if __name__ == "__main__":
    main()
