"""Open MPI's mpirun, that of the trainer's environment or of the site.

The libraries of the environment's own must be those the ranks load, also where the
system has another Open MPI: with a mix mpirun aborts before MPI_INIT. So the environment's
lib folder comes first, for mpirun and, by -x, for the ranks.
"""

from dlbench import launchers, plugins

unsupported = launchers.of_this_machine


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
        str(strategy.processes_per_node(run)),
        "--bind-to",
        "none",
        *exported,
        *trainer,
    ]
