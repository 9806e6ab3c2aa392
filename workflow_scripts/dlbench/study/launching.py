"""Which launchers fit a run, by what their files declare (dlbench/starting/launchers)."""

import dataclasses

from dlbench.common import plugins
from dlbench.trainer import cluster, engine
from dlbench.trainer.strategy import Spec


def starts_elsewhere(launcher: str) -> bool:
    """Whether something other than this workflow starts the runs of a launcher."""
    return bool(plugins.constants("launchers", launcher).get("ELSEWHERE"))


def describe_misfit(run: Spec) -> str | None:
    """Why the run's processes cannot find one another under its launcher; None if they can."""
    if _fits(run):
        return None
    launchers = (
        dataclasses.replace(run, launcher=name)
        for name in plugins.names("launchers")
        if cluster.protocol(name) != "none"
    )
    fitting = [
        other.launcher
        for other in launchers
        if _fits(other) and not plugins.load("launchers", other.launcher).unsupported(other)
    ]
    others = [
        name
        for name in plugins.names(engine.plugin_kind(run.framework, "strategies"))
        if engine.strategy_of(other := dataclasses.replace(run, strategy=name)).launcher != "none"
        and _fits(other)
    ]
    on = f"{run.nodes} nodes" if run.nodes > 1 else "one node"
    return (
        f"launcher {run.launcher} does not let the processes of strategy {run.strategy} find one "
        f"another; on {on} these do: {', '.join(fitting) or 'none'}. It is for the strategies: "
        f"{', '.join(others)}. Exclude such combinations"
    )


def _fits(run):
    """Whether the run's strategy understands its launcher's protocol, or needs none.

    A launcher of one process refuses others itself, so that such runs are skipped.
    """
    protocol, strategy = cluster.protocol(run.launcher), engine.strategy_of(run)
    return "none" in (protocol, strategy.launcher) or protocol in strategy.protocols
