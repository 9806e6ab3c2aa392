"""Open MPI's mpirun, that of the trainer's environment or of the site.

Within a job of a scheduler that it knows it starts processes on all nodes of the job.
The libraries of the environment's own must be those the ranks load, also where the
system has another Open MPI: with a mix mpirun aborts before MPI_INIT. So the environment's
lib folder comes first, for mpirun and, by -x, for the ranks.
"""

from dlbench import plugins

TAKES_TASKS = True
LOOPBACK_SUFFICES = True
MEETING = ("horovodrun",)


def unsupported(run):
    return None


def command(run, trainer, environment):
    strategy = plugins.load("strategies", run.strategy).Strategy
    variables = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    exported = []
    if environment:
        own = {"OPAL_PREFIX": environment, "LD_LIBRARY_PATH": environment / "lib"}
        variables += [f"{name}={value}" for name, value in own.items()]
        exported = [word for name in own for word in ("-x", name)]
    return [
        "env",
        *variables,
        str(environment / "bin" / "mpirun") if environment else "mpirun",
        "-np",
        str(run.nodes * strategy.processes_per_node(run)),
        *(["--map-by", f"ppr:{strategy.processes_per_node(run)}:node"] if run.nodes > 1 else []),
        "--bind-to",
        "none",
        *exported,
        *trainer,
    ]
