"""Our two-device runs under JAX beside a bare program in the same layout, in turns.

    uv run dlbench environment envs/jax
    envs/jax/.venv/bin/python -m tests.performance.training.jax_processes

A round runs strategy sharded and a bare program: the same model, optimizer and batch in one jax.jit
over a mesh of both devices, no log, no wait but for the last step. Once one process drives both
devices, once each has one of its own. Prints images per second and ours / bare; the target is 0.95.
Of two processes the one that took longest counts, on both sides.
"""

import functools
import time

from dlbench.common import plugins
from dlbench.trainer import engine

from ..bench import launched

ALIKE = {"framework": "jax", "environment": "jax", "devices_per_node": 2, "strategy": "sharded"}
LAYOUTS = {
    f"a process for each {each}": {
        **ALIKE,
        "strategy_options": f"processes={each}",
        "launcher": launcher,
    }
    for each, launcher in (("node", "none"), ("device", "local"))
}


def bare(run, result):
    """The shortest program that trains on two devices; process r writes seconds to `result`r."""
    # It sets up devices and processes, which is no part of what is timed.
    strategy = engine.strategy_of(run)(run, "cpu")
    import jax
    import keras
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.asarray(jax.devices()), ("devices",))
    native = plugins.load("keras/models", run.model)
    keras.utils.set_random_seed(1)
    network, optimizer = native.build(), keras.optimizers.SGD(0.01)
    optimizer.build(network.trainable_variables)
    random = np.random.default_rng(strategy.rank)
    items = run.batch_per_device * strategy.devices_per_process
    images = random.uniform(-1, 1, (items, *native.INPUT_SHAPE)).astype(np.float32)
    labels = random.integers(0, native.CLASSES, items).astype(np.int32)
    of_all = functools.partial(
        jax.make_array_from_process_local_data, NamedSharding(mesh, PartitionSpec("devices"))
    )
    on_all = NamedSharding(mesh, PartitionSpec())
    images, labels = of_all(images), of_all(labels)
    state = [
        [jax.make_array_from_process_local_data(on_all, np.asarray(v), v.shape) for v in part]
        for part in (
            network.trainable_variables,
            network.non_trainable_variables,
            optimizer.variables,
        )
    ]

    def loss_of(trained, others, images, labels):
        logits, others = network.stateless_call(trained, others, images, training=True)
        chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)
        return -chosen.mean(), others

    def on_device(state, images, labels):
        trained, others, variables = state
        gradients, others = jax.grad(loss_of, has_aux=True)(trained, others, images, labels)
        gradients, others = jax.tree.map(
            lambda value: jax.lax.pmean(value, "devices"), (gradients, others)
        )
        trained, variables = optimizer.stateless_apply(variables, gradients, trained)
        return [trained, others, variables]

    each, parts = PartitionSpec(), PartitionSpec("devices")
    mapped = jax.shard_map(
        on_device, mesh=mesh, in_specs=(each, parts, parts), out_specs=each, check_vma=False
    )
    step = jax.jit(mapped, donate_argnums=0).lower(state, images, labels).compile()
    for _ in range(run.warmup_steps):
        state = step(state, images, labels)
    jax.block_until_ready(state)
    before = time.perf_counter()
    for _ in range(run.steps):
        state = step(state, images, labels)
    jax.block_until_ready(state)
    result.with_name(f"{result.name}{strategy.rank}").write_text(str(time.perf_counter() - before))


if __name__ == "__main__":
    launched.main(__doc__, __spec__.name, LAYOUTS, bare)
