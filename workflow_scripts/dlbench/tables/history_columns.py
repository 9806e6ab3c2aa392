"""The columns of the history: one row a session, condition and metric; and of what follows from it.

`site` and `year` of SESSIONS are in the path of a file (hive partitions), not in it.
"""

import pyarrow as pa

from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, TIME, field, fields

PARTITION = ("site", "year")
_WHAT = [
    field("session", NAME, note="a start of the workflow, or none-DATE of runs that name none"),
    field("started_at", TIME, note="first start of a run of the session"),
    field("study", NAME),
]
_CONDITION = [
    field("condition_id", NAME, note="digest of `fields` and `meaning`"),
    field("condition", NAME, note="label of its runs"),
    field("metric", NAME, note="throughput, or a metric that a program names"),
    field("unit", NAME, note="of the metric"),
    field("better", NAME, note="higher, lower, or empty: no direction is better"),
]
_MACHINE_ID = field("machine_id", NAME, note="machine_key, or the name that the config gives it")
_MACHINE = field("machine", NAME, note="models and numbers of processors and GPUs")
_RATIO_ENDS = [field("ratio_ci95_low", REAL, "1"), field("ratio_ci95_high", REAL, "1")]
SESSIONS = pa.schema(
    [
        *_WHAT,
        *_CONDITION,
        field("fields", NAME, note="JSON: fields of the run that are not their defaults"),
        field("meaning", NAME, note="JSON: digests of data and of own files, shape of an item"),
        field("n", COUNT, "runs", "that completed, and that no other process disturbed"),
        field("mean_log", REAL, note="mean of the logarithm of the metric over these runs"),
        field("scatter", REAL, "1", "standard deviation of the logarithms; none: one run"),
        field("mean", REAL, note="geometric mean, in `unit`"),
        field("mean_ci95_low", REAL),
        field("mean_ci95_high", REAL),
        field("failed", COUNT, "runs", "that did not complete"),
        field("disturbed", COUNT, "runs", "that other processes disturbed; they are left out"),
        field("missed", COUNT, "runs", "that missed their learning gate; none: no gate is known"),
        field("machine_key", NAME, note="digest of `machine_facts`"),
        field("machine", NAME, note="these facts in words"),
        field("machine_facts", NAME, note="JSON: models and numbers of processors and GPUs"),
        field("hosts", NAME, note="names of the nodes, with a comma between"),
        field("driver", NAME, note="of the GPUs"),
        field("firmware", NAME, note="VBIOS of the GPUs, microcode of the CPUs"),
        field("kernel", NAME, note="of the nodes"),
        *fields(NAME, "framework", "framework_version"),
        field("image_digest", NAME, note="of the container's image; none: bare metal"),
        field("git_commit", NAME, note="of dlbench"),
        field("facts", NAME, note="JSON: fingerprints, whose changes are events"),
        field("logs", pa.list_(TEXT), note="beginnings of the digests of the runs' logs"),
        field("archive_sha256", NAME, note="of the archive; none: from a results folder"),
        field("source", NAME, note="name of the archive or folder"),
    ]
)
_LONG = ("fields", "meaning", "facts", "logs")
SERIES = pa.schema(
    [
        field("site", NAME),
        _MACHINE_ID,
        *(f for f in SESSIONS if f.name not in _LONG),
    ]
)
CAMPAIGNS = pa.schema(
    [
        field("site", NAME),
        *_WHAT,
        field("standing", NAME, note="current; replaced; withdrawn; contradictory; damaged"),
        field("reason", TEXT, note="of any other standing than current"),
        field("file", TEXT, note="in the history"),
        _MACHINE_ID,
        _MACHINE,
        field("conditions", COUNT, note="with their metrics"),
        field("archive_sha256", NAME, note="of the archive; none: from a results folder"),
    ]
)
FINDINGS = pa.schema(
    [
        field("finding", COUNT, note="number, from 1, the latest first"),
        field("site", NAME),
        _MACHINE_ID,
        _MACHINE,
        field("kind", NAME, note="shared: of most conditions together; own: of single ones"),
        field("direction", NAME, note="gain, loss, or change where no direction is better"),
        field("ratio", REAL, "1", "new level over old; the median of its conditions"),
        *_RATIO_ENDS,
        field("p", REAL, "1", "that there is none, adjusted for the machine's conditions"),
        field("session", NAME, note="the first of the new level"),
        field("previous_session", NAME, note="the last of the old level"),
        field("changed_after", TIME, note="start of the last session before the change"),
        field("changed_before", TIME, note="start of the first session of the new level"),
        field("earliest", TIME, note="the change is after this (95 %)"),
        field("latest", TIME, note="the change is before this (95 %)"),
        field("sessions_before", COUNT, note="of the old level"),
        field("sessions_after", COUNT, note="of the new level"),
        field("gradual", pa.bool_(), note="a line fits better than a step"),
        field("conditions", COUNT, note="that share it"),
        field("conditions_in_all", COUNT, note="of the machine"),
        field("spared", TEXT, note="of a shared change: conditions that show it is not theirs"),
        field("causes", TEXT, note="JSON: what changed between these sessions, likeliest first"),
        field("text", TEXT, note="the finding in words"),
    ]
)
CHANGES = pa.schema(
    [
        field("finding", COUNT, note="its number"),
        *_CONDITION,
        field("ratio", REAL, "1", "new level over old"),
        *_RATIO_ENDS,
    ]
)
OF_HISTORY = {
    "campaigns": CAMPAIGNS,
    "series": SERIES,
    "findings": FINDINGS,
    "changes": CHANGES,
}
HISTORY_TABLES = {"sessions": SESSIONS, **OF_HISTORY}
