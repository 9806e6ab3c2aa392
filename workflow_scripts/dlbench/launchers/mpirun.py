"""Open MPI's mpirun, the one of the trainer's environment.

Its libraries must be those the ranks load, also where the system has another
Open MPI: with a mix mpirun aborts before MPI_INIT. So the environment's lib
folder comes first, for mpirun and, by -x, for the ranks.
"""

from pathlib import Path

from dlbench import launchers, plugins

unsupported = launchers.of_this_machine


def command(run, trainer, python):
    strategy = plugins.load("strategies", run.strategy).Strategy
    environment = Path(python).parents[1]
    library = environment / "lib"
    return [
        "env",
        f"OPAL_PREFIX={environment}",
        f"LD_LIBRARY_PATH={library}",
        "OMPI_ALLOW_RUN_AS_ROOT=1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        str(environment / "bin" / "mpirun"),
        "-np",
        str(strategy.processes_per_node(run)),
        "--bind-to",
        "none",
        "-x",
        "LD_LIBRARY_PATH",
        "-x",
        "OPAL_PREFIX",
        *trainer,
    ]
