"""Launchers, one file each: what starts the processes of a run.

A launcher file defines:
    TAKES_TASKS: whether its processes are tasks of the scheduler's job; if not, it starts all
        processes of a node from one task.
    LOOPBACK_SUFFICES (optional): whether processes on one node need no network but the loopback
        interface. If it takes tasks, this holds outside of jobs only.
    RENDEZVOUS (optional): the strategies whose processes find one another under it, each given by
        its default launcher; all strategies, if left out.
    LISTENS_BY_NAME (optional): whether its processes listen at the address of the machine's own
        name, and abort if it has none.
    ELSEWHERE (optional): whether something other than this workflow starts its runs.
    RANKS (optional): names of the variables with the rank of a process, and with its number on its
        node, if it gives processes such.
    OPTIONS_SET (optional): the options that it sets itself, if it takes `launcher_options`.
    unsupported(run): why it cannot start a run, or None.
    command(run, trainer, environment): the command line, a list of strings, that starts the
        command `trainer` once per process. Programs are taken from the bin/ of the folder
        `environment`; from PATH if it is None.
Nothing here starts anything. The room imports trainer, schedulers and common.
"""

import dataclasses
import json
import os
from collections.abc import Mapping

from dlbench import schedulers
from dlbench.common import assignments, plugins
from dlbench.trainer import cluster, engine
from dlbench.trainer.strategy import Spec


def options(run: Spec) -> dict[str, str]:
    """The `launcher_options` of a run."""
    return assignments.parse(run.launcher_options)


def first_node(environ: Mapping[str, str] = os.environ) -> str | None:
    """The address of the first node of the scheduler's job; None outside of jobs.

    Args:
        environ: with the variables of the scheduler's job and the addresses of its nodes, if they
            are not reached by their names (start_command.address_variables).
    """
    job = schedulers.job(environ)
    names = plugins.load("schedulers", job[0]).hosts(environ) if job else []
    known = json.loads(environ.get(cluster.NODE_ADDRESSES, "{}"))
    return known.get(names[0], names[0]) if names else None


def describe_misfit(run: Spec) -> str | None:
    """Why the run's processes cannot find one another under its launcher; None if they can."""
    if _supports_rendezvous(run):
        return None
    fitting = [
        name
        for name in plugins.names("launchers")
        if _supports_rendezvous(other := dataclasses.replace(run, launcher=name))
        and not plugins.load("launchers", name).unsupported(other)
    ]
    others = [
        name
        for name in plugins.names(engine.plugin_kind(run.framework, "strategies"))
        if engine.strategy_of(other := dataclasses.replace(run, strategy=name)).launcher != "none"
        and _supports_rendezvous(other)
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


def _supports_rendezvous(run):
    supported = plugins.constants("launchers", run.launcher).get("RENDEZVOUS")
    return supported is None or engine.strategy_of(run).launcher in ("none", *supported)


def unsupported_across_nodes(run: Spec) -> str | None:
    """Why a launcher that starts processes on this machine only cannot start a run; or None."""
    if run.nodes > 1:
        return (
            f"launcher {run.launcher} starts processes on this machine only, not on "
            f"{run.nodes} nodes"
        )
    return None
