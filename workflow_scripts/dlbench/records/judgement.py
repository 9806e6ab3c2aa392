"""Whether a run's result is believed, and if not, why."""

from enum import Enum
from typing import Any

from dlbench.log import event_fields, event_log
from dlbench.records import belief, run_record, staleness
from dlbench.records.run_record import RecordError
from dlbench.study.runs import Run


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


def state(
    run: Run,
    can_run: bool = True,
    adopted: dict[str, str] | None = None,
    image_settings: dict[str, Any] | None = None,
    time_limit_s: float | None = None,
) -> tuple[State, str]:
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


def state_and_record(
    run: Run,
    can_run: bool = True,
    adopted: dict[str, str] | None = None,
    image_settings: dict[str, Any] | None = None,
    time_limit_s: float | None = None,
) -> tuple[State, str, dict[str, Any] | None]:
    """(State, reason, record) of a run, as `state`; the record is None where none stands."""
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
    """A run without a record that stands: whole logs of the same making need reading only.

    Args:
        sound: the record is: its logs were read before, and have the sizes that it names.
    """
    log = place / "train.jsonl"
    try:
        first = next(event_log.read(log), {})
        made = first.get("made_from") if first.get("event") == "launch" else None
        if not isinstance(made, dict) or not event_log.final_run_end(log):
            return State.STALE, reason
        # What takes reading whole logs comes last: where the code changed none of it matters.
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
