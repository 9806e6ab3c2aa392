"""An all-gather among the processes of a run on one node, before a framework starts.

The processes of a node may have different CPU masks and see different GPUs, and a framework lets
them communicate only after it has taken its devices. So each process writes a file beside the log,
which the others read: that works under all launchers and across containers. Each start has a random
number, and a file lists the numbers that its writer has seen of the others. A process proceeds once
all others list its number, so a file of an earlier start is never taken for a new one. The files
are removed once all have read them.
"""

import atexit
import contextlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.machine import hardware

POLL_S = 0.005
PATIENCE_S = 600.0  # until the last one has written: containers start slowly on a full node
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def all_gather(folder: Path, index: int, count: int, facts: Any) -> list[Any]:
    """All-gather plain values over the processes of this run on this node, in their order.

    Args:
        folder: of the run's log, which they share.
        index: of this process among the `count` on this node.
        facts: the values of this process.

    Raises:
        Error: a process did not write its values in time.
    """
    if count == 1:
        return [facts]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f".local-rank-{number}-{_node()}.json" for number in range(count)]
    number, seen, written = uuid.uuid4().hex, dict[str, str](), None
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if written != seen:
            _write(paths[index], {"number": number, "seen": seen, "facts": facts})
            written = dict(seen)
        others = {n: _read(path) for n, path in enumerate(paths) if n != index}
        seen = {str(n): other["number"] for n, other in others.items() if other}
        absent = [
            n for n, other in others.items() if not other or other["seen"].get(str(index)) != number
        ]
        if not absent and written == seen:
            _write(paths[index], {"number": number, "seen": seen, "facts": facts, "done": True})
            atexit.register(_remove, paths)
            return [facts if n == index else others[n]["facts"] for n in range(count)]
        if time.monotonic() > deadline:
            raise Error(
                f"local rank {index} waited {PATIENCE_S:g} s for local rank "
                f"{' and '.join(map(str, absent))} of {count} on {hardware.host()}, in vain: are "
                "the ranks of a node numbered as the run's devices_per_node says, and do all see "
                f"the folder {folder}?"
            )
        time.sleep(POLL_S)


def _remove(paths: list[Path]) -> None:
    """Remove all files, unless a process still waits for one."""
    if all(content and content.get("done") for content in map(_read, paths)):
        for path in paths:
            path.unlink(missing_ok=True)


def _node() -> str:
    """An id of this node, equal in all its containers: ranks of several nodes share a folder."""
    boot = BOOT_ID.read_text().strip()[:8] if BOOT_ID.exists() else "unknown"
    return f"{hardware.short_host(hardware.host())}-{boot}"


def _write(path, content):
    unready = path.with_suffix(".new")
    unready.write_text(json.dumps(content), encoding="utf-8")
    os.replace(unready, path)


def _read(path):
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
