"""What is wrong with runs: their records, logs, attempts and tables, and their dates."""

import contextlib
import functools
import itertools
import subprocess
from collections.abc import Iterator
from datetime import datetime

from dlbench import Error
from dlbench.campaign.doctor_problem import Problem, put_aside
from dlbench.campaign.doctor_tables import describe_damage
from dlbench.log import attempts, event_fields, event_log
from dlbench.plan import standing
from dlbench.records import belief, parse_run, progress, rereading, run_record, sentinel_runs
from dlbench.study.config import Study
from dlbench.study.runs import Run, is_sentinel
from dlbench.tables import parquet_files, run_columns

TRAINED_AGAIN = "the next start trains it again"
MAX_SHOWN = 3  # runs that are named where there are many
TRAINED_LATER = "the next start finds it when it makes tables, the one after trains it again"
READ_AGAIN = "the next start reads its log again, --repair does so now"


def problems(
    study: Study | None = None, content: bool = False, unknown: bool = False
) -> Iterator[Problem]:
    """Yield the Problems of each run; arguments as in `doctor.examine`."""
    places = sorted(p for p in (run_record.RESULTS / "runs").glob("*") if p.is_dir())
    known = {place.name for place in places}
    if study:
        known = {run.id for run in study.runs} | sentinel_runs.sentinels_of(study.runs).keys()
    for place in places:
        if place.name in known and is_sentinel(place.name):
            yield from _of_sentinel(place, content)
        elif place.name in known:
            yield from _problems(place, study.hang_limit_s if study else 300.0, content)
    others = [place.name for place in places if place.name not in known]
    if study and unknown and others:
        more = f" and {len(others) - MAX_SHOWN} more" if len(others) > MAX_SHOWN else ""
        yield Problem(
            "unknown runs",
            str(run_record.RESULTS / "runs"),
            f"{len(others)} of no run of the study {study.name!r}: "
            f"{', '.join(others[:MAX_SHOWN])}{more}",
            "no table or figure of it has them",
            "none needed if another study has them; move the others away",
        )


def _problems(place, hang_limit_s, content):
    log, path = place / "train.jsonl", place / "run.json"
    unfinished = not path.exists() and not event_log.final_run_end(log) and progress.head(log)
    if unfinished and standing.is_written(log, hang_limit_s):
        return  # it is being trained
    open_log = log.with_name(attempts.OPEN)
    if open_log.exists():
        yield _open_attempt(place, log, open_log)
    try:
        record = run_record.read(path)
        _check_place(place, record)
    except run_record.NewerVersion as error:
        yield Problem(
            "record",
            str(path),
            _reason_of(error, path),
            "what it says cannot be known here",
            "update dlbench to at least its version",
        )
        return
    except run_record.RecordError as error:
        if log.exists() or path.exists() or not open_log.exists():
            yield from _without_record(place, log, path, _reason_of(error, path))
        return
    for digests in (False, True) if content else (False,):
        try:
            run_record.check_files(place, record, digests)
        except (run_record.RecordError, OSError) as error:
            what = str(error).replace(f"{place}/", "")
            yield _changed_files(place, what, TRAINED_LATER if digests else TRAINED_AGAIN)
            return
    # The log of a record by another version is read again anyway.
    same_version = record["parser_version"] == run_record.PARSER_VERSION
    if content and same_version and (differs := _differs_from_log(place, record)):
        yield Problem(
            "record",
            str(path),
            f"its {differs} is not what its log says",
            "somebody edited it, and the next start would accept it",
            "--repair reads its log again",
            _reread_action(place),
        )
    yield from _tables(place, record, content)
    yield from _dates(log, content)


def _of_sentinel(place, content):
    """The Problem of a sentinel. Unfinished ones are no problem: sentinels are never repeated."""
    path = place / "run.json"
    if not path.exists():
        return
    try:
        record = run_record.read(path)
        _check_place(place, record)
        run_record.check_files(place, record, content)
    except (run_record.RecordError, OSError) as error:
        yield Problem(
            "sentinel",
            str(place),
            _reason_of(error, path),
            "it is left out of the table sentinels, and of the drift",
            "no start trains it again; --repair moves the folder aside",
            functools.partial(put_aside, place),
        )


def _check_place(place, record):
    if record["run_id"] != place.name:
        raise run_record.RecordError(f"it is the record of {record['run_id']}")
    if any("/" in name or name.startswith(".") for name in record["files"]):
        raise run_record.RecordError("it names files outside of its folder")


def _reason_of(error, path):
    return str(error).removeprefix(f"{path}: ")


def _without_record(place, log, path, why):
    """The Problem of a run without a valid record; its log decides what can be done."""
    if not log.exists():
        if path.exists():
            yield Problem(
                "record",
                str(path),
                f"{why}, and it has no log",
                "nothing of it is used",
                f"{TRAINED_AGAIN}; --repair moves it aside",
                functools.partial(put_aside, path),
            )
        return
    state, damage = _log_state(place, log)
    if state == "newer":
        yield Problem(
            "log",
            str(log),
            damage,
            "what it says cannot be known here",
            "update dlbench to at least its version",
        )
    elif state == "whole":
        action = _reread_action(place)
        yield Problem("record", str(path), why, "its numbers are not used", READ_AGAIN, action)
    elif state == "foreign":
        yield Problem(
            "run",
            str(place),
            damage,
            "its results are not those of this run",
            f"{TRAINED_AGAIN}; --repair moves the folder aside",
            functools.partial(put_aside, place),
        )
    else:
        checkpoint = place / "checkpoint" / "latest.json"
        resumes = "the next start goes on from its checkpoint"
        consequence = resumes if checkpoint.exists() else TRAINED_AGAIN
        kind = "interrupted" if state == "open" else "log"
        yield Problem(
            kind,
            str(log),
            damage,
            "no result was taken from it",
            f"{consequence}; --repair moves the log aside",
            functools.partial(_forget, place),
        )


def _log_state(place, log):
    """(state, damage). States: whole, open (no run_end), foreign, newer, damaged."""
    start, made_from = {}, None
    try:
        for path in event_log.rank_paths(log):
            for number, event in enumerate(event_log.read(path)):
                if path == log and number == 0:
                    made_from = event.get("made_from")
                if path == log and event["event"] == "run_start":
                    start = event
            if start.get("log_version", 0) > event_log.LOG_VERSION:
                return "newer", f"version {start['log_version']}, made by a newer dlbench"
            if not event_log.final_run_end(path) and path == log:
                return "open", "it stops without an end"
    except (event_fields.LogError, OSError, TypeError) as error:
        return "damaged", _reason_of(error, log)
    if not made_from:
        return "damaged", "what the run was made from is not in it"
    if not start:
        return "whole", ""  # the run was refused before the trainer started
    try:
        run = Run.from_spec(start["spec"])
    except Error as error:
        return "damaged", str(error)
    if run.id != place.name:
        return "foreign", f"its log is that of {run.id}"
    damage = belief.describe_changed_log(run, place) or belief.describe_damage(run, log)
    return ("damaged", damage) if damage else ("whole", "")


def _reread_action(place):
    """A function that makes a run's record from its log; None if the log does not have the run."""
    try:
        events = event_log.read(place / "train.jsonl")
        run = next(Run.from_spec(e["spec"]) for e in events if e["event"] == "run_start")
    except (Error, OSError, StopIteration):
        return None
    if run.id != place.name:
        return None

    def read():
        if (place / "run.json").exists():
            put_aside(place / "run.json")
        parse_run.parse(run, place / "train.jsonl", place / "run.json")

    return read


def _open_attempt(place, log, open_log):
    """The Problem of an attempt that was killed with its supervisor, before or after its end."""
    if not log.exists() and event_log.final_run_end(open_log):
        return Problem(
            "interrupted",
            str(open_log),
            "the log of an attempt that came to its end",
            "its result is not taken: its supervisor was killed before that",
            "--repair gives the log its name again",
            lambda: open_log.rename(log),
        )
    if log.exists() and log.samefile(open_log):
        return Problem(
            "interrupted",
            str(open_log),
            "a second name of the run's log is left",
            "its supervisor was killed; another attempt would move the log aside",
            "--repair moves that name aside",
            functools.partial(put_aside, open_log),
        )
    return Problem(
        "interrupted",
        str(open_log),
        "the log of an attempt that was killed",
        "no result was taken from it",
        f"{TRAINED_AGAIN}; --repair moves it aside",
        functools.partial(put_aside, open_log),
    )


def _changed_files(place, what, consequence):
    """The Problem of a valid record whose log has changed since: neither can be trusted."""
    return Problem(
        "run",
        str(place),
        what,
        "its record and its logs do not belong together",
        f"{consequence}; --repair forgets it now, its logs kept aside",
        functools.partial(_forget, place),
    )


def _forget(place):
    if (place / "run.json").exists():
        put_aside(place / "run.json")
    run_record.forget(place.name)


def _differs_from_log(place, record):
    """Names of the values in which a record differs from its log; "" if they agree."""
    try:
        return ", ".join(
            name for name, _, _ in rereading.differences(record, place / "train.jsonl")
        )
    except Error as error:
        return f"content ({error})"


def _tables(place, record, content):
    for name in run_columns.RUN_TABLES:
        path = place / f"{name}.parquet"
        if not path.exists():
            continue
        log_sha256 = parquet_files.file_metadata(path).get("log_sha256")
        if log_sha256 != record["log_sha256"]:
            what = "made from another log" if log_sha256 else "no table of ours"
        else:
            what = describe_damage(path) if content else ""
        if what:
            yield Problem(
                "table",
                str(path),
                what,
                "whoever reads it gets other numbers than the record's",
                "the next start makes it anew; --repair moves it aside",
                functools.partial(put_aside, path),
            )


def _dates(log, content):
    """The Problem of impossible dates: the machine's clock was set during or before the run."""
    clock = (
        "throughput and step times come from a clock that is never set; dates, start_s, "
        "import_s and costs are off"
    )
    by_hand = "none; set the clock (NTP), and forget the run (dlbench forget) to have its dates"
    dated = list(_dated(log, content))
    for (name, before), (other, after) in itertools.pairwise(dated):
        if after < before:
            yield Problem(
                "clock",
                str(log),
                f"{other} is dated {after}, {name} before it {before}",
                clock,
                by_hand,
            )
            return
    if dated and (committed := _committed(_commit(log))):
        first = datetime.fromisoformat(dated[0][1].replace("Z", "+00:00"))
        if first < committed:
            yield Problem(
                "clock",
                str(log),
                f"it began at {dated[0][1]}, before its code was committed "
                f"({committed.isoformat()})",
                clock,
                by_hand,
            )


def _dated(log, content):
    """Yield (event, date) in order: of the head and end of a log; with `content` of all of it."""
    events = []
    with contextlib.suppress(OSError, event_fields.LogError):
        for event in event_log.read(log):
            if not content and event["event"] in ("compile", "step"):
                events.append(event_log.last_run_end(log) or {})
                break
            events.append(event)
    for event in events:
        date = event.get("t_utc")
        with contextlib.suppress(ValueError, TypeError):
            event_log.seconds_between(date, date)
            yield event["event"], date


def _commit(log):
    with contextlib.suppress(OSError, event_fields.LogError):
        return next(event_log.read(log), {}).get("git_commit")
    return None


@functools.cache
def _committed(commit):
    """The date of a commit; None if it is unknown here."""
    if not isinstance(commit, str) or not commit.isalnum():
        return None
    with contextlib.suppress(OSError, ValueError):
        answer = subprocess.run(
            ["git", "show", "-s", "--format=%cI", commit],
            capture_output=True,
            text=True,
            check=False,
        )
        return datetime.fromisoformat(answer.stdout.strip())
    return None
