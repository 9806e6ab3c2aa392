"""A Problem that the doctor reports, and moving a file aside."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.records import run_record

ASIDE = "aside"
STARTED = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


@dataclass(frozen=True)
class Problem:
    """A problem and its repair.

    Attributes:
        where: a path relative to the folder of the workflow.
        what: what is wrong.
        why: why that matters.
        repair: what to do, or what --repair does if there is a `repair_action`.
        repair_action: repairs it; None if only a person can.
    """

    kind: str
    where: str
    what: str
    why: str
    repair: str
    repair_action: Callable[[], object] | None = None

    def line(self) -> str:
        """One line for people; control characters of file names and logs are escaped."""
        text = f"{self.kind}: {self.where}: {self.what}; {self.why}; repair: {self.repair}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        names = ("kind", "where", "what", "why", "repair")
        return {name: getattr(self, name) for name in names} | {
            "repairable": bool(self.repair_action)
        }


def put_all_aside(paths: Iterable[Path]) -> None:
    """Move files or folders into results/aside; see `put_aside`."""
    for path in paths:
        put_aside(path)


def put_aside(path: str | Path) -> Path:
    """Move a file or folder to its path within results/aside. Returns the new path."""
    path = Path(path)
    target = run_record.RESULTS / ASIDE / STARTED / str(path).lstrip("/").replace("..", "_")
    while os.path.lexists(target):
        target = target.with_name(f"{target.name}.again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.move(path, target)  # the results may be a link to another disk
    return target
