"""The fields of a record that are read of records of others, and a check of such values.

Whoever makes a record can also make its digest, so its values may be of any kind.
"""

import json
from collections.abc import Mapping
from typing import Any

from dlbench import Error
from dlbench.log.event_fields import DATE, FACTS, METRIC_NAME, NUMBER, PLAIN, TEXT, Kind
from dlbench.log.event_fields import TEXTS as TEXT_LIST
from dlbench.records.run_record import RecordError
from dlbench.study.runs import Run

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
        "hosts": TEXT_LIST, "hardware": {"*": _HARDWARE},
        "software": {"*": FACTS}, **dict.fromkeys(("libraries", "variables", "limits"), FACTS),
        "present": {"memory_bytes": NUMBER, "gpus": [PLAIN], "gpu_links": [_LINK]},
    },
}  # fmt: skip


def check(record: Mapping[str, Any]) -> None:
    """Check the values of a record that are read of others.

    Raises:
        RecordError: one is not as dlbench writes it.
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

    Args:
        shape: a Kind, [the shape of each], or {name: shape} with "*" for all other names; a null
            in a mapping is as no name.
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
