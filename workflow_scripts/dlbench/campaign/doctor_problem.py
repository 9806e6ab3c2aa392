"""What the doctor finds wrong, and a file put aside."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlbench.records import run_record

ASIDE = "aside"
STARTED = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


@dataclass(frozen=True)
class Finding:
    """One thing that is amiss.

    `where` is relative to the folder of the workflow; `repair` says what to do, or what --repair
    does where there is `mend`, a function without arguments.
    """

    kind: str
    where: str
    what: str
    why: str
    repair: str
    mend: Callable | None = None

    def line(self):
        """For people, on one line: nothing that a file name or a log has in it breaks it."""
        words = f"{self.kind}: {self.where}: {self.what}; {self.why}; repair: {self.repair}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)

    def plain(self):
        names = ("kind", "where", "what", "why", "repair")
        return {name: getattr(self, name) for name in names} | {"repairable": bool(self.mend)}


def put_aside(path):
    """Move a file or folder into results/aside, where it keeps its path. Returns where it is."""
    path = Path(path)
    target = run_record.RESULTS / ASIDE / STARTED / str(path).lstrip("/").replace("..", "_")
    while os.path.lexists(target):
        target = target.with_name(f"{target.name}.again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.move(path, target)  # the results may be a link to another disk
    return target
