"""No launcher: the trainer is one process, started as it is."""

from dlbench import plugins


def unsupported(run):
    strategy = plugins.load("strategies", run.strategy).Strategy
    if run.nodes * strategy.processes_per_node(run) > 1:
        return f"strategy {run.strategy} on {run.devices} devices needs a launcher, found none"
    return None


def command(run, trainer, python):
    return list(trainer)
