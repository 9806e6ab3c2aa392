"""HTTPS: as HTTP."""

__all__ = ["open"]
