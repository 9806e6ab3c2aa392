"""Several processes of a run, one for each device, joined by torch.distributed.

They communicate over gloo on CPUs, over NCCL on GPUs. A process learns its rank and the address of
the rendezvous
    from torchrun, mpirun and the like  by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    from other launchers                as under other frameworks: see dlbench/trainer/cluster.py
The rendezvous fails after cluster.RENDEZVOUS_TIMEOUT_S; a collective waits for the other processes
as long as a run may take. On GPUs the process group is bound to the device of its process, and
connects at once.
"""

import datetime
import gc
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dlbench import Error
from dlbench.common import networks, terminal
from dlbench.trainer import cluster
from dlbench.trainer.pytorch.strategies import Base
from dlbench.trainer.strategy import Spec


class Rendezvous(NamedTuple):
    """The ranks of this process, and the address (`host:port`) at which rank 0 listens."""

    rank: int
    local_rank: int
    address: str


class DistributedBase(Base):
    """One process for each device, on any number of nodes; subclasses exchange gradients."""

    reduces = True
    launcher = "torchrun"
    protocols = ("torchrun", "mpi", "tf_config", "slurm")
    supports_cuda_graphs = False

    @staticmethod
    def processes_per_node(run: Spec) -> int:
        return run.devices_per_node

    def join(self, spec: Spec) -> None:
        place = find(spec, self.jobs(spec))
        self.size = spec.nodes * spec.devices_per_node
        self.rank, self.local_rank, self._address = place
        if cluster.protocol(spec.launcher) == "mpi" and spec.nodes > 1:  # at what MASTER_ADDR says
            cluster.check_names([self._address.rpartition(":")[0]])
        if spec.nodes == 1:  # also where the machine's own name has no address
            for library in ("GLOO", "NCCL"):
                os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")

    def leave(self) -> None:
        from torch import distributed

        # If gloo's threads outlive Python, the process ends with an error (pytorch#190489). A model
        # that fully_shard made refers to the group with its threads, so it is collected first.
        gc.collect()
        distributed.destroy_process_group()

    def settings(self) -> dict[str, Any]:
        timeout_s = cluster.EXCHANGE_TIMEOUT_S
        return {"backend": self._backend(), "timeout_s": timeout_s, **super().settings()}

    def gather(self, values: Any) -> np.ndarray:
        import torch
        from torch import distributed

        tensor = torch.as_tensor(np.asarray(values, np.float64), device=self.device)
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        distributed.all_gather(gathered, tensor)
        return torch.stack(gathered).cpu().numpy()

    def _backend(self):
        return "nccl" if self.on_gpus else "gloo"

    def _connect(self):
        from torch import distributed

        # torchrun listens there itself.
        if self.rank == 0 and "TORCHELASTIC_RUN_ID" not in os.environ:
            cluster.check_port_free(self._address)
        networks.check_interfaces(f"{self._backend().upper()}_SOCKET_IFNAME")
        rendezvous, exchange = (
            datetime.timedelta(seconds=seconds)
            for seconds in (cluster.RENDEZVOUS_TIMEOUT_S, cluster.EXCHANGE_TIMEOUT_S)
        )
        try:
            stores = distributed.rendezvous(
                f"tcp://{self._address}", self.rank, self.size, timeout=rendezvous
            )
            store, *_ = next(stores)
            store.set_timeout(exchange)
            distributed.init_process_group(
                self._backend(),
                store=store,
                rank=self.rank,
                world_size=self.size,
                timeout=exchange,
                device_id=self.device if self.on_gpus else None,
            )
        except RuntimeError as error:
            what = f"the rendezvous at {self._address} failed"
            if isinstance(error, distributed.DistBackendError):
                what = (
                    f"{self._backend()} does not connect the processes, whose rendezvous at "
                    f"{self._address} succeeded (NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose its "
                    "interfaces; the files nccl.* beside the log say which it tried)"
                )
            raise cluster.Unreachable(
                f"rank {self.rank} of {self.size}: {what}: {terminal.message(str(error), 300)}"
            ) from error


def find(spec: Spec, jobs: dict[str, int], environ: Mapping[str, str] = os.environ) -> Rendezvous:
    """The Rendezvous of this process; `jobs` are the numbers of processes of each kind.

    Raises Error: the variables of the run's launcher are missing, or contradict the run.
    """
    protocol = cluster.protocol(spec.launcher)
    if "TORCHELASTIC_RUN_ID" in environ and protocol != "torchrun":
        raise Error(
            f"torchrun started this process, and the run's launcher is {spec.launcher}: say "
            "--launcher torchrun"
        )
    if protocol in ("torchrun", "mpi"):
        rank, local_rank = _numbers(protocol, spec, jobs["worker"], environ)
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
        if missing:
            raise Error(
                f"{' and '.join(missing)} not set: was the trainer started by {spec.launcher}, and "
                "on several nodes in a scheduler's job?"
            )
        return Rendezvous(rank, local_rank, f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}")
    names = "torchrun, local or srun"
    known = cluster.find(spec, jobs, environ, launchers=names, first_suffices=True)
    if protocol == "slurm":
        _choose_interface(known)
    return Rendezvous(known.task, known.local_rank, known.addresses["worker"][0])


def _choose_interface(known):
    """Make Gloo listen on the interface to the other nodes, if this node's name gives another."""
    host, _, _ = known.addresses["worker"][known.task].rpartition(":")
    others = [other for other in known.hosts if other != host]
    if others and (networks.listening_address() or networks.LOOPBACK).startswith("127."):
        interface = networks.interface_towards(others[0])
        if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
            os.environ["GLOO_SOCKET_IFNAME"] = interface


def _numbers(protocol, spec, size, environ):
    """(rank, local rank) of this process, checked against the run's number of processes."""
    each = spec.devices_per_node
    names = (*cluster.RANKS[protocol], "WORLD_SIZE")
    texts = {name: environ.get(name, "unset") for name in names}
    variables = ", ".join(f"{name}={text}" for name, text in texts.items())
    try:
        rank, local_rank, started = map(int, texts.values())
    except ValueError:
        raise Error(
            f"was the trainer started by {spec.launcher}? Expected numbers, found {variables}"
        ) from None
    if started != size or not (0 <= rank < size and 0 <= local_rank < each):
        raise Error(
            f"expected {size} processes, {each} on each of {spec.nodes} node(s), found "
            f"{variables}: check the options of {spec.launcher}"
        )
    return rank, local_rank
