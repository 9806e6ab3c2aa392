"""The columns on where time went: the table of accounts, of runs, and that of explanations, of the
steps of conditions.
"""

import pyarrow as pa

from dlbench.records import account
from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, field, fields, of_run

# Of a step.
PARTS = {
    "input": "time that a step waits until its items are read",
    "copies": "time that a step waits for the copies of its items to the devices",
    "exchange": "time that a step waits for gradients, and for the slowest device",
    "sharing": "by how much devices of one node slow one another down, exchange apart",
    "waits": "time that a step waits for its loss and for Python between steps",
    "computation": "what is left: forward and backward pass and update",
    "rest": "of another program: what the parameters in `explain` do not leave out",
}
EXPLANATIONS = pa.schema(
    [
        field("study", NAME),
        field("run_id", TEXT, note="the first repeat of the condition that is explained"),
        field("combination", TEXT, note="that condition, in words"),
        field("part", NAME, note="; ".join(f"{name}: {what}" for name, what in PARTS.items())),
        field("step_time_s", REAL, "s", "of the part, in the mean over steps and runs"),
        field("step_time_ci95_low", REAL, "s", "Welch's t; of computation and rest Student's"),
        field("step_time_ci95_high", REAL, "s"),
        field("share", REAL, "1", "of a whole step"),
        field("told_apart", pa.bool_(), note="resolved: above zero, and its probes are reliable"),
        field("runs", COUNT, "runs", "probes on the side with the fewer"),
        field("note", TEXT, note="why it is not resolved, or not known"),
    ]
)
ACCOUNTS = pa.schema(
    [
        *fields(NAME, "study", "run_id"),
        field(
            "part", NAME, note="; ".join(f"{name}: {what}" for name, what in account.PARTS.items())
        ),
        field("spent_s", REAL, "s", "of the first process of the run"),
        field("share", REAL, "1", "of all parts of the run together"),
    ]
)
# Columns of the table of runs on profiles.
PROFILE = (
    *of_run("profile"),
    field("profiled_steps", COUNT, "steps", "traced after the measured ones"),
    field("trace_file", TEXT, note="in results/runs/{run_id}/; none: nothing was traced"),
    field("trace_unknown", TEXT, note="why there is no trace though `profile` is set"),
)
