"""Bare metal: no container."""

MARKED = False
OPTIONS = {}


def command(run, trainer):
    return list(trainer)


def directive_image(run):
    return None
