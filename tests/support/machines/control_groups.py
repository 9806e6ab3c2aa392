"""Control groups with a quota of CPU time, if this machine lets tests create them."""

import contextlib
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 20_000


def place():
    """The cgroup folder (version 1 or 2) in which groups with a quota can be created, or None."""
    for folder, quota in ((GROUPS / "cpu", "cpu.cfs_quota_us"), (GROUPS, "cpu.max")):
        with contextlib.suppress(OSError):
            trial = folder / f"dlbench-trial-{os.getpid()}"
            trial.mkdir()
            has_quota = (trial / quota).exists()
            trial.rmdir()
            if has_quota:
                return folder
    return None


@contextlib.contextmanager
def with_quota(cores):
    """A new group whose processes have the CPU time of so many cores; its folder.

    Write the number of a process into its `cgroup.procs`. All must have ended at the end.
    """
    group = place() / f"dlbench-test-{os.getpid()}"
    group.mkdir()
    try:
        set_quota(group, cores)
        yield group
    finally:
        group.rmdir()


def set_quota(group, cores):
    """Set the quota of a group to the CPU time of a number of cores."""
    quota_us = round(cores * PERIOD_US)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))


def joining(group, command):
    script = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
    return ["sh", "-c", script, "sh", str(group), *map(str, command)]
