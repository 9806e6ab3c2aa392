"""The columns of the table of tries: what each search for a largest batch tried and found."""

import pyarrow as pa

from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, field, fields, of_run
from dlbench.tables.work_columns import MEMORY

_HELD = [column for column in MEMORY if column.name != "device_memory_unknown"]
TRIES = pa.schema(
    [
        *fields(NAME, "study", "site"),
        field("search", NAME, note="name of the search and of its folder in results/batches/"),
        *of_run("framework", "model", "dataset", "precision", "mode", "strategy"),
        *of_run("strategy_options", "runtime", "environment", "optimizer"),
        *of_run("xla", "compile", "recompute", "nodes", "devices_per_node", "copies_per_node"),
        *of_run("sequence_length", "accumulate_steps"),
        field("batch_per_device", COUNT, "items", "of this try"),
        field("fits", pa.bool_(), note="it completed and left a tenth of the memory free"),
        field("status", NAME, note="of the try: ok, unstable, oom, timeout or failed"),
        field("share_of_memory", REAL, "1", "of the device's or the node's, whichever is larger"),
        field("message", TEXT, note="why it does or does not fit"),
        *_HELD,
        field("node_memory_bytes", COUNT, "B", "free on the node before the first try, or allowed"),
        field("found_batch_per_device", COUNT, "items", "of the search; none: not even one fits"),
        field("reason", TEXT, note="why the search took no larger one, or none"),
        field("host", NAME, note="node of the search"),
    ]
)
