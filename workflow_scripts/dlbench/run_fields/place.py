"""Fields of a run: on which devices, started by what, in which software."""

from dataclasses import dataclass

from dlbench.run_fields.declaring import declared

OPTION = "^[A-Za-z][A-Za-z0-9_-]+$"  # the long name of an option of a program
VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"  # the name of a variable of the environment


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Place:
    """On which devices, started by what, in which software."""

    nodes: int = declared(
        1,
        "Number of nodes.",
        minimum=1,
        maximum=100_000,
        bits=32,
        label="{} nodes",
    )
    node: str | None = declared(
        None,
        "Name of the node on which the run is to be trained, or a list as Slurm writes it, "
        "n[1-8], for a run on each; if the run has several nodes, a list of as many. Schedulers "
        "are asked for them; elsewhere the run is skipped (docs/clusters.md).",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._,\[\]-]*$",
        changes_memory=False,
        is_axis=False,
        only_recorded=True,
    )
    devices_per_node: int = declared(
        1,
        "Devices used on each node.",
        minimum=1,
        maximum=10_000,
        bits=32,
        label="{} devices",
        is_axis=False,
    )
    threads_per_device: int = declared(
        1,
        "Cores that make up one device, where devices are CPUs; the run is pinned to them.",
        minimum=1,
        maximum=100_000,
        bits=32,
        label="{} threads a device",
    )
    binding: str = declared(
        "",
        "Which cores each process of a run on GPUs is bound to, to measure what that makes of a "
        "run (docs/training.md); without the key as site.binding says.",
        choices=("auto", "none", "cores"),
        note="asked for, of processes to cores; empty: that of the site",
        label="binding {}",
        changes_memory=False,
    )
    power_limit_w: int | None = declared(
        None,
        "Watts that each GPU of the run may take: set before the trainer starts, restored "
        "once it has ended; needs root, or site.power_limit_command. Without the key limits "
        "are left as they are.",
        minimum=1,
        maximum=100_000,
        unit="W",
        note="asked for, of each GPU; none: as it was found",
        label="limit {} W",
        changes_memory=False,
        only_recorded=True,
    )
    strategy: str = declared(
        "single",
        "Name of a file in the folder strategies/ of the framework, as in "
        "workflow_scripts/dlbench/trainer/tensorflow/strategies/: how the work is spread over"
        " devices.",
        folder="strategies",
        label="{}",
        contrast="scaling",
    )
    strategy_options: str = declared(
        "",
        "Settings of the strategy, as in {cycle_time_ms: 1, compression: fp16}; the file of "
        "the strategy lists them.",
        is_mapping=True,
        label="{}",
    )
    launcher: str = declared(
        "none",
        "Name of a file in dlbench/starting/launchers/: what starts the processes. Left out, the "
        "strategy's own.",
        folder="launchers",
        label="{}",
    )
    runtime: str = declared(
        "bare",
        "Name of a file in workflow_scripts/dlbench/images/runtimes/: bare metal or a "
        "container runtime.",
        folder="runtimes",
        label="{}",
        contrast="overhead",
    )
    runtime_options: str = declared(
        "",
        "Settings of the runtime, as in {execmode: S1} for udocker or {start: command} for "
        "apptainer; the file of the runtime lists them.",
        is_mapping=True,
        label="{}",
        changes_memory=False,
        only_recorded=True,
    )
    copies_per_node: int = declared(
        1,
        "Copies of the run that are trained at once on the node, each on devices of its own: "
        "job packing. What is measured is the throughput of one copy. For strategies of one "
        "process on one node; not together with checkpoint_every_min.",
        minimum=1,
        maximum=10_000,
        note="trained at once; all numbers are of one copy",
        bits=32,
        label="{} at once",
    )
    environment: str = declared(
        "train",
        "What the trainer's packages come from: on bare metal a folder in envs/, in "
        "containers the image of that name (`images`), which is built from that folder unless"
        " the config says otherwise. Left out, the framework's own; where no Python of the "
        "machine fits that, one that stands in for it (docs/frameworks.md).",
        pattern=r"^[A-Za-z0-9_.-]+$",
        only_recorded=True,
        contrast="overhead",
    )
    trainer: str = declared(
        "dlbench",
        "What trains: dlbench, our own, or a name under trainers.",
        is_axis=False,
    )
    variables: str = declared(
        "",
        "Variables of the environment with which the run's processes are started, as in "
        "{NCCL_ALGO: Ring}; {} for none. Launcher and container runtime get them, too. Secrets "
        "are refused, by their names.",
        is_mapping=True,
        names=VARIABLE,
        label="{}",
        only_recorded=True,
    )
    launcher_options: str = declared(
        "",
        "Options of the launcher that dlbench does not set, as in {mpi: pmix} of srun; of mpirun "
        "its MCA parameters, as in {btl: tcp}.",
        is_mapping=True,
        names=OPTION,
        label="{}",
        only_recorded=True,
    )
    trainer_parameters: str = declared(
        "",
        "Parameters of another program, as its block gives them under `parameters`.",
        label="{}",
        in_config=False,
    )
