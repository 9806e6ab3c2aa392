"""The columns of the tables of a study; for those of a single run, tables/run_columns.py.

Dates are UTC. Missing values are null, never a placeholder. The table of evaluations has
the columns of a run's.
"""

import pyarrow as pa

from dlbench.run_fields.fields import FIELDS
from dlbench.study.runs import CONDITION
from dlbench.tables.cells import run_name
from dlbench.tables.explanation_columns import ACCOUNTS, EXPLANATIONS, PROFILE
from dlbench.tables.fields import (
    COUNT,
    NAME,
    REAL,
    TEXT,
    TIME,
    field,
    fields,
    of_run,
    with_interval,
    with_run_fields,
)
from dlbench.tables.machine_columns import DRIFT, NODES
from dlbench.tables.metric_columns import BETTER, METRIC, METRICS, UNIT
from dlbench.tables.run_columns import EVALS
from dlbench.tables.try_columns import TRIES
from dlbench.tables.work_columns import ENERGY, MEMORY, NEIGHBOURS, RATES, WORK

APART = "apart"  # of a run that is in no mean
LAST_EVALUATION = "on the validation data at the last evaluation"
_FLAGS = ("xla", "compile", "deterministic", "recompute", "augment")
_LEARNING_RATE = ("learning_rate", "learning_rate_batch", "learning_rate_warmup_steps")
_UPDATE = ("weight_decay", "clip_norm", "accumulate_steps")
# In the order of earlier releases. A field of a run that none of these tables places comes behind
# those that they do.
RUNS = with_run_fields(
    [
        field("run_id", TEXT),
        *fields(NAME, "study", "site"),
        *of_run("framework"),
        field("framework_version", NAME),
        *of_run("model", "dataset", "precision", "mode", "strategy", "launcher", "runtime"),
        *of_run("runtime_options", "node"),
        field("container_start", NAME),
        *of_run("environment", "trainer", "optimizer", "learning_rate_scaling"),
        *of_run("learning_rate_decay", "strategy_options", "evaluate", "cache", "input"),
        *of_run("page_cache"),
        *fields(NAME, "device_kind", "device_model", "status", "timing_source", "quality"),
        field("item_shape", NAME),
        field("attention", NAME, note="the call and its kernel; none: the model makes none"),
        field("item", NAME, note="image, or sequence of tokens; none: unknown"),
        field("message", TEXT, note="why the status is not ok"),
        field("source", TEXT, note="of an imported run: its files with first and last line"),
        field(
            "notes",
            TEXT,
            note="of an imported run: what was converted or left out; how a run's nodes differ; "
            "which ranks had cores far from their GPUs",
        ),
        field("learning_gate", TEXT, note="reached, or by how much missed; none: no gate"),
        *of_run(*_FLAGS),
        *PROFILE,
        *of_run("nodes", "devices_per_node"),
        field("devices", pa.int32()),
        *of_run("threads_per_device", "power_limit_w", "copies_per_node", described=True),
        *of_run("input_workers", "prefetch", "repeat"),
        field("sentinel", pa.int32(), note="counts sessions with sentinels, from 1; 0: none"),
        field(
            APART,
            NAME,
            note="why no mean and no figure has the run: probe, of a part of steps; sentinel, if "
            "sentinels are no repeats; not installed: what it needs; none: they have it",
        ),
        *of_run("seed", "batch_per_device"),
        field("batch_found", pa.bool_(), note="whether the batch is the largest that fits (max)"),
        field("global_batch", COUNT, "items"),
        *of_run("sequence_length", *_LEARNING_RATE, *_UPDATE, described=True),
        *of_run("steps", "warmup_steps", "steps_per_sync", described=True),
        field("window_steps", COUNT, "steps", "that are timed together; 1: each step by itself"),
        *of_run("epochs", described=True),
        field("parameters", COUNT),
        field(
            "gathered_bytes_per_step",
            COUNT,
            "bytes",
            "of sharded weights; none: each device has all weights",
        ),
        field("reduced_bytes_per_step", COUNT, "bytes", "of gradients of sharded weights"),
        *WORK,
        field("steps_measured", COUNT, "steps", "after the warm-up"),
        field("burn_in_steps", COUNT, "steps", "steps excluded from all summaries"),
        *RATES,
        field(
            "copy_sd_images_per_second",
            REAL,
            "items/s",
            "sample standard deviation over the copies trained at once",
        ),
        field("overlap", REAL, "1", "share of the copies' measured time in which all overlap"),
        field("step_time_mean_s", REAL, "s"),
        field(
            "step_time_sd_s",
            REAL,
            "s",
            "sample standard deviation of the steps of step_time_mean_s; a window counts as its "
            "mean",
        ),
        field("step_time_median_s", REAL, "s"),
        field("step_time_p95_s", REAL, "s"),
        field("step_time_mad_s", REAL, "s", "1.4826 x median absolute deviation"),
        field(
            "compile_s",
            REAL,
            "s",
            "tracing and compiling the step, with what the first step took more than the "
            "median one",
        ),
        field("start_s", REAL, "s", "start of the container until the trainer's first line"),
        field("import_s", REAL, "s", "imports of the trainer, until run_start"),
        field("page_cache_share", REAL, "1", "of the dataset in memory, if page_cache is set"),
        field("nccl_version", NAME, note="of NCCL or RCCL, if the run used it"),
        field("nccl_network", NAME, note="between nodes"),
        field("nccl_transports", TEXT, note="how channels reach their peers, and their ends"),
        field("nccl_nvls", pa.bool_(), note="whether NVLink SHARP is available on all GPUs"),
        field("nccl_algorithms", TEXT, note="of collectives, with their calls, if NCCL logs them"),
        field("gpudirect_rdma", pa.bool_(), note="whether all channels over InfiniBand use it"),
        field("first_batch_s", REAL, "s", "run_start to the end of the first step"),
        field(
            "first_epoch_images_per_second",
            REAL,
            "items/s",
            "of the first of several epochs, without its first step",
        ),
        field(
            "epochs_images_per_second",
            REAL,
            "items/s",
            "measured epochs x items of the dataset, over their time by the clock of the log",
        ),
        field(
            "epochs_check", TEXT, note="agrees with images_per_second, or by how much it differs"
        ),
        field(
            "synthetic_ratio",
            REAL,
            "1",
            "images_per_second over the geometric mean of the same combination on synthetic items",
        ),
        field("synthetic_runs", COUNT, "runs", "on synthetic items, which that mean is of"),
        field("duration_s", REAL, "s", "run_start to the end of the last step or evaluation"),
        field("wall_s", REAL, "s", "queue, and start of the container to end of the trainer"),
        field(
            "goodput",
            REAL,
            "1",
            "share of wall_s in training steps, without compiling; see table accounts",
        ),
        field("resumes", pa.int32(), note="how often it resumed from a checkpoint"),
        *ENERGY,
        field(
            "time_to_accuracy_s",
            REAL,
            "s",
            "run_start to the first evaluation with all scores of must_reach; empty if the target "
            "was never reached",
        ),
        field(
            "training_time_to_accuracy_s",
            REAL,
            "s",
            "the steps before that evaluation alone, the slowest rank's",
        ),
        field("cpu_time_s", REAL, "s", "of all processes, run_start to run_end"),
        *MEMORY,
        field("final_loss", REAL, note="training loss of the last step"),
        field("top1", REAL, "1", f"top-1 accuracy {LAST_EVALUATION}"),
        field("top5", REAL, "1", f"top-5 accuracy {LAST_EVALUATION}"),
        field("iou", REAL, "1", f"intersection over union {LAST_EVALUATION}"),
        field("perplexity", REAL, "1", f"perplexity {LAST_EVALUATION}"),
        field("bits_per_byte", REAL, "bit", f"per byte of text {LAST_EVALUATION}"),
        *NEIGHBOURS,
        field("started_at", TIME),
        field("ended_at", TIME),
        field("host", NAME),
        field("session", NAME, note="the start of the workflow that trained it; none: unknown"),
        field("git_commit", NAME),
        field("git_dirty", pa.bool_()),
        field("release", NAME),
        field("image_digest", TEXT, note="of the image that the run was in; none on bare metal"),
        field("data_sha256", TEXT, note="of the manifest's list of shards"),
        field(
            "hardware_sha256",
            TEXT,
            note="hash of the hardware description, equal on identical nodes; none: not known",
        ),
        field(
            "software_sha256", TEXT, note="hash of system, packages and framework; none: not known"
        ),
        field(
            "repeats_differ",
            TEXT,
            note="hardware, software, settings that differ from the first repeat's; none: no such",
        ),
        field("log_sha256", TEXT),
        field("parser_version", pa.int32()),
    ],
    (name for name in FIELDS if name != "probe"),
    described=True,
)
# Columns that a config cannot set for an imported run: they are from its log, or name it.
_FROM_THE_LOG = (
    *("run_id", "source", "notes", "log_sha256", "parser_version", "timing_source"),
    *("contradicts", "sentinel", APART),
)
IMPORTABLE = [name for name in RUNS.names if name not in _FROM_THE_LOG]

_across_sessions = [
    field("measured_apart", pa.bool_(), note="no session has runs of both sides"),
    *with_interval("drift", "1", "between their sessions, for which it is corrected; else none"),
]
_SETTINGS_OF = field(
    "settings_of",
    TEXT,
    note="the run whose settings in `runs` are those of the row, but for columns that it has "
    "itself; of an import with its name before it",
)
COMPARISONS = pa.schema(
    [
        *fields(NAME, "study", "field"),
        field("condition", NAME, note="value of the field, with the options that go with it"),
        field("base", NAME, note="the condition it is compared with: b; the other one is a"),
        _SETTINGS_OF,
        METRIC,
        UNIT,
        BETTER,
        field("ratio", REAL, "1", "of the geometric means of the metric, a over b"),
        field("ci90_low", REAL, "1", "Welch's interval on logarithms, of this comparison alone"),
        field("ci90_high", REAL, "1"),
        field("ci95_low", REAL, "1"),
        field("ci95_high", REAL, "1"),
        field("margin", REAL, "1", "equivalent is from 1 / (1 + margin) to 1 + margin"),
        field("scatter", REAL, "1", "standard deviation of the logarithms, pooled"),
        field("p_tost", REAL, "1", "of a ratio within the margin, adjusted (Holm)"),
        field("p_difference", REAL, "1", "of a ratio other than 1, adjusted (Holm)"),
        field("p_tost_raw", REAL, "1", "before the adjustment"),
        field("p_difference_raw", REAL, "1", "before the adjustment"),
        field(
            "family",
            COUNT,
            note="comparisons for which p is adjusted: those of throughput, or those of the others",
        ),
        field(
            "verdict",
            NAME,
            note="by the adjusted p, as slower and faster, worse and better, or differs where no "
            "direction is better; no ratio: a value is 0 or less; units differ; no runs, no base: "
            "nothing to compare",
        ),
        field("repeats_needed", COUNT, note="of each condition for a verdict; 1000: or more"),
        field("n_a", COUNT, "runs"),
        field("n_b", COUNT, "runs"),
        field(
            "base_flags",
            TEXT,
            note="problems of this comparison: other fields that differ between a and b, disturbed "
            "runs, sides that were measured apart",
        ),
        *_across_sessions,
        field("value_a", REAL, note="geometric mean of the metric over runs, in `unit`"),
        field("value_b", REAL, note="geometric mean of the metric over runs, in `unit`"),
        *(
            field(f"{name}_{side}{'_s' * (unit == 's')}", REAL, unit, note)
            for name, unit, note in (
                (
                    "tokens_per_second",
                    "tokens/s",
                    "throughput in tokens; none: items are no sequences",
                ),
                ("step_time_sd", "s", "mean over runs of step_time_sd_s"),
                ("start", "s", "median over runs"),
                ("import", "s", "median over runs"),
                ("first_batch", "s", "median over runs"),
            )
            for side in "ab"
        ),
    ]
)
SPEEDUPS = pa.schema(
    [
        field("study", NAME),
        field("scaling", NAME, note="weak: batch per device fixed; strong: global batch; or none"),
        _SETTINGS_OF,
        field("devices", pa.int32()),
        *of_run("nodes", "batch_per_device"),
        field("global_batch", COUNT, "items"),
        field("runs", COUNT, "runs", "repeats that completed (ok or unstable)"),
        field("unstable_runs", COUNT, "runs", "number of them that are unstable"),
        *with_interval("images_per_second", "items/s", "geometric mean over runs"),
        *with_interval(
            "tokens_per_second", "tokens/s", "throughput in tokens; none: items are no sequences"
        ),
        *with_interval("speedup", "1", "throughput over that of the base"),
        *with_interval("efficiency", "1", "speedup times the base's devices over these"),
        field("base_strategy", NAME, note="differs where the base is of another strategy"),
        *fields(pa.int32(), "base_devices", "base_nodes"),
        field("base_runs", COUNT, "runs"),
        *with_interval("base_images_per_second", "items/s", "geometric mean over runs"),
        *with_interval("base_tokens_per_second", "tokens/s", "throughput in tokens"),
        field(
            "base_mismatch",
            TEXT,
            note="problems of this comparison: fields that differ between point and base, and "
            "disturbed runs",
        ),
        field("run_ids", TEXT, note="of the repeats; of an import with its name before it"),
        field("base_run_ids", TEXT, note="of the repeats of the base"),
        *_across_sessions,
        field("note", TEXT, note="what is missing in this row, and why"),
    ]
)
COVERAGE = pa.schema(
    [
        field("run_id", TEXT, note="none: the combination was excluded"),
        field("combination", TEXT),
        field(
            "status",
            NAME,
            note="ok, unstable, oom, timeout, failed, skipped, excluded, stale, imported; "
            "of an unfinished study also running, pending, interrupted, and unread: finished, and "
            "its log not yet read",
        ),
        field(
            "reason",
            TEXT,
            note="reason of the status; of a completed run, the targets that it missed",
        ),
    ]
)
PUBLISHED = pa.schema(
    [
        field("study", NAME),
        field("reference", NAME, note="folder of the study that it was published in"),
        field("point", NAME, note="what was measured, with the settings that are stated"),
        *fields(NAME, "site", "device_kind", "device_model", "framework", "framework_version"),
        *fields(NAME, "model", "dataset", "item_shape", "precision", "mode", "strategy"),
        *fields(NAME, "launcher", "runtime"),
        *fields(pa.int32(), "nodes", "devices"),
        field("batch_per_device", COUNT, "items"),
        field("epochs", pa.int32(), "epochs"),
        field("metric", NAME),
        field("value", REAL, note="in the unit of its row"),
        field("unit", NAME),
        field("low", REAL, note="least, where a range was published"),
        field("high", REAL, note="most"),
        field("printed", TEXT, note="as the source has it"),
        field("base", NAME, note="the point that a relative number is relative to"),
        field("base_mismatch", TEXT, note="fields that differ between the point and its base"),
        field("recomputed", REAL, note="from what was published of the point and of its base"),
        field("agrees", pa.bool_(), note="recomputed and rounded as printed, it is the value"),
        field("quality", NAME, note="printed, derived (computed) or read_off (a picture)"),
        *fields(NAME, "source", "page"),
        field("note", TEXT),
        *with_interval("own", "", "geometric mean of own runs (scores: arithmetic), or ratio"),
        field("own_runs", COUNT, "runs", "of a ratio, of the side with the fewer"),
        field("own_differs", TEXT, note="stated settings in which own runs differ"),
        field("own_note", TEXT, note="why there is no own number though runs match"),
        field("own_over_published", REAL, "1"),
    ]
)
# What a row that names a run by `settings_of` takes from it; settings stand in the table of runs.
SETTINGS = (
    *("site", "timing_source", "framework_version", "device_kind", "device_model", "item_shape"),
    *("devices", "global_batch", *CONDITION),
)
STUDY_TABLES = {
    "runs": RUNS,
    "evals": EVALS,
    "accounts": ACCOUNTS,
    "metrics": METRICS,
    "coverage": COVERAGE,
    "comparisons": COMPARISONS,
    "speedups": SPEEDUPS,
    "published": PUBLISHED,
    "drift": DRIFT,
    "nodes": NODES,
    "explanations": EXPLANATIONS,
    "tries": TRIES,
}


def with_settings(table: pa.Table, runs: pa.Table) -> pa.Table:
    """A table with the SETTINGS of the runs that its column `settings_of` names.

    Args:
        runs: the table of runs.
    """
    study = table["study"][0].as_py() if len(table) else None
    named = runs.select(["study", "run_id"]).to_pylist()
    places = {run_name(row, study): place for place, row in enumerate(named)}
    rows = pa.array([places.get(name) for name in table["settings_of"].to_pylist()], pa.int64())
    own = [
        name for name in runs.column_names if name in SETTINGS and name not in table.column_names
    ]
    taken = runs.select(own).take(rows)
    for column in taken.schema:
        table = table.append_column(column, taken[column.name])
    return table
