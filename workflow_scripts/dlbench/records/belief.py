"""Check that logs belong to a run and are unchanged.

- Their run_start has what was trained, and the number of the rank or copy.
- The run's record has their digests, and a log has that of its trace. These digests count even if
  the record is damaged or was made by another version of the parser.

Logs that fail one of these checks are damaged: the damage is reported, the logs are moved aside,
and the run is trained again.

Needs the standard library only.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common.files import sha256
from dlbench.log import event_fields, event_log
from dlbench.study.runs import Run

_FILE_DIGEST = re.compile(
    rb'"(train[^"/]*\.jsonl)":\s*\{\s*"bytes":\s*\d+,\s*"sha256":\s*"([0-9a-f]{64})"'
)
_LOG_DIGEST = re.compile(rb'"log_sha256":\s*"([0-9a-f]{64})"')
_RUN_ID = re.compile(rb'"run_id":\s*("[^"]*")')


def describe_damage(run: Run, log: Path, whole: bool = True) -> str:
    """What is wrong with the logs of a run that ended; "" if nothing is.

    Without this check, a log that a kill or a full disk cut short would count as a failed run.

    Args:
        log: path of rank 0's log; those of the other ranks are beside it.
        whole: read whole logs; False: only up to their run_start.

    Raises LogError: one is no event log.
    """
    end = event_log.final_run_end(log)
    well = end is not None and end["status"] == "ok"
    starts, profile = {}, {}
    for path in event_log.rank_paths(log):
        for event in event_log.read(path):
            if event["event"] == "run_start":
                starts[path] = event
                if not whole:
                    break
            elif event["event"] == "profile":
                profile = event
        if well and not event_log.last_run_end(path):
            return f"{path.name} stops without an end"
    devices = sum(len(start.get("devices") or ()) for start in starts.values())
    expected = run.devices * run.copies_per_node
    if well and not run.is_external and devices != expected:
        return f"logs of {expected} devices expected, found those of {devices}"
    if _lacks_trace(log, profile):
        return f"{event_log.TRACE} is missing, or is not the one that {log.name} names"
    return describe_other_run(run, starts)


def files(logs: Sequence[Any]) -> list[Path]:
    """The files that a run's record lists: its logs, and the trace of its profile.

    `logs`: the parse_run.RankLog of each rank or copy. Raises LogError: the trace is missing, or is
    not the one that the log names.
    """
    paths, profile = [log.path for log in logs], logs[0].profile
    if _lacks_trace(paths[0], profile):
        trace = paths[0].with_name(event_log.TRACE)
        raise event_fields.LogError(f"{trace}: missing, or not the one that {paths[0].name} names")
    return [*paths, *(event_log.traces(paths[0]) if profile.get("sha256") else ())]


def _lacks_trace(log, profile):
    """Whether the trace beside a log is missing or has another digest than its event `profile`."""
    digest = profile.get("sha256")
    return bool(digest) and [sha256(trace) for trace in event_log.traces(log)] != [digest]


def describe_other_run(run: Run, starts: dict[Path, dict[str, Any]]) -> str:
    """How logs differ from those of this run: run, rank or number of processes; "" if not at all.

    `starts`: the run_start of each log that has one, by its path.
    """
    sizes = set()
    for path, start in starts.items():
        number, copies = event_log.rank_of(path), run.copies_per_node > 1
        try:
            logged = type(run).from_spec(start["spec"])
        except Error as error:
            return f"{path.name}: {error}"
        if logged != run:
            return f"{path.name} is the log of {logged.id}"
        expected = {"rank": 0 if copies else number, "copy": number if copies else 0}
        for name, value in expected.items():
            if start.get(name, value) != value:
                return f"{path.name} is the log of {name} {start[name]}, expected {value}"
        sizes.add(start.get("size"))
    if len(sizes) > 1:
        return f"its logs are of {' and of '.join(sorted(map(str, sizes)))} processes"
    (size,) = sizes or {None}
    if size is not None and size < (1 if run.copies_per_node > 1 else len(starts)):
        processes = "1 process" if size == 1 else f"{size} processes"
        return f"its logs are of {processes}, found {len(starts)}"
    return ""


def describe_changed_log(run: Run, place: Path) -> str:
    """Which log of a run has another digest than its record says; "" if none has.

    The record is used even if something else is wrong with it. Raises OSError: a log cannot be
    read.
    """
    for name, digests in _digests_by_name(run, place / "run.json").items():
        if not (place / name).is_file():
            return f"{name} is missing, though the record names it"
        if sha256(place / name) not in digests:
            return f"{name} is not the log that the record was made from: its digest is another"
    return ""


def _digests_by_name(run, path):
    """{name: digests} of the logs in a record, which may be damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return {}
    recorded_id = _RUN_ID.search(content)
    if recorded_id and recorded_id[1] != json.dumps(run.id).encode():
        return {}
    digests_by_name = {}
    for digest in _LOG_DIGEST.findall(content):
        digests_by_name.setdefault("train.jsonl", set()).add(digest.decode())
    for name, digest in _FILE_DIGEST.findall(content):
        digests_by_name.setdefault(name.decode(), set()).add(digest.decode())
    return digests_by_name
