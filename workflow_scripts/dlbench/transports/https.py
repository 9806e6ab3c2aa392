"""HTTPS: as HTTP."""

from dlbench.transports.http import open

__all__ = ["open"]
