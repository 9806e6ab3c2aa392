"""Launchers, one file each: what starts the processes of a run.

A launcher file defines:
    TAKES_TASKS: whether a scheduler's tasks become its processes; if not, it starts them itself
        from one task.
    LOOPBACK_SUFFICES (optional): whether its processes need no other network where all are on
        one node; where it takes tasks, outside of a scheduler's job.
    ELSEWHERE (optional): whether its runs are started by something else than this workflow.
    unsupported(run): why it cannot start a run, or None.
    command(run, trainer, environment): the command line, a list of strings, that starts the
        command `trainer` once per process; programs are taken from the bin/ of the folder
        `environment`, or where it is None from the path.
Nothing here starts anything.
"""


def of_this_machine(run):
    """`unsupported` of a launcher that starts processes on this machine only."""
    if run.nodes > 1:
        return (
            f"launcher {run.launcher} starts processes on this machine only, not on "
            f"{run.nodes} nodes"
        )
    return None
