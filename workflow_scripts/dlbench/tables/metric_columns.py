"""The columns of the tables of metrics: numbers that programs name themselves."""

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
_METRIC = field("metric", NAME, note="its name, or a column of the table runs")
_UNIT = field("unit", NAME, note="of the metric; empty: a plain number")
_OF_THROUGHPUT = ("images_per_second", "tokens_per_second", "step_time_sd", "start", "import")


def comparisons_of_metrics(comparisons: pa.Schema) -> pa.Schema:
    """The columns of comparisons, with a metric in the place of throughput and of times."""
    kept = [f for f in comparisons if not f.name.startswith((*_OF_THROUGHPUT, "first_batch"))]
    replaced = {
        "ratio": field("ratio", REAL, "1", "of the geometric means of the metric, a over b"),
        "scatter": field("scatter", REAL, "1", "standard deviation of the logarithms, pooled"),
        "verdict": field(
            "verdict",
            NAME,
            note="by the adjusted p, as worse and better, slower and faster, or differs where no "
            "direction is better; no ratio: a value is 0 or less; units differ; no runs, no base",
        ),
    }
    return pa.schema(
        [
            _METRIC,
            *(replaced.get(f.name, f) for f in kept),
            _UNIT,
            field("better", NAME, note="higher, lower, or empty: no direction is better"),
            field("value_a", REAL, note="geometric mean over runs, in `unit`"),
            field("value_b", REAL, note="geometric mean over runs, in `unit`"),
        ]
    )


def drift_of_metrics(drift: pa.Schema) -> pa.Schema:
    """The columns of drift, with a metric in the place of throughput."""
    ratio = field("ratio", REAL, "1", "of the metric, later over earlier")
    return pa.schema([_METRIC, *(ratio if f.name == "ratio" else f for f in drift), _UNIT])
