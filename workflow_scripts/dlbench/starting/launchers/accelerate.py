"""`accelerate launch` of Hugging Face, which starts torchrun; across nodes one on each, by srun.

A file of `accelerate config` may choose FSDP or DeepSpeed: launcher_options: {config_file: ...}.
"""

from pathlib import Path

from dlbench.starting import launchers
from dlbench.starting.launchers import torchrun
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "torchrun"
TAKES_TASKS = False
LOOPBACK_SUFFICES = True
MODULE = "accelerate.commands.launch"
OPTIONS_SET = (
    "num-processes", "num-machines", "machine-rank", "main-process-ip", "main-process-port",
    "rdzv-backend", "no-python", "module", "cpu",
)  # fmt: skip

unsupported = torchrun.unsupported


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    options = launchers.options(run)
    processes = run.nodes * engine.strategy_of(run).processes_per_node(run)
    flags = [f"--num_machines={run.nodes}", f"--num_processes={processes}"]
    flags += [f"--main_process_port={launchers.meeting_port()}"]
    if run.nodes > 1:
        flags += [f"--main_process_ip={launchers.meeting_node(run)}", "--rdzv_backend=c10d"]
    if "config_file" not in options:  # against the one that may lie in the user's cache
        flags += ["--mixed_precision=no", "--dynamo_backend=no"]
        if processes > 1:
            flags += ["--multi_gpu"]  # torchrun, also on CPUs
        else:  # no torchrun, and no variables
            trainer = launchers.with_ranks(run, trainer, "0", "0", "1")
    return [
        *(*torchrun.on_each_node(run), *torchrun.SIGNALS),
        *(*launchers.module(environment, MODULE), *flags),
        *(f"--{name}={value}" for name, value in options.items()),
        *("--no_python", *launchers.one_word(trainer)),
    ]
