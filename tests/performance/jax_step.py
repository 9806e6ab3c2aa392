"""Our training step under JAX beside the shortest one, on the same model, batch and core, in turns.

    uv run python workflow_scripts/make_environment.py envs/jax
    envs/jax/.venv/bin/python tests/performance/jax_step.py

The shortest one is Keras's stateless model and optimizer in one jax.jit with donated buffers; it
waits for the last step only. Prints, for each model, the ratios of images per second (ours over
theirs) over the pairs, on one core; the target is 0.97. Last, the CPU time of importing all of our
trainer over that of importing JAX and Keras; the target is 1.5.
"""

import functools
import os
import sys
import tempfile
import time
from pathlib import Path

import bench

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.trainer import copies, engine, flags, loop
from dlbench.trainer.schedule import Schedule

# Model, batch, steps in one half of a pair: some two seconds each on one core.
CASES = (("lenet5", 64, 200), ("resnet20", 32, 8))
ROUNDS_OF_IMPORTS = 5
OURS = "import dlbench.trainer.train, dlbench.trainer.jax.engine"


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--case", type=case, action="append", help="as in resnet50:8:3")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    strategy = None
    with tempfile.TemporaryDirectory() as folder:
        for model, batch, steps in args.case or CASES:
            spec = spec_of(model, batch, steps)
            strategy = strategy or engine.strategy_of(spec)(spec, "cpu")  # once a process
            ours = Ours(spec, strategy, Path(folder) / f"{model}.jsonl")
            calls = {"ours": ours, "theirs": Bare(spec, ours)}
            for call in calls.values():
                call()  # the first time it compiles
            taken_s = bench.in_turns(
                args.pairs, {name: functools.partial(seconds, call) for name, call in calls.items()}
            )
            ratios = bench.ratios(taken_s["theirs"], taken_s["ours"])
            name = f"{model}, batch {batch}, over the shortest step"
            figures.add(name, ratios, at_least=0.97)
    rounds = min(args.pairs, ROUNDS_OF_IMPORTS)
    words = {"ours": OURS, "theirs": "import jax, keras"}
    taken_s = bench.in_turns(
        rounds, {name: functools.partial(importing_s, line) for name, line in words.items()}
    )
    ratios = bench.ratios(taken_s["ours"], taken_s["theirs"])
    figures.add("imports of the trainer over those of JAX and Keras", ratios, at_most=1.5)


def case(text):
    model, batch, steps = text.split(":")
    return model, int(batch), int(steps)


def spec_of(model, batch, steps):
    words = f"--framework jax --model {model} --dataset synthetic --batch-per-device {batch}"
    words += f" --steps {steps} --warmup-steps 0 --log unused"
    return flags.parse(None, words.split())[0]


def seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def importing_s(words):
    """CPU time of a Python that imports something; it has read the files before."""
    environ = os.environ | {"PYTHONPATH": str(bench.REPOSITORY / "workflow_scripts")}
    return bench.run([sys.executable, "-c", words], env=environ).cpu_s


class Ours:
    """The trainer's own loop, its event log included, on synthetic items."""

    def __init__(self, spec, strategy, log):
        made = plugins.load("jax", "engine").Engine(spec, strategy, None)
        made.build()
        made.begin(0)
        made.trace()
        self.batch = made._batch
        own_log, only = event_log.EventLog(log), copies.Copy(0, 1, log)
        schedule = Schedule(spec, made.records)
        self.train = lambda: loop._do_steps(schedule, made, only, own_log, 0, None)

    def __call__(self):
        self.train()


class Bare:
    """The same model and optimizer in the shortest compiled step there is."""

    def __init__(self, spec, ours):
        import jax
        import keras

        images, labels = ours.batch
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

        def loss_of(trained, others):
            logits, others = network.stateless_call(trained, others, images, training=True)
            chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
            return -chosen.mean(), others

        @functools.partial(jax.jit, donate_argnums=0)
        def step(state):
            trained, others, variables = state
            value, gradients = jax.value_and_grad(loss_of, has_aux=True)(trained, others)
            trained, variables = optimizer.stateless_apply(variables, gradients, trained)
            return [trained, value[1], variables], value[0]

        self.step = step

    def __call__(self):
        for _ in range(self.steps):
            self.state, loss = self.step(self.state)
        return float(loss)


if __name__ == "__main__":
    main()
