"""The record of a run, results/runs/{run_id}/run.json: write it, read it, check it.

A record has what the run was made from (digests of the training code, the data's recipe and the
environment's lock file), its results, and the size and digest of the files beside it; it ends with
a digest of itself. Runs whose record is missing, damaged or made from something else are trained
again, and no others. Snakemake's metadata plays no part in that, so copies and fresh clones keep
their runs.

`check` is of the values that are read of records of others: whoever makes a record can also make
its digest, so its values may be of any kind.
"""

import contextlib
import json
import shutil
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common.files import json_digest, require_file, sha256, write_json
from dlbench.log import event_log
from dlbench.log.event_fields import DATE, FACTS, METRIC_NAME, NUMBER, PLAIN, TEXT, Kind
from dlbench.log.event_fields import TEXTS as TEXT_LIST
from dlbench.study.runs import Run, is_sentinel

RECORD_VERSION = 1
# Of what a record says of its logs. If it changes, all logs are parsed again.
PARSER_VERSION = 15
KEYS = (
    "record_version",
    "parser_version",
    "run_id",
    "spec",
    "status",
    "message",
    "made_from",
    "log_sha256",
    "summary",
    "provenance",
    "files",
)
KINDS = {
    "record_version": int,
    "parser_version": int,
    "run_id": str,
    "spec": dict,
    "status": str,
    "message": str,
    "made_from": dict,
    "log_sha256": str,
    "summary": dict,
    "provenance": dict,
    "files": dict,
}
RESULTS = Path("results")
RECORDED = RESULTS / "recorded"  # hard links, see starting/fates.py
MAX_FILES_NAMED = 3  # in a reason


class RecordError(Error):
    """A record is not valid; the message says why."""


class Damaged(RecordError):
    """Files in records were changed or lost. `runs` is {run id: reason}."""

    def __init__(self, runs: dict[str, str]) -> None:
        super().__init__("\n".join(runs.values()))
        self.runs = runs


class NewerVersion(RecordError):
    """A newer dlbench made the record."""


def folder(run_id: str, results: Path = RESULTS) -> Path:
    """The folder of a run in the results."""
    return results.joinpath("runs", run_id)


def write(path: str | Path, content: dict[str, Any], files: Iterable[Path]) -> None:
    """Complete a record with the digests of the files beside it and its own, and write it."""
    path = Path(path)
    content = {
        "record_version": RECORD_VERSION,
        "parser_version": PARSER_VERSION,
        **content,
        "files": files_of(files),
    }
    write_json(path, {**content, "record_sha256": digest(content)})


def files_of(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """The `files` of a record: {name: its bytes and sha256}."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths}


def read(path: str | Path) -> dict[str, Any]:
    """The content of a record.

    Raises RecordError: it is missing, damaged, or of a newer version.
    """
    try:
        require_file(path)
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: there is no record") from None
    return parsed(content, path)


def parsed(content: bytes, path: str | Path) -> dict[str, Any]:
    """Parse and check the content of a record. Raises as `read` does; `path` is for messages."""
    try:
        record = json.loads(content)
        claimed = record.pop("record_sha256")
        if missing := [key for key in KEYS if key not in record]:
            raise KeyError(*missing)
        for key, kind in KINDS.items():
            if type(record[key]) is not kind:
                raise TypeError(f"{key} is no {kind.__name__}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: not a whole record ({error!r})") from error
    if claimed != digest(record):
        raise RecordError(f"{path}: changed after it was written")
    if record["record_version"] > RECORD_VERSION:
        raise NewerVersion(
            f"{path}: version {record['record_version']}, made by a newer dlbench; "
            f"this one reads up to {RECORD_VERSION}"
        )
    return record


def read_whole(place: Path, run_id: str | None = None, content: bool = False) -> dict[str, Any]:
    """The record in a run's folder, with the files that it names as it says (`check_files`).

    `run_id`: of the run that it must be of, if that is known. Raises RecordError.
    """
    record = read(place / "run.json")
    if run_id not in (None, record["run_id"]):
        raise RecordError(f"{place / 'run.json'}: it is the record of {record['run_id']}")
    check_files(place, record, content)
    return record


def check_files(place: Path, record: dict[str, Any], content: bool = False) -> None:
    """Check the sizes of the files in a record.

    `content`: also check their digests, which reads them whole. Raises RecordError: one is missing
    or differs.
    """
    for name, expected in record["files"].items():
        path = place / name
        if "/" in name or name.startswith("."):
            raise RecordError(f"{place / 'run.json'}: it names files outside of its folder")
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            raise RecordError(f"{path}: missing, though the run's record names it") from None
        if size_bytes != expected["bytes"]:
            raise RecordError(f"{path}: expected {expected['bytes']} bytes, found {size_bytes}")
        if content and sha256(path) != expected["sha256"]:
            raise RecordError(f"{path}: changed after its record was written")


def ids_with_status(statuses: Container[str], text: str = "") -> list[str]:
    """The ids of all runs in the results whose record has one of these statuses.

    Sentinels are left out, since they are never trained again. `text`: must occur in the message,
    in capitals or not.
    """
    run_ids = []
    for path in sorted((RESULTS / "runs").glob("*/run.json")):
        if is_sentinel(path.parent.name):
            continue
        with contextlib.suppress(RecordError):  # without a record it is trained again anyway
            record = read(path)
            if record["status"] in statuses and text.lower() in record["message"].lower():
                run_ids.append(path.parent.name)
    return run_ids


def forget(run_id: str) -> None:
    """Remove the record of a run, so that it is trained again; move its logs aside."""
    place, second = folder(run_id), RECORDED / run_id
    if place.is_dir() and not (place / "train.jsonl").exists():
        with contextlib.suppress(OSError):  # there is none
            (second / "train.jsonl").rename(place / "train.jsonl")
    forget_in(place)
    shutil.rmtree(second, ignore_errors=True)


def forget_in(place: Path) -> None:
    """Remove the record in a folder and move the log aside."""
    (place / "run.json").unlink(missing_ok=True)
    log = place / "train.jsonl"
    if log.is_file():
        event_log.keep_aside(log)


def digest(content: dict[str, Any]) -> str:
    """The digest of a record's content, its last value."""
    return json_digest(content)


_ANY = Kind("anything", lambda value: True)
TEXTS = Kind(
    "a mapping to texts",
    lambda value: type(value) is dict and all(type(one) is str for one in value.values()),
)
_LINK = Kind(
    "two GPUs and their link",
    lambda value: type(value) is list and [*map(type, value[:2])] == [int, int],
)
_METRIC = Kind(
    "a metric with name, value, unit and direction",
    lambda one: (
        type(one) is dict
        and METRIC_NAME.accepts(one.get("name"))
        and NUMBER.accepts(one.get("value"))
        and all(type(one.get(name) or "") is str for name in ("unit", "better"))
    ),
)
_FILE = {"sha256": TEXT}
_XID = {"host": TEXT, "gpu": TEXT, "xid": NUMBER, "message": TEXT, "times": NUMBER}
_HARDWARE = {
    "cpu": {"model": TEXT, "vendor": TEXT, "governors": TEXT_LIST, "frequency_driver": TEXT_LIST,
            "numa": [FACTS]},
    "gpus": {"kinds": [{"name": TEXT}]},
    "memory": FACTS, "system": FACTS, "network": [FACTS], "infiniband": [FACTS],
}  # fmt: skip
RECORD = {
    "made_from": {"code": TEXT, "environment": TEXT},
    "summary": {
        "started_at": DATE, "disturbed": TEXT, "contradicts": TEXT, "metrics": [_METRIC],
        **dict.fromkeys(("images_per_second", "step_time_mean_s", "duration_s"), NUMBER),
    },
    "provenance": {
        **dict.fromkeys(("device_model", "device_kind", "host", "study", "git_commit"), TEXT),
        **dict.fromkeys(("data_sha256", "release"), TEXT),
        "session": {"id": TEXT}, "container": {"digest": TEXT, "start": TEXT},
        "site": {"name": TEXT, "storage": TEXT, "interconnect": TEXT}, "versions": {"*": TEXT},
        "user_files": {"model": _FILE, "trainer": _FILE}, "modules": TEXT_LIST,
        "xids": [_XID], "hosts": TEXT_LIST, "hardware": {"*": _HARDWARE},
        "software": {"*": FACTS}, **dict.fromkeys(("libraries", "variables", "limits"), FACTS),
        "present": {"memory_bytes": NUMBER, "gpus": [PLAIN], "gpu_links": [_LINK]},
    },
}  # fmt: skip


def check(record: Mapping[str, Any]) -> None:
    """Check the values of a record that are read of others.

    Raises RecordError: one is not as dlbench writes it.
    """
    reason = wrong(record, RECORD)
    try:
        json.dumps(record, ensure_ascii=False).encode()
        Run.from_spec(record["spec"])
    except UnicodeEncodeError:
        reason = "expected texts of whole characters, found half of one"
    except Error as error:
        reason = str(error)
    if reason:
        raise RecordError(f"{record['run_id']}: {reason}")


def wrong(value: Any, shape: Any, where: str = "") -> str:
    """Which part of a value is not of a shape, what was expected and found; "" if all are.

    `shape`: a Kind, [the shape of each], or {name: shape} with "*" for all other names; a null in a
    mapping is as no name.
    """
    if isinstance(shape, Kind):
        return "" if shape.accepts(value) else _message(where, shape.label, value)
    if type(value) is not type(shape):
        return _message(where, "a list" if isinstance(shape, list) else "a mapping", value)
    if isinstance(shape, list):
        parts = [(f"{where}[{at}]", one, shape[0]) for at, one in enumerate(value)]
    else:
        parts = [
            (f"{where}.{name}".strip("."), one, shape.get(name, shape.get("*", _ANY)))
            for name, one in value.items()
            if one is not None
        ]
    return next(filter(None, (wrong(one, kind, at) for at, one, kind in parts)), "")


def _message(where, label, value):
    return f"expected {where} to be {label}, found {value!r:.80}"
