"""Sessions: each start of the workflow that trains is one, and each run's log says which.

The process that a user starts gives it an id; its first job writes its file, for which all others
wait. Jobs on other nodes read there which session it is, so that their runs are of one session.
Measurements of two sessions may differ by whatever changed in between: the machine's other users,
its temperature, its software. dlbench/analysis/drift.py estimates by how much.

Needs the standard library only.
"""

import contextlib
import json
import os
import platform
import secrets
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases
from dlbench.common.files import read_json, write_json
from dlbench.log import event_fields, event_log

FOLDER = Path("results/sessions")
CURRENT = "current.json"
KEYS = ("id", "started_at", "host")


def new() -> dict[str, str]:
    """A session that is about to start: `id`, `started_at` (UTC) and `host`. Nothing is written."""
    now = event_log.utc_now()
    date = datetime.strptime(now, event_fields.UTC_FORMAT)
    return {
        "id": f"{date:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        "started_at": now,
        "host": platform.node(),
    }


def file(session_id: str) -> Path:
    """The file of a session, which is written as it starts."""
    return FOLDER / f"{session_id}.json"


def done_file(session_id: str) -> Path:
    """The file that exists once all runs of a session have their records."""
    return FOLDER / f"{session_id}.done"


def remade_file(session_id: str) -> Path:
    """The list of what stood at its start and is made again in it: environments, data, images."""
    return FOLDER / f"{session_id}.remade.json"


def start(session: Mapping[str, str], sentinels: Sequence[dict[str, Any]] = ()) -> None:
    """Write the file of a session, and make it the current one.

    Args:
        session: as `new` returns it.
        sentinels: values of the runs that it repeats, which its jobs must know.

    Raises:
        Error: it cannot be written.
    """
    content = {**session, "sentinels": list(sentinels)}
    try:
        for path in (FOLDER / CURRENT, file(session["id"])):
            write_json(path, content)
    except OSError as error:
        raise Error(f"{FOLDER}: nothing can be written: {error.strerror}") from error


def lists_of_remade() -> dict[str, str]:
    """{path: the last list of files that were made again which names it} in this folder."""
    last: dict[str, str] = {}
    for listing in sorted(FOLDER.glob("*.remade.json")):  # by date
        last |= dict.fromkeys((read_json(listing) or {}).get("paths", ()), str(listing))
    return last


def current() -> dict[str, str] | None:
    """The session that was started last in this folder; None if no session can be read."""
    with contextlib.suppress(KeyError):
        session = _read()
        return {key: str(session[key]) for key in KEYS}
    return None


def busy_marker(session: dict[str, str] | None) -> Path | None:
    """The file that exists while others keep this node busy; None if there is no session."""
    return FOLDER / f"{session['id']}.busy.{platform.node()}" if session else None


def sentinels() -> list[dict[str, Any]]:
    """The values of the runs that the current session repeats, as `start` was given them."""
    return _read().get("sentinels", [])


def _read():
    with contextlib.suppress(OSError, ValueError):
        # Listed first: a node's cache of a shared folder may have the file of an earlier session.
        os.listdir(FOLDER)
        content = json.loads((FOLDER / CURRENT).read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def session_of(row: Mapping[str, Any]) -> Hashable:
    """The session of a row of the runs table.

    Runs whose session is not known are of one session, each study, site and kind of log of its own.
    """
    session = row.get("session")
    if session and session == session:  # no nan, as pandas has it
        return session
    return (None, *(row.get(name) for name in ("study", "site", "timing_source")))


def describe(sessions: int, sentinels: int, verdicts: Iterable[str]) -> str:
    """In how many sessions something was measured, and what is known of the drift between them.

    >>> describe(3, 4, ["none", "slower", "none"])
    '3, with 4 sentinels; drift between sessions, by number of devices: none in 2, slower in 1'
    >>> describe(1, 0, [])
    '1'

    Args:
        verdicts: of the table of drift, one a pair of sessions and device shape.
    """
    counts = Counter(verdicts)
    text = f"{sessions}, with {phrases.counted(sentinels, 'sentinel')}"
    judged = ", ".join(f"{verdict} in {count}" for verdict, count in sorted(counts.items()))
    if sessions < 2 and not sentinels:
        return str(sessions)
    return f"{text}; drift between sessions, by number of devices: {judged or 'not known'}"


def measured_apart(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two sides were measured apart: no session has runs of both.

    Args:
        a, b: rows of the runs table; a side without any is apart from none.
    """
    return bool(a and b) and set(map(session_of, a)).isdisjoint(map(session_of, b))
