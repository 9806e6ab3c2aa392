"""What rows of a history are, checked when they are written and whenever they are read.

Files of other sites are copied into it, so a column may have anything.
"""

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench.log.event_fields import FACTS, INDEX, MAX_INDEX, MOST, TEXTS, Kind
from dlbench.records import record_fields
from dlbench.tables.parquet_files import TableError

_LOG = math.log(MOST)
# Least and most of numbers and dates.
RANGES: dict[str, tuple[Any, Any]] = {
    "started_at": (np.datetime64("2020"), np.datetime64("2100")),
    **dict.fromkeys(("n", "failed", "disturbed", "missed"), (0, MAX_INDEX)),
    **{"mean_log": (-_LOG, _LOG), "scatter": (0, 2 * _LOG), "mean": (0.5 / MOST, 2 * MOST)},
    **dict.fromkeys(("mean_ci95_low", "mean_ci95_high"), (0, 1e300)),
}
_MACHINES = ({"nodes", "gpus", "gpus_per_node"}, {"device_model"})  # as machines.facts has them
JSON = {
    **dict.fromkeys(("fields", "meaning", "citation"), FACTS),
    "facts": record_fields.TEXTS,
    "machine_facts": Kind(
        f"a mapping with lists of texts in {_MACHINES[0]} or {_MACHINES[1]}",
        lambda facts: (
            FACTS.accepts(facts)
            and facts.keys() in _MACHINES
            and all(
                INDEX.accepts(value) if name == "gpus_per_node" else TEXTS.accepts(value)
                for name, value in facts.items()
            )
        ),
    ),
}
NEEDED = {
    *("session", "started_at", "condition_id", "condition", "metric", "meaning", "n", "facts"),
    *("machine_key", "machine", "machine_facts"),
}
OF_MEASURED = {"mean_log", "mean"}  # needed where runs completed


def check(table: pa.Table, where: Path | str) -> None:
    """Check rows of a history, in those of its columns that they have.

    Raises:
        TableError: a value cannot be; the message has its column and row.
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise TableError(f"{where}: expected texts in UTF-8: {error}") from error
    measured = table["n"].to_numpy() > 0 if "n" in table.column_names else None
    for name, column in zip(table.column_names, table.columns, strict=True):
        absent = column.is_null().to_numpy()
        wrong = np.zeros(len(table), bool)
        if name in RANGES:
            least, most = RANGES[name]
            values = column.to_numpy()
            wrong = ~((values >= least) & (values <= most)) & ~absent
        if name in NEEDED:
            wrong |= absent
        elif name in OF_MEASURED and measured is not None:
            wrong |= absent & measured
        if wrong.any():
            row = int(np.argmax(wrong))
            least, most = RANGES.get(name, ("", ""))
            expected = f"{least} to {most}" if name in RANGES else "a text"
            found = "nothing" if absent[row] else values[row]
            raise TableError(f"{where}: {name}, row {row + 1}: expected {expected}, found {found}")
        for text in column.unique().to_pylist() if name in JSON else ():
            if text is not None and (reason := _wrong(name, text)):
                raise TableError(f"{where}: {reason}")


@functools.lru_cache(maxsize=100_000)
def _wrong(name, text):
    """What is wrong with a text of JSON; "" if nothing is."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return f"expected {name} to be JSON, of finite numbers and whole characters: {text!r:.80}"
    return record_fields.wrong(value, JSON[name], name)
