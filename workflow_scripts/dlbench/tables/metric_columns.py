"""The columns of the table of metrics: numbers that programs name themselves."""

import pyarrow as pa

from dlbench.tables.fields import NAME, REAL, field

METRICS = pa.schema(
    [
        field("run_id", NAME),
        field("name", NAME, note="as the program or its patterns name it"),
        field("value", REAL, note="in the unit of its row"),
        field("unit", NAME, note="of the value; empty: a plain number"),
        field("better", NAME, note="higher, lower, or empty: no direction is better"),
    ]
)
