"""The columns of the table of baselines: what machines attain without a model."""

import pyarrow as pa

from dlbench.baselines.rounds import NOT_MEASURED
from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, TIME, field, fields

BASELINES = pa.schema(
    [
        field("baseline", NAME, note="names the file in results/baselines/ that it is from"),
        field(
            "measure",
            NAME,
            note="all_reduce: the sum of float32 values over all devices; all_gather: the parts of "
            "all devices on each; reduce_scatter: the sum, a part of it on each device; sendrecv: "
            "point to point, from each device to the next in a ring; matrix_product; "
            "memory_copy: of arrays in the device's memory; host_to_device: copies from the host; "
            "file_read_cold, file_read_warm: of a file beside the results, first from the disk, "
            "then from the system's memory; items_read: by the framework's reader of a dataset, "
            "for each core; those of imported logs are named as there",
        ),
        *fields(NAME, "site", "framework", "framework_version", "environment", "runtime"),
        *fields(NAME, "runtime_options", "strategy", "strategy_options", "launcher"),
        field("precision", NAME, note="of matrix_product"),
        field("dataset", NAME, note="of items_read"),
        *fields(NAME, "device_kind", "device_model"),
        *fields(pa.int32(), "nodes", "devices_per_node", "devices", "threads_per_device"),
        field(
            "size_bytes",
            COUNT,
            "B",
            "of the message, array or file; of all_gather what each device has in the end, of "
            "reduce_scatter what it has at the start",
        ),
        field("value", REAL, note="median over rounds, in the unit of its row"),
        field("low", REAL, note="the least of the rounds"),
        field("high", REAL, note="the most"),
        field(
            "unit",
            NAME,
            note="GB/s, of collectives those of the bus: bytes / time x 2 (n - 1) / n of "
            "all_reduce, x (n - 1) / n of all_gather and reduce_scatter, x 1 of sendrecv; TFLOP/s; "
            "items/s",
        ),
        field("time_s", REAL, "s", "of one operation on the slowest process, median over rounds"),
        field("time_low_s", REAL, "s", "the shortest of the rounds"),
        field("time_high_s", REAL, "s", "the longest"),
        field("rounds", COUNT, "rounds", "timed, after an operation that compiles and connects"),
        field(
            "unknown", TEXT, note=f"why there is no value; {NOT_MEASURED}: it failed on that node"
        ),
        field("source", TEXT, note="of an imported baseline: its log and what it has; none: own"),
        field("load_average_1min", REAL, note="of the node, after the measurements"),
        field("measured_at", TIME, note="UTC"),
        field("host", NAME, note="node of the first process"),
        field("node", NAME, note="`node` of its runs; none: any of the site"),
        field("hardware_sha256", TEXT, note="as of runs on this machine"),
    ]
)
MACHINE_TABLES = {"baselines": BASELINES}
