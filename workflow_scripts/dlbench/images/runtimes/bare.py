"""Bare metal: no container."""

CONTAINED = False
OPTIONS = {}
