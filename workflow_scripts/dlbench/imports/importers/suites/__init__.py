"""Logs of benchmark suites."""
