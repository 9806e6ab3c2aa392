"""The record of a run, results/runs/{run_id}/run.json, and whether it is believed.

A record says what the run was made from (digests of the training code, the
data's recipe and the environment's lock file), what came out, and the size and
digest of the files beside it; it ends with a digest of itself. A run whose
record is missing, damaged or made from something else is trained again, and no
other. Snakemake's own memory takes no part in that, so copies and fresh clones
keep their runs.
"""

import contextlib
import functools
import hashlib
import itertools
import json
from enum import Enum
from pathlib import Path

from dlbench import Error, belief, code, eventlog, external, images, plugins, site
from dlbench.files import sha256, write_json
from dlbench.runs import PLUGIN_FOLDERS, is_sentinel

RECORD_VERSION = 1
PARSER_VERSION = 6  # of the meaning of a record's numbers; another one has all logs read again
KEYS = (
    "record_version", "parser_version", "run_id", "spec", "status", "message", "made_from",
    "log_sha256", "summary", "provenance", "files",
)  # fmt: skip
KINDS = {
    "record_version": int, "parser_version": int, "run_id": str, "spec": dict, "status": str,
    "message": str, "made_from": dict, "log_sha256": str, "summary": dict, "provenance": dict,
    "files": dict,
}  # fmt: skip
RESULTS = Path("results")
MOST_FILES = 3  # that a reason names


class RecordError(Error):
    """A record that is not believed; the message says why."""


class Damaged(RecordError):
    """Files beside records that stood are not those that they name: `runs` maps ids to why."""

    def __init__(self, runs):
        super().__init__("\n".join(runs.values()))
        self.runs = runs


class NewerVersion(RecordError):
    """A record that a newer dlbench made."""


class State(Enum):
    """What is to be done for a run: nothing, read its log, or train it.

    It is trained where it is missing, or stale, or damaged: the logs that are there are then put
    aside, for they are not what they should be.
    """

    CURRENT = "current"
    UNREAD = "unread"
    MISSING = "missing"
    STALE = "stale"
    DAMAGED = "damaged"


def folder(run_id):
    return RESULTS / "runs" / run_id


def training_code(run):
    """The files of ours that training this run executes, relative to the workflow's folder."""
    if external.is_external(run):
        return []
    return list(_training_code(*(getattr(run, key) for key in PLUGIN_FOLDERS)))


def data_code(dataset):
    """The files that fetching and converting a dataset executes."""
    return code.files("convert_dataset.py", plugins.path("datasets", dataset))


def made_from(run, adopted=None, image_settings=None):
    """Digests of what a run's result depends on beside its own values.

    Those of an image that is not there are None: `image`, what it is made from, where its source
    is not on this machine, and `environment`, its digest, where it is not made yet.

    Args:
        adopted: digests of datasets that others converted, by name.
        image_settings: the config's `images`.
    """
    if external.is_external(run):
        code_digest = external.digest(run.trainer)
    else:
        code_digest = _code_digest(*(getattr(run, key) for key in PLUGIN_FOLDERS))
    data = (adopted or {}).get(run.dataset, recipe(run.dataset)) if has_data(run) else ""
    found = {"code": code_digest, "data": data}
    if not plugins.load("runtimes", run.runtime).CONTAINED:
        lock = _lock_digest(run.environment) if has_environment(run) else ""
        return {**found, "environment": lock}
    settings = images.settings(run.environment, image_settings or {})
    identity, digest = _image(run.environment, json.dumps(settings, sort_keys=True))
    return {**found, "image": identity, "environment": digest}


def has_environment(run):
    """Whether a run on bare metal uses its environment; another program may do without."""
    return not external.is_external(run) or external.needs(run, "python")


def has_data(run):
    """Whether a run reads a dataset that we store; another program may have its own."""
    ours = not external.is_external(run) or external.needs(run, "data")
    return ours and bool(recipe(run.dataset))


@functools.cache
def recipe(dataset):
    """Digest of what a dataset's shards are made from; "" where we store nothing."""
    if dataset not in plugins.names("datasets"):
        return ""  # another program's
    if plugins.load("datasets", dataset).SYNTHETIC:
        return ""
    return code.digest(data_code(dataset))


def state(run, can_run=True, adopted=None, image_settings=None, time_limit_s=None):
    """Whether a run's record stands, and if not, why.

    Args:
        adopted: as in `made_from`.
        image_settings: as in `made_from`.
        can_run: False where this machine would have to skip the run.
        time_limit_s: after which a run is stopped now; None where that does not matter.

    Returns:
        (State, reason): the reason is "" for current runs.
    """
    return state_and_record(run, can_run, adopted, image_settings, time_limit_s)[:2]


def state_and_record(run, can_run=True, adopted=None, image_settings=None, time_limit_s=None):
    """(State, reason, record) of a run, as `state`; the record is None where none stands."""
    place = folder(run.id)
    if not place.is_dir():
        return State.MISSING, "not trained yet", None
    if not any((place / name).exists() for name in ("run.json", "train.jsonl")):
        return State.STALE, "its last attempt left no result", None
    try:
        record = read(place / "run.json")
        if record["run_id"] != run.id:
            raise RecordError(f"the record is that of {record['run_id']}")
        check_files(place, record)
    except RecordError as error:
        wanted = made_from(run, adopted, image_settings)
        return *_state_by_log(run, place, wanted, str(error)), None
    if record["parser_version"] != PARSER_VERSION:
        wanted = made_from(run, adopted, image_settings)
        reason = f"read by version {record['parser_version']} of the parser"
        return *_state_by_log(run, place, wanted, reason, sound=True), None
    reason = outdated(run, record, can_run, adopted, image_settings, time_limit_s)
    return (State.STALE, reason, None) if reason else (State.CURRENT, "", record)


def outdated(run, record, can_run=True, adopted=None, image_settings=None, time_limit_s=None):
    """Why a sound record does not stand; "" where it does. Arguments as in `state`."""
    wanted = made_from(run, adopted, image_settings)
    if difference := _difference(run, wanted, record["made_from"]):
        return difference
    if record["status"] == "skipped" and can_run:
        return "was skipped and can be trained now"
    stopped_at = record["provenance"].get("time_limit_s")
    if stopped_at and time_limit_s and stopped_at < time_limit_s:
        return f"was stopped at {stopped_at:g} s; time_limit_s is {time_limit_s:g} now"
    return ""


def _state_by_log(run, place, wanted, reason, sound=False):
    """A run without a record that stands: whole logs of the same making need reading only.

    Args:
        sound: the record is: its logs were read before, and have the sizes that it names.
    """
    log = place / "train.jsonl"
    try:
        first = next(eventlog.read(log), {})
        made = first.get("made_from") if first.get("event") == "launch" else None
        if not isinstance(made, dict) or not eventlog.finished(log):
            return State.STALE, reason
        # What takes reading whole logs comes last: where the code changed none of it matters.
        if damage := belief.damage(run, log, whole=False):
            return State.DAMAGED, f"{reason}; {damage}"
        if difference := _difference(run, wanted, made):
            return State.STALE, difference
        damage = belief.unlike_record(run, place) or (not sound and belief.damage(run, log))
    except OSError as error:
        return State.STALE, f"{reason}; {error}"
    except eventlog.LogError as error:
        damage = str(error)
    return (State.DAMAGED, f"{reason}; {damage}") if damage else (State.UNREAD, reason)


def _difference(run, wanted, found):
    """What a result was made from that is another now, in words; not known here is the same."""
    names = [key for key, value in wanted.items() if value is not None and found.get(key) != value]
    if not names:
        return ""
    each = (_changed_files(run, name, found.get(name)) for name in names)
    files = list(dict.fromkeys(itertools.chain(*each)))
    more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
    which = f": {', '.join(files[:MOST_FILES])}{more}" if files else ""
    return f"{' and '.join(names)} changed since it was trained{which}"


def _changed_files(run, name, before):
    """The files behind a part of `made_from` that is another now, as far as they are known."""
    if name == "code" and external.is_external(run):
        return [f"command or files of trainers.{run.trainer}"]
    if name == "code":
        return code.changed(before, training_code(run))
    if name == "data" and recipe(run.dataset):
        return code.changed(before, data_code(run.dataset))
    if name == "environment" and not plugins.load("runtimes", run.runtime).CONTAINED:
        return [f"{site.ENVIRONMENTS}/{run.environment}/uv.lock"]
    return []


def write(path, content, files):
    """Complete a record with the digests of the files beside it and its own, and write it."""
    path = Path(path)
    content = {
        "record_version": RECORD_VERSION,
        "parser_version": PARSER_VERSION,
        **content,
        "files": files_of(files),
    }
    write_json(path, {**content, "record_sha256": digest(content)})


def files_of(paths):
    """What a record says of the files beside it: size and digest by name."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths}


def read(path):
    """The content of a record.

    Raises:
        RecordError: it is missing, damaged, or of a newer version.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: there is no record") from None
    return parsed(content, path)


def parsed(content, path):
    """The record in these bytes, of a file of that name. Raises as `read` does."""
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


def check_files(place, record, content=False):
    """Compare the files beside a record with what it says of them.

    Args:
        content: also compare their digests, which reads them whole.

    Raises:
        RecordError: one is missing or differs.
    """
    for name, expected in record["files"].items():
        path = place / name
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise RecordError(f"{path}: missing, though the run's record names it") from None
        if found != expected["bytes"]:
            raise RecordError(f"{path}: expected {expected['bytes']} bytes, found {found}")
        if content and sha256(path) != expected["sha256"]:
            raise RecordError(f"{path}: changed after its record was written")


def with_status(statuses, text=""):
    """The ids of all runs in the results whose record has one of these statuses.

    Sentinels are left out: none is trained again.

    Args:
        text: that their message must have in it, in capitals or not.
    """
    found = []
    for path in sorted((RESULTS / "runs").glob("*/run.json")):
        if is_sentinel(path.parent.name):
            continue
        with contextlib.suppress(RecordError):  # without a record it is trained again anyway
            record = read(path)
            if record["status"] in statuses and text.lower() in record["message"].lower():
                found.append(path.parent.name)
    return found


def forget(run_id):
    """Remove the record of a run, so that it is trained again; its logs are kept aside."""
    place = folder(run_id)
    (place / "run.json").unlink(missing_ok=True)
    log = place / "train.jsonl"
    if log.is_file():
        eventlog.keep_aside(log)


def digest(content):
    """Digest of what a record says, which it ends with."""
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


@functools.cache
def _training_code(*names):
    files = [
        plugins.path(folder, name)
        for folder, name in zip(PLUGIN_FOLDERS.values(), names, strict=True)
    ]
    files.append(plugins.path("tasks", plugins.constants("models", names[0])["TASK"]))
    return tuple(code.files("train.py", *files))


@functools.cache
def _code_digest(*names):
    return code.digest(_training_code(*names))


@functools.cache
def _image(name, settings):
    """(what an image is made from, its digest), either None where it is not known here."""
    return images.known(name, json.loads(settings))


@functools.cache
def _lock_digest(environment):
    return sha256(site.ENVIRONMENTS / environment / "uv.lock")
