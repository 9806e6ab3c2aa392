"""DeepSpeed's launcher of the processes of one node; across nodes one on each, by srun.

Its program `deepspeed` starts the same module, on nodes of a hostfile by ssh.
"""

import base64
import json
import shlex
from pathlib import Path

from dlbench.machine import gpus
from dlbench.starting import launchers
from dlbench.starting.launchers import torchrun
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "torchrun"
TAKES_TASKS = False
LOOPBACK_SUFFICES = True
MODULE = "deepspeed.launcher.launch"
OPTIONS_SET = (
    "world-info", "node-rank", "master-addr", "master-port", "no-python", "no-local-rank", "module",
)  # fmt: skip
SEEN = "DLBENCH_SEEN"  # the GPUs that the scheduler has given, as it shows those that come first

unsupported = torchrun.unsupported


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    devices = list(range(engine.strategy_of(run).processes_per_node(run)))
    world = json.dumps({f"node{number}": devices for number in range(run.nodes)})
    flags = [
        f"--world_info={base64.urlsafe_b64encode(world.encode()).decode()}",
        f"--master_addr={launchers.meeting_node(run)}",
        f"--master_port={launchers.meeting_port()}",
        *(f"--{name}={value}" for name, value in launchers.options(run).items()),
        *("--no_python", "--no_local_rank"),
    ]
    rank = '--node_rank="$SLURM_NODEID"' if run.nodes > 1 else ""
    start = shlex.join(launchers.module(environment, MODULE))
    return [
        *(*torchrun.on_each_node(run), "sh", "-c"),
        f'export {SEEN}="${gpus.CUDA}"; exec {start} {rank} "$@"',
        *("sh", *flags, "sh", "-c"),
        f'[ -z "${SEEN}" ] || export {gpus.CUDA}="${SEEN}"; exec {shlex.join(trainer)}',
    ]
