"""The provenance of a run from its logs: where, on what devices and by what it was trained.

Needs the standard library only: a record is written where the run was trained.
"""

from collections.abc import Sequence
from typing import Any

from dlbench.machine import binding, fingerprints
from dlbench.machine.limits import OF_GROUPS

OF_LAUNCH = (
    "command",
    "container",
    "study",
    "site",
    "job",
    "modules",
    "git_commit",
    "git_dirty",
    "user_files",
    "network",
    "refused",
    "session",
)
OF_START = (
    "device_model",
    "devices",
    "cores",
    "host",
    "platform",
    "versions",
    "strategy_settings",
    "load_average",
    "parameters",
    "data_sha256",
    "item_shape",
    "attention",
)
OF_RESUME = ("step", "t_utc", "host", "device_model")


def from_logs(logs: Sequence[Any]) -> dict[str, Any]:
    """The `provenance` of a record.

    Args:
        logs: the parse_run.RankLog of each rank or copy.
    """
    start, launch, imported = logs[0].start, logs[0].launch, logs[0].imported
    return {
        **{key: launch.get(key) for key in OF_LAUNCH},
        # Not among the fields that trainers check, whose code is part of each run.
        "release": release if isinstance(release := launch.get("release"), str) else None,
        "time_limit_s": (logs[0].end or {}).get("time_limit_s"),  # at which it was stopped
        # Whether it failed for a reason that may pass, and measured nothing.
        "before_first_step": bool((logs[0].end or {}).get("before_first_step")),
        "containment": [log.begin.get("containment") for log in logs],
        "imported": imported and {key: imported[key] for key in ("kind", "notes")},
        **{key: start.get(key) for key in OF_START},
        "bindings": binding.from_starts([log.start for log in logs]),
        "hosts": list(dict.fromkeys(log.start["host"] for log in logs if "host" in log.start)),
        "resumed": [{key: event.get(key) for key in OF_RESUME} for event in logs[0].resumes],
        **_machines(logs),
    }


def _machines(logs):
    """The facts of all ranks' machines; limits that a container hides are taken from the launch."""
    facts = fingerprints.provenance([log.machines for log in logs])
    outside = logs[0].launch.get("limits")
    if facts and outside:
        inside = facts["limits"]
        added = {name: outside.get(name) for name in OF_GROUPS if inside.get(name) is None}
        known = [f"limits.{name}" for name, value in added.items() if value is not None]
        facts["limits"] = inside | added
        facts["unknown"] = {k: v for k, v in facts["unknown"].items() if k not in known}
    return facts
