"""Launchers, one file each: what starts the processes of a run.

A launcher file defines:
    TAKES_TASKS: whether a scheduler's tasks become its processes; if not, it starts them itself
        from one task.
    LOOPBACK_SUFFICES (optional): whether its processes need no other network where all are on
        one node; where it takes tasks, outside of a scheduler's job.
    MEETING (optional): the strategies whose processes it lets find one another, each named by its
        own launcher; if left out, all.
    LISTENS_BY_NAME (optional): whether its processes listen at the address of the machine's own
        name, and abort if it has none.
    ELSEWHERE (optional): whether something other than this workflow starts its runs.
    unsupported(run): why it cannot start a run, or None.
    command(run, trainer, environment): the command line, a list of strings, that starts the
        command `trainer` once per process; programs are taken from the bin/ of the folder
        `environment`, from the path if it is None.
Nothing here starts anything. The room imports trainer, schedulers and common.
"""

import dataclasses

from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec


def misfit(run: Spec) -> str | None:
    """Why the run's launcher never lets its processes find one another, and which do; or None."""
    if _lets_meet(run):
        return None
    fitting = [
        name
        for name in plugins.names("launchers")
        if _lets_meet(other := dataclasses.replace(run, launcher=name))
        and not plugins.load("launchers", name).unsupported(other)
    ]
    others = [
        name
        for name in plugins.names(engine.kind(run.framework, "strategies"))
        if engine.strategy_of(other := dataclasses.replace(run, strategy=name)).launcher != "none"
        and _lets_meet(other)
    ]
    on = f"{run.nodes} nodes" if run.nodes > 1 else "one node"
    return (
        f"launcher {run.launcher} does not let the processes of strategy {run.strategy} find one "
        f"another; on {on} these do: {', '.join(fitting) or 'none'}. It is for the strategies: "
        f"{', '.join(others)}. Exclude such combinations"
    )


def starts_elsewhere(launcher: str) -> bool:
    """Whether something other than this workflow starts the runs of a launcher."""
    return bool(plugins.constants("launchers", launcher).get("ELSEWHERE"))


def _lets_meet(run):
    meeting = plugins.constants("launchers", run.launcher).get("MEETING")
    return meeting is None or engine.strategy_of(run).launcher in ("none", *meeting)


def of_this_machine(run: Spec) -> str | None:
    """`unsupported` of a launcher that starts processes on this machine only."""
    if run.nodes > 1:
        return (
            f"launcher {run.launcher} starts processes on this machine only, not on "
            f"{run.nodes} nodes"
        )
    return None
