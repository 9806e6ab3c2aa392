"""tf.distribute.ParameterServerStrategy: weights on servers, workers compute gradients.

Processes: a chief, which schedules the steps and writes the log; one worker a device; the servers.
With n workers, a step of the log is n worker steps, so it has as many items as with the other
strategies; its loss is their mean.

Options:
    update   asynchronous: each worker applies its gradient at once. Two steps of each worker are
               scheduled at a time. A step of the log ends when n more worker steps have finished,
               in the order in which they were scheduled.
             barrier: as tf_cnn_benchmarks' synchronous variable_update=parameter_server
               over several workers: each applies its own gradient, and none starts the
               next step before all have. Nothing is averaged: n updates a step.
             averaged: gradients are summed on the servers and applied once a step; equal
               to one process with the global batch.
    servers  number of parameter servers; weights are placed on them in turn

- tf_cnn_benchmarks' workers fetch the next step from a queue; here the chief schedules it,
  which costs a message to each worker a step.
- On CPUs each worker has its own cores, as any device has; chief and servers share all of
  the node, so with short steps they take time from the workers: LeNet-5 with batch 64 took
  12.8 ms a step with two workers on two cores, 4.0 ms in one process on one core.
- Asynchronous updates can overwrite one another, and so can the moving statistics of batch
  normalisation under each option.
- GPUs are not sampled: they belong to the workers, and the chief writes the log.
"""

import collections
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from dlbench.machine import limits
from dlbench.trainer import cluster
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tensorflow.strategies import Base, Items, Stepper, Tensor, Variable, resolver

STEPS_AT_ONCE = 2  # scheduled for each worker
POLL_S = 0.2


class Strategy(Base):
    launcher = "local"
    OPTIONS = {"update": ("asynchronous", "barrier", "averaged"), "servers": 1}
    supports_windows = False  # the chief schedules each step
    first_computes = False

    @staticmethod
    def unsupported(run: Spec) -> str | None:
        if not Strategy.parse_options(run)["servers"]:
            return "strategy parameter_server needs at least one of servers, found 0"
        if run.deterministic:
            return "strategy parameter_server cannot be deterministic: its workers race"
        return None

    @staticmethod
    def processes_per_node(run: Spec) -> int:
        return run.devices_per_node

    @classmethod
    def jobs(cls, run: Spec) -> dict[str, int]:
        servers = cls.parse_options(run)["servers"]
        return {"chief": 1, "worker": run.nodes * run.devices_per_node, "ps": servers}

    def join(self, spec: Spec) -> None:
        self._cluster = cluster.find(spec, self.jobs(spec))
        self.local_rank = self._cluster.local_rank
        self._workers = len(self._cluster.addresses["worker"])
        self._tf32 = spec.precision == "tf32"
        self._sums: list[Variable] | None = None

    def serve(self, finished: Callable[[], bool]) -> bool:
        if self._cluster.job == "chief":
            return False
        while not finished():
            time.sleep(POLL_S)
        return True

    def scope(self) -> AbstractContextManager[Any]:
        return self._servers.scope()

    def iterator(self, make: Callable[[int | Tensor, int], Any]) -> Iterator[Items]:
        index = _tf().distribute.coordinator.experimental_get_current_worker_index
        return iter(
            self._coordinator.create_per_worker_dataset(lambda: make(index(), self._workers))
        )

    def constants(self, make: Callable[[], Items]) -> Items | Iterator[Items]:
        # A dataset stays with its worker; a tensor would be sent in each step.
        items = make()
        return self.iterator(
            lambda rank, size: _tf().data.Dataset.from_tensors(items).cache().repeat()
        )

    def gpus(self) -> tuple[int | str, ...]:
        return ()

    def run(self, function: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> Tensor:
        return self._servers.run(function, args=arguments)

    def apply(self, optimizer: Any, gradients: list[Tensor], variables: list[Variable]) -> None:
        tf = _tf()
        if self.options["update"] == "averaged":
            if self._sums is None:
                self._optimizer, self._variables = optimizer, variables
                with tf.init_scope():
                    self._sums = [
                        optimizer.add_variable_from_reference(v, name="sum").value
                        for v in variables
                    ]
            for total, gradient in zip(self._sums, gradients, strict=True):
                total.assign_add(tf.convert_to_tensor(gradient) / self._workers)
            return
        _apply_when_computed(optimizer, gradients, variables)

    def stepper(self, step: Callable[..., Tensor], arguments: tuple[Any, ...]) -> Stepper:
        return {
            "asynchronous": self._asynchronous,
            "barrier": self._barrier,
            "averaged": self._barrier,
        }[self.options["update"]](step, arguments)

    def _asynchronous(self, step, arguments):
        pending, scheduled = collections.deque(), 0

        def do_step(index, until):
            nonlocal scheduled
            scheduled = max(scheduled, (index - 1) * self._workers)
            losses = []
            while len(losses) < self._workers:
                ahead = (index - 1 + STEPS_AT_ONCE) * self._workers + len(losses)
                while scheduled < min(ahead, until * self._workers):
                    pending.append(self._coordinator.schedule(step, args=arguments))
                    scheduled += 1
                losses.append(float(pending.popleft().fetch()))
            return sum(losses) / len(losses)

        return do_step

    def _barrier(self, step, arguments):
        tf = _tf()

        @tf.function
        def apply_sums():
            # Keras can apply in a replica context only.
            self._servers.run(self._apply_sums)

        def do_step(index, until):
            schedule = self._coordinator.schedule
            scheduled = [schedule(step, args=arguments) for _ in range(self._workers)]
            self._coordinator.join()
            if self._sums is not None:
                with self._servers.scope():
                    apply_sums()
            losses = [float(loss.fetch()) for loss in scheduled]
            return sum(losses) / len(losses)

        return do_step

    def _apply_sums(self):
        sums = [total.read_value() for total in self._sums]
        _apply_when_computed(self._optimizer, sums, self._variables)
        for total in self._sums:
            total.assign(_tf().zeros_like(total))

    def _pin(self, threads_per_device):
        if self._cluster.job == "worker":
            return super()._pin(threads_per_device)
        return sorted(os.sched_getaffinity(0))

    def _bind(self, spec):
        return super()._bind(spec) if self._cluster.job == "worker" else None

    def _configure(self, device, threads_per_device):
        tf = _tf()
        tf.config.experimental.enable_tensor_float_32_execution(self._tf32)
        job = self._cluster.job
        if job != "worker":
            tf.config.set_visible_devices([], "GPU")
        if job == "chief":
            return self._connected(device)
        if job == "worker" and device == "gpu":
            threads_per_device = limits.usable_threads()
        threads = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=threads_per_device,
            # With one, a worker hangs in its first step.
            inter_op_parallelism_threads=2,
        )
        if job == "worker" and device == "gpu":
            seen = len(tf.config.list_physical_devices("GPU"))
            (number,) = self.select_gpus(range(seen))
            threads.gpu_options.visible_device_list = str(number)
            threads.gpu_options.allow_growth = True
        self._server = tf.distribute.Server(
            tf.train.ClusterSpec(self._cluster.addresses), job, self._cluster.task, "grpc", threads
        )
        return []

    def _connected(self, device):
        tf = _tf()
        self._servers = tf.distribute.ParameterServerStrategy(resolver(self._cluster))
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._servers)
        return [
            f"/job:worker/replica:0/task:{task}/device:{device.upper()}:0"
            for task in range(self._workers)
        ]


def _apply_when_computed(optimizer, gradients, variables):
    """Update once all gradients are computed.

    Without this dependency a server reads its momenta when the step starts, and later overwrites
    what another worker has written: with two workers half of the updates were lost.
    """
    tf = _tf()
    with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True)):
        optimizer.apply(gradients, variables)


def _tf():
    import tensorflow as tf

    return tf
