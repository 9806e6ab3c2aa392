"""The columns of tables that compare machines: a session with an earlier one, nodes with others."""

import pyarrow as pa

from dlbench.tables.fields import COUNT, NAME, REAL, TIME, field, fields, with_interval
from dlbench.tables.metric_columns import METRIC, UNIT

DRIFT = pa.schema(
    [
        field("study", NAME),
        METRIC,
        UNIT,
        *fields(NAME, "site", "device_kind"),
        *fields(pa.int32(), "nodes", "devices_per_node"),
        field("earlier_session", NAME, note="`session` of the earlier runs; none: not known"),
        field("later_session", NAME, note="`session` of the later runs"),
        field("earlier_started_at", TIME, note="first start of the earlier runs on such devices"),
        field("later_started_at", TIME, note="first start of the later runs on such devices"),
        field("conditions", COUNT, note="measured in both"),
        field(
            "earlier_runs",
            COUNT,
            "runs",
            "of these conditions in the earlier session, sentinels included",
        ),
        field(
            "later_runs", COUNT, "runs", "of these conditions in the later session, sentinels too"
        ),
        *with_interval("ratio", "1", "of the metric, later over earlier"),
        field("margin", REAL, "1", "equivalent is from 1 / (1 + margin) to 1 + margin"),
        field(
            "verdict",
            NAME,
            note="none: equivalent to none (TOST); faster, slower or the metric's words: by a "
            "two-sided test; undecided; too few runs: of every condition that leads from one to "
            "the other",
        ),
    ]
)

NODES = pa.schema(
    [
        *fields(NAME, "study", "site", "device_kind", "device_model"),
        field("node", NAME, note="`node` of its runs, or else their `host`"),
        field("runs", COUNT, "runs", "on this node alone, that completed"),
        field(
            "disturbed",
            pa.bool_(),
            note="other processes disturbed all its runs; else such runs are left out",
        ),
        *with_interval("ratio", "1", "of throughputs, this node over the middle half of others"),
        field("margin", REAL, "1", "slower is below 1 / (1 + margin)"),
        field("p_slower", REAL, "1", "not slower by more than the margin, adjusted (Holm)"),
        field("verdict", NAME, note="slower; not shown; too few runs: of this node"),
        field("node_sd", REAL, "1", "standard deviation of log(images_per_second) over nodes"),
        field("node_sd_ci95_low", REAL, "1", "by the F distribution, at the `scatter` found"),
        field("node_sd_ci95_high", REAL, "1"),
        field("scatter", REAL, "1", "standard deviation of log(images_per_second) on one node"),
        field("scatter_ci95_low", REAL, "1", "by the chi-squared distribution"),
        field("scatter_ci95_high", REAL, "1"),
        field("p_differ", REAL, "1", "that all nodes are alike (F test)"),
    ]
)
