"""HTTPS: as HTTP."""

from dlbench.data.transports.http import open

__all__ = ["open"]
