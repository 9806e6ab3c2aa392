"""Logs of programs and libraries that train."""
