"""The columns of the table of metrics, and those with which other tables name one."""

import pyarrow as pa

from dlbench.tables.fields import NAME, REAL, field

METRIC = field("metric", NAME, note="its name, or a column of the table runs")
UNIT = field("unit", NAME, note="of the metric; empty: a plain number")
BETTER = field("better", NAME, note="higher, lower, or empty: no direction is better")
METRICS = pa.schema(
    [
        field("run_id", NAME),
        field("name", NAME, note="as the program or its patterns name it"),
        field("value", REAL, note="in the unit of its row"),
        UNIT,
        BETTER,
    ]
)
