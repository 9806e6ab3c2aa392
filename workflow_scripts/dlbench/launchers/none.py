"""No launcher: the trainer is one process, started as it is."""

from dlbench.common import plugins

TAKES_TASKS = False


def unsupported(run):
    strategy = plugins.load("strategies", run.strategy).Strategy
    if strategy.launcher != "none":
        return f"strategy {run.strategy} needs a launcher such as {strategy.launcher}, found none"
    return None


def command(run, trainer, environment):
    return list(trainer)
