"""The columns on where the time of runs went: the tables of accounts and of operations."""

import pyarrow as pa

from dlbench.records.account import PARTS
from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, field, fields, of_run

ACCOUNTS = pa.schema(
    [
        *fields(NAME, "study", "run_id"),
        field("part", NAME, note="; ".join(f"{name}: {what}" for name, what in PARTS.items())),
        field("spent_s", REAL, "s", "of the first process of the run"),
        field("share", REAL, "1", "of all parts of the run together"),
    ]
)
OPERATIONS = pa.schema(
    [
        *fields(NAME, "study", "run_id"),
        field("place", NAME, note="device, if its streams were traced; else host: its threads"),
        field("operation", TEXT, note="its kind as the framework calls it; of a GPU the kernel"),
        field("count", COUNT, note="how often it was done in the traced steps"),
        field("spent_s", REAL, "s", "in the operation itself, in all traced steps, on all tracks"),
        field("share", REAL, "1", "of the time of all operations of the trace"),
        field("steps", COUNT, "steps", "that were traced"),
    ]
)
# Columns of the table of runs on profiles.
PROFILE = (
    *of_run("profile"),
    field("profiled_steps", COUNT, "steps", "traced after the measured ones"),
    field("trace_file", TEXT, note="in results/runs/{run_id}/; none: nothing was traced"),
    field("trace_unknown", TEXT, note="why there is no trace though `profile` is set"),
)
