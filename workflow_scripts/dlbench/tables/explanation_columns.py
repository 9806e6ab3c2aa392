"""The columns of the table of explanations: what a step of each explained condition is made of."""

import pyarrow as pa

from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, field

PARTS = {
    "input": "time that a step waits until its items are read",
    "copies": "time that a step waits for the copies of its items to the devices",
    "exchange": "time that a step waits for gradients, and for the slowest device",
    "sharing": "by how much devices of one node slow one another down, exchange apart",
    "waits": "time that a step waits for its loss and for Python between steps",
    "computation": "what is left: forward and backward pass and update",
}
EXPLANATIONS = pa.schema(
    [
        field("study", NAME),
        field("run_id", TEXT, note="the first repeat of the condition that is explained"),
        field("combination", TEXT, note="that condition, in words"),
        field("part", NAME, note="; ".join(f"{name}: {what}" for name, what in PARTS.items())),
        field("step_time_s", REAL, "s", "of the part, in the mean over steps and runs"),
        field("step_time_ci95_low", REAL, "s", "Welch's t; of computation Student's"),
        field("step_time_ci95_high", REAL, "s"),
        field("share", REAL, "1", "of a whole step"),
        field("told_apart", pa.bool_(), note="resolved: above zero, and its probes are reliable"),
        field("runs", COUNT, "runs", "probes on the side with the fewer"),
        field("note", TEXT, note="why it is not resolved, or not known"),
    ]
)
