"""Compare a record with its logs, which are parsed again.

Needs the standard library only.
"""

import json
import math
from pathlib import Path
from typing import Any

from dlbench.records import belief, parse_run, run_record
from dlbench.study.runs import Run


def differences(record: dict[str, Any], log: Path) -> list[tuple[str, Any, Any]]:
    """The differences between a record and its logs. The record must be of this parser's version.

    Args:
        record: as run_record.read returns it.
        log: path of rank 0's log; those of the other ranks or copies are beside it.

    Returns [(name, value in the record, value from the logs)]; [] if they agree. Raises Error: the
    record names no run, or a log cannot be read or is not that of the run.
    """
    logs = parse_run.rank_logs(log)
    expected = parse_run.content(Run.from_spec(record["spec"]), logs)
    expected["files"] = run_record.files_of(belief.files(logs))
    recorded, expected = dict(_flat(record)), dict(_flat(json.loads(json.dumps(expected))))
    # An older record may lack a fact of provenance.
    names = [name for name in expected if name in recorded or not name.startswith("provenance")]
    only_recorded = [
        name for name in recorded if name.startswith("summary.") and name not in expected
    ]
    return [
        (name, recorded.get(name), expected.get(name))
        for name in [*names, *only_recorded]
        if not _same(recorded.get(name), expected.get(name))
    ]


def _flat(values):
    """Yield (name, value); the values of summary and provenance one by one."""
    for name, value in values.items():
        if name in ("summary", "provenance"):
            yield from ((f"{name}.{key}", part) for key, part in value.items())
        else:
            yield name, value


def _same(one, other):
    """Whether two values are equal; floats may differ by the rounding of other Python versions."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if type(one) is float and type(other) in (int, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
