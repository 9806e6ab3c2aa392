"""Decide whether a run has a valid result, and if not, why."""

from enum import Enum
from typing import Any

from dlbench.log import event_fields, event_log
from dlbench.records import belief, run_record, staleness
from dlbench.records.run_record import RecordError
from dlbench.study.runs import Run


class State(Enum):
    """What is to be done for a run: nothing, parse its log, or train it.

    Runs that are missing, stale or damaged are trained. The logs of damaged ones are moved aside.
    """

    CURRENT = "current"
    UNREAD = "unread"
    MISSING = "missing"
    STALE = "stale"
    DAMAGED = "damaged"


def state(
    run: Run,
    can_run: bool = True,
    adopted: dict[str, str] | None = None,
    image_settings: dict[str, Any] | None = None,
    time_limit_s: float | None = None,
) -> tuple[State, str]:
    """Whether a run's record is valid, and if not, why.

    Args:
        adopted: as in `made_from`.
        image_settings: as in `made_from`.
        can_run: False if this machine would have to skip the run.
        time_limit_s: the limit of the study; None to ignore limits.

    Returns:
        (State, reason): the reason is "" for current runs.
    """
    return state_and_record(run, can_run, adopted, image_settings, time_limit_s)[:2]


def state_and_record(
    run: Run,
    can_run: bool = True,
    adopted: dict[str, str] | None = None,
    image_settings: dict[str, Any] | None = None,
    time_limit_s: float | None = None,
) -> tuple[State, str, dict[str, Any] | None]:
    """(State, reason, record) of a run, as `state`; the record is None unless it is valid."""
    place = run_record.folder(run.id)
    if not place.is_dir():
        return State.MISSING, "not trained yet", None
    if not any((place / name).exists() for name in ("run.json", "train.jsonl")):
        return State.STALE, "its last attempt left no result", None
    try:
        record = run_record.read(place / "run.json")
        if record["run_id"] != run.id:
            raise RecordError(f"the record is that of {record['run_id']}")
        run_record.check_files(place, record)
    except RecordError as error:
        expected = staleness.made_from(run, adopted, image_settings)
        return *_state_by_log(run, place, expected, str(error)), None
    if record["parser_version"] != run_record.PARSER_VERSION:
        expected = staleness.made_from(run, adopted, image_settings)
        reason = f"read by version {record['parser_version']} of the parser"
        return *_state_by_log(run, place, expected, reason, sound=True), None
    reason = staleness.outdated(run, record, can_run, adopted, image_settings, time_limit_s)
    if not reason and record["provenance"].get("before_first_step"):
        reason = f"failed before its first step, so measured nothing: {record['message']}"
    return (State.STALE, reason, None) if reason else (State.CURRENT, "", record)


def _state_by_log(run, place, expected, reason, sound=False):
    """The state of a run without a valid record: whole, up-to-date logs only need parsing.

    Args:
        sound: whether the record is undamaged: its logs were parsed before and have their sizes.
    """
    log = place / "train.jsonl"
    try:
        first = next(event_log.read(log), {})
        made = first.get("made_from") if first.get("event") == "launch" else None
        if not isinstance(made, dict) or not event_log.final_run_end(log):
            return State.STALE, reason
        # Checks that read whole logs come last: if the code has changed they are not needed.
        if damage := belief.describe_damage(run, log, whole=False):
            return State.DAMAGED, f"{reason}; {damage}"
        if difference := staleness.describe_changes(run, expected, made):
            return State.STALE, difference
        damage = belief.describe_changed_log(run, place) or (
            not sound and belief.describe_damage(run, log)
        )
    except OSError as error:
        return State.STALE, f"{reason}; {error}"
    except event_fields.LogError as error:
        damage = str(error)
    return (State.DAMAGED, f"{reason}; {damage}") if damage else (State.UNREAD, reason)
