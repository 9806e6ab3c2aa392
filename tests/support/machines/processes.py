"""Processes of this machine."""

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process exists and runs; zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
