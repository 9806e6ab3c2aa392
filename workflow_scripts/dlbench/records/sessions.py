"""Sessions: each start of the workflow that trains is one, and the log of each run has its id.

The process that the user starts makes the id. The first job writes the session's file, for which
all other jobs wait. Jobs on other nodes read the id from it, so that all runs are of one session.
Measurements of two sessions may differ because the machine's other users, temperature or software
changed in between. dlbench/analysis/drift.py estimates by how much.

Sentinels are repeats of finished runs in a later session. Needs the standard library only.
"""

import contextlib
import json
import os
import platform
import re
import secrets
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases
from dlbench.common.files import read_json, write_json
from dlbench.log import event_fields, event_log
from dlbench.records import run_record
from dlbench.study.runs import SENTINEL_ID, Run

FOLDER = Path("results/sessions")
CURRENT = "current.json"
KEYS = ("id", "started_at", "host")
# How verdicts of the table of drift are put into words, where these differ.
DRIFT_VERDICTS = {"none": "within the margin"}


def new() -> dict[str, str]:
    """Make a new session: `id`, `started_at` (UTC) and `host`. Nothing is written."""
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
    """The list of existing environments, data and images that are made again in a session."""
    return FOLDER / f"{session_id}.remade.json"


def start(session: Mapping[str, str], sentinels: Sequence[dict[str, Any]] = ()) -> None:
    """Write the file of a session, and make it the current one.

    Args:
        session: as `new` returns it.
        sentinels: values of its sentinels, for its jobs.

    Raises Error: it cannot be written.
    """
    content = {**session, "sentinels": list(sentinels)}
    try:
        for path in (FOLDER / CURRENT, file(session["id"])):
            write_json(path, content)
    except OSError as error:
        raise Error(f"{FOLDER}: nothing can be written: {error.strerror}") from error


def lists_of_remade() -> dict[str, str]:
    """{path: the last list of remade files that has it}, for all sessions in this folder."""
    last: dict[str, str] = {}
    for listing in sorted(FOLDER.glob("*.remade.json")):  # by date
        last |= dict.fromkeys((read_json(listing) or {}).get("paths", ()), str(listing))
    return last


def current() -> dict[str, str] | None:
    """The last session that was started in this folder; None if there is none."""
    with contextlib.suppress(KeyError):
        session = _read()
        return {key: str(session[key]) for key in KEYS}
    return None


def busy_marker(session: dict[str, str] | None) -> Path | None:
    """The path of a file that exists while others keep this node busy; None without a session."""
    return FOLDER / f"{session['id']}.busy.{platform.node()}" if session else None


def sentinels() -> list[dict[str, Any]]:
    """The values of the current session's sentinels, as given to `start`."""
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

    Runs of unknown session count as one session for each study, site and kind of log.
    """
    session = row.get("session")
    if session and session == session:  # no nan, as pandas has it
        return session
    return (None, *(row.get(name) for name in ("study", "site", "timing_source")))


def describe(sessions: int, sentinels: int, verdicts: Iterable[str]) -> str:
    """A phrase with the number of sessions and sentinels, and the drift between sessions.

    >>> describe(2, 3, ["none"])
    '2, with 3 sentinels; drift between sessions: within the margin in 1 of 1 comparison'
    >>> describe(1, 0, [])
    '1'

    `verdicts`: of the table of drift, one a pair of sessions and device shape.
    """
    counts = Counter(verdicts)
    text = f"{sessions}, with {phrases.counted(sentinels, 'sentinel')}"
    judged = ", ".join(
        f"{DRIFT_VERDICTS.get(verdict, verdict)} in {count}"
        for verdict, count in sorted(counts.items())
    )
    if sessions < 2 and not sentinels:
        return str(sessions)
    if not counts:
        return f"{text}; drift between sessions: not known"
    compared = phrases.counted(counts.total(), "comparison")
    return f"{text}; drift between sessions: {judged} of {compared}"


def measured_apart(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two sides were measured apart: no session has runs of both.

    `a`, `b`: rows of the runs table; if a side has none, the result is False.
    """
    return bool(a and b) and set(map(session_of, a)).isdisjoint(map(session_of, b))


def sentinels_of(
    runs: Iterable[Run], ids: Iterable[str] | None = None, results: Path = run_record.RESULTS
) -> dict[str, Run]:
    """{id: Run} of the sentinels that repeat some runs' combinations.

    Args:
        ids: candidates; None: all folders of the results.
        results: folder of all results.
    """
    matches = list(
        existing_ids(results) if ids is None else filter(None, map(SENTINEL_ID.fullmatch, ids))
    )
    known: dict[str, dict[Run, Run]] = {}
    for run in runs if matches else ():
        prefix = run.id.rsplit("-", 2)[0]  # of the ids of its sentinels
        known.setdefault(prefix, {})[replace(run, repeat=1, sentinel=0)] = run
    made = {}
    for match in matches:
        numbers: dict[str, Any] = {name: int(match[name]) for name in ("repeat", "sentinel")}
        for run in known.get(match["prefix"], {}).values():
            sentinel = replace(run, **numbers)
            if sentinel.id == match[0]:
                made[sentinel.id] = sentinel
    return made


def existing_ids(results: Path = run_record.RESULTS) -> Iterator[re.Match[str]]:
    """A match of SENTINEL_ID for each sentinel in the results, finished or not."""
    with contextlib.suppress(OSError):
        names = os.listdir(results / "runs")
        yield from filter(None, map(SENTINEL_ID.fullmatch, names))
