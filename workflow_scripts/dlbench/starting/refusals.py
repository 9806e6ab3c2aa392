"""Jobs that a scheduler refused, with its message: account, quota, a filter of the site.

Snakemake 9.27 loses these messages between its executor and the terminal. So they are printed here
and written to refused.json in the run's folder, where status.py reads them. The next attempt moves
them into its log, and so into the run's record.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dlbench import schedulers
from dlbench.common.files import write_json
from dlbench.log import event_log
from dlbench.records import run_record

FILE = "refused.json"
MAX_LENGTH = 600


def record(run_ids: Iterable[str], scheduler: str, message: str, quietly: bool = False) -> None:
    """Print that a scheduler refused the job of some runs, and write it into their folders.

    Args:
        scheduler: name of a file in schedulers/.
        message: of its submit command.
        quietly: do not print it.
    """
    by = schedulers.display_name(scheduler)
    message = "; ".join(filter(None, map(str.strip, message.splitlines())))[:MAX_LENGTH]
    for run_id in run_ids:
        if not quietly:
            print(f"{run_id}: {by} refused its job: {message}", file=sys.stderr, flush=True)
        place = run_record.folder(run_id)
        times = _read(place).get("times", 0) + 1
        refusal = {"by": by, "message": message, "times": times, "t_utc": event_log.utc_now()}
        write_json(place / FILE, refusal)


def describe(place: Path) -> str:
    """Who refused the job of a run since its last attempt, and why; "" if nobody did.

    Args:
        place: the run's folder.
    """
    refusal = _read(place)
    times = refusal.get("times", 0)
    often = f", {times} times" if times > 1 else ""
    return f"{refusal['by']} refused its job{often}: {refusal['message']}" if refusal else ""


def take(place: Path) -> dict[str, Any] | None:
    """Read and remove the refusal in a run's folder: by, message, times, t_utc; or None."""
    refusal = _read(place)
    (place / FILE).unlink(missing_ok=True)
    return refusal or None


def _read(place):
    try:
        refusal = json.loads((place / FILE).read_text())
        return refusal if {"by", "message", "times"} <= refusal.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}
