"""The columns of the table of operations, and those of the table of runs on profiles."""

import pyarrow as pa

from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, field, fields, of_run

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
PROFILE = (
    *of_run("profile"),
    field("profiled_steps", COUNT, "steps", "traced after the measured ones"),
    field("trace_file", TEXT, note="in results/runs/{run_id}/; none: nothing was traced"),
    field("trace_unknown", TEXT, note="why there is no trace though `profile` is set"),
)
