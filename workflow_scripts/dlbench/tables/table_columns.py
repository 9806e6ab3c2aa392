"""The columns of the tables of a study, of those in the folder of each run, and of baselines.

Dates are UTC. Missing values are null, never a placeholder. The table of evaluations has the
columns of a run's. Settings stand in the table of runs; others name a run that has theirs.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from dlbench.baselines.rounds import NOT_MEASURED
from dlbench.common import assignments
from dlbench.common.run_fields import DECLARED, FIELDS, value_type
from dlbench.records import account
from dlbench.study import parameters
from dlbench.study.runs import CONDITION
from dlbench.tables import cells
from dlbench.tables.cells import Row, run_name

TEXT = pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())  # a text of which there are few
COUNT, REAL = pa.int64(), pa.float64()
# Types of columns by the kinds of their values, the narrowest first.
OF_KINDS = {
    frozenset((bool,)): pa.bool_(),
    frozenset((int,)): COUNT,
    frozenset((int, float)): REAL,
}
TIME = pa.timestamp("us", tz="UTC")


def field(name: str, type_: pa.DataType, unit: str = "", note: str = "") -> pa.Field:
    """A field; its metadata has a `unit` and a `description` where they are not empty."""
    metadata = {k: v for k, v in (("unit", unit), ("description", note)) if v}
    return pa.field(name, type_, metadata=metadata or None)


def fields(type_: pa.DataType, *names: str) -> list[pa.Field]:
    """Fields of one type, without units."""
    return [field(name, type_) for name in names]


def with_interval(name: str, unit: str, note: str) -> list[pa.Field]:
    """A value and the ends of its 95 % interval, which are absent where one run gives none."""
    return [
        field(name, REAL, unit, note),
        field(f"{name}_ci95_low", REAL, unit, "Student's or Welch's t on logarithms"),
        field(f"{name}_ci95_high", REAL, unit),
    ]


def of_run(*names: str, described: bool = False) -> list[pa.Field]:
    """Columns of fields of a run.

    `described`: with what they mean, as in the table of runs; other tables refer to that.
    """
    return [_of_run(name, described) for name in names]


def with_run_fields(
    columns: Iterable[pa.Field], names: Iterable[str], described: bool = False
) -> pa.Schema:
    """Columns, and those of the fields of a run that they lack, after the last that they have.

    So a table gets a newly declared field, and its other columns stay where they are.
    """
    columns = list(columns)
    names_in_order = [column.name for column in columns]
    further = of_run(*(name for name in names if name not in names_in_order), described=described)
    end = max(index for index, name in enumerate(names_in_order) if name in FIELDS) + 1
    return pa.schema([*columns[:end], *further, *columns[end:]])


def with_parameters(schema: pa.Schema, rows: Sequence[Row]) -> tuple[pa.Schema, Sequence[Row]]:
    """A schema and rows with a column for each parameter of other programs that rows have.

    A column is of numbers, of booleans, or of texts if its values are of several kinds.
    """
    if parameters.FIELD not in schema.names:
        return schema, rows
    own = [parameters.column_values(row.get(parameters.FIELD)) for row in rows]
    for name in sorted({name for values in own for name in values}):
        kinds = {type(values[name]) for values in own if name in values}
        type_ = next((OF_KINDS[kind] for kind in OF_KINDS if kinds <= kind), NAME)
        if type_ == NAME:
            own = [v | ({name: assignments.plain(v[name])} if name in v else {}) for v in own]
        schema = schema.append(field(name, type_, note="a parameter of the trainer's program"))
    return schema, [row | values for row, values in zip(rows, own, strict=True)]


def _of_run(name, described):
    declared = DECLARED[name]
    kinds = {str: NAME, bool: pa.bool_(), float: REAL, int: COUNT}
    type_ = pa.int32() if declared.bits == 32 else kinds[value_type(FIELDS[name])]
    return field(name, type_, declared.unit, declared.note if described else "")


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

RATES = (
    field(
        "images_per_second",
        REAL,
        "items/s",
        "items of the measured steps over their time on the slowest rank",
    ),
    field("images_per_second_per_device", REAL, "items/s", "images_per_second over devices"),
    field(
        "tokens_per_second",
        REAL,
        "tokens/s",
        "images_per_second x tokens of a sequence; none: items are no sequences",
    ),
    field(
        "tokens_per_second_per_device",
        REAL,
        "tokens/s",
        "tokens_per_second over devices; known of some logs that do not say how many these are",
    ),
    field(
        "rate_uncertainty",
        REAL,
        "1",
        "relative, of rate and step time, from the digits or short last batches of an imported log",
    ),
    field(
        "contradicts",
        TEXT,
        note="how rate, batch and step time differ by over 2 % and rate_uncertainty, or mfu is "
        "above 1: such a run is in no mean, and compared with nothing; none: they agree",
    ),
)
WORK = (
    field(
        "model_flops_per_item",
        REAL,
        "FLOP",
        "of products in the model's layers; 3 forward passes where it takes gradients",
    ),
    field(
        "hardware_flops_per_item",
        REAL,
        "FLOP",
        "model_flops_per_item with the forward pass of what is computed again; none: nothing is",
    ),
    field(
        "values_per_item",
        COUNT,
        note="numbers that these products read and write, forward, weights apart",
    ),
    field("flops_unknown", TEXT, note="layers without a rule, for which they are not known"),
    field(
        "arithmetic_intensity",
        REAL,
        "FLOP/B",
        "products' FLOPs over the bytes they read and write, weights once a batch",
    ),
    field(
        "achieved_tflops_per_device",
        REAL,
        "TFLOP/s",
        "model_flops_per_item x images_per_second / devices",
    ),
    field("device_peak_tflops", REAL, "TFLOP/s", "dense, in the run's precision"),
    field("device_peak_source", TEXT, note="of that number, or why it is unknown"),
    field("device_memory_gb_per_s", REAL, "GB/s", "as its maker states it"),
    field("attainable_tflops", REAL, "TFLOP/s", "of the largest product, measured on a device"),
    field("attainable_gb_per_s", REAL, "GB/s", "of a copy in memory, measured on a device"),
    field("mfu", REAL, "1", "achieved_tflops_per_device over device_peak_tflops"),
    field("mfu_of_attainable", REAL, "1", "achieved_tflops_per_device over attainable_tflops"),
    field("hfu", REAL, "1", "mfu with hardware_flops_per_item; none: nothing is computed again"),
    field("hfu_of_attainable", REAL, "1", "mfu_of_attainable with hardware_flops_per_item"),
)
MEMORY = (
    field(
        "peak_allocated_bytes_per_device",
        COUNT,
        "B",
        "the most of a device that the framework's arrays held, in the whole run",
    ),
    field(
        "peak_reserved_bytes_per_device",
        COUNT,
        "B",
        "the most of a device that the framework's allocator took, in the whole run",
    ),
    field(
        "peak_used_bytes_per_device",
        COUNT,
        "B",
        "the most of a GPU that any processes used, by the samples of NVML",
    ),
    field("peak_memory_bytes", COUNT, "B", "resident set of the largest process, in the whole run"),
    field(
        "memory_limit_bytes",
        COUNT,
        "B",
        "of the GPU, or the part that JAX preallocates; on CPUs of the node or its cgroup",
    ),
    field("device_memory_unknown", TEXT, note="why the framework's count is not known"),
)


def _energy(prefix: str, of: str, span: str) -> list[pa.Field]:
    name = f"{prefix}energy"
    return [
        field(f"{name}_j", REAL, "J", f"of {of}, {span}"),
        field(
            f"{name}_per_image_j",
            REAL,
            "J",
            f"{name}_j over the items of all steps; compiling and evaluating included",
        ),
        field(f"{name}_source", NAME, note="the domain measured, and what was read"),
        field(f"{name}_samples", COUNT, note="how often it was read; of processes the fewest"),
        *(
            [field(f"{name}_sampled_share", REAL, "1", "of the time that readings cover")]
            if prefix != "host_"  # counters miss nothing
            else []
        ),
        field(f"{name}_resolution_s", REAL, "s", "mean time between two readings; the longest"),
        field(f"{name}_unknown", TEXT, note="why it is not known"),
    ]


ENERGY = (
    *_energy("", "all GPUs", "run_start to run_end"),
    *_energy("host_", "processors and memory of all nodes", "run_start to run_end"),
    *_energy("node_", "the whole node, by site.power_meter or counters", "run_start to run_end"),
    field("power_limit_found_w", REAL, "W", "of a GPU before the run set one, the least"),
    field("power_limit_enforced_w", REAL, "W", "by the driver of a GPU after that, the least"),
    field(
        "energy_remark",
        TEXT,
        note="few readings, a part of the time, or two readings that disagree; or none",
    ),
)
NEIGHBOURS = (
    field("others_cpu_cores", REAL, "cores", "used by other processes, of `cores`; measured steps"),
    field("cores", pa.int32(), "cores", "CPUs the run could use, on the most disturbed node"),
    field("node_others_cpu_cores", REAL, "cores", "used by other processes, of `node_cores`"),
    field("node_cores", pa.int32(), "cores", "CPUs of the first node"),
    field("steal_cpu_cores", REAL, "cores", "taken from cores by a hypervisor"),
    field("cpu_pressure_percent", REAL, "%", "of the time: some process waited for a CPU"),
    field("memory_pressure_percent", REAL, "%", "of the time: some waited for memory"),
    field("io_pressure_percent", REAL, "%", "of the time: some waited for a disk"),
    field("others_disk_bytes_per_s", REAL, "B/s", "read and written by other processes, all disks"),
    field("cpu_clock_mhz", REAL, "MHz", "mean over time and cores"),
    field("cpu_throttle_count", COUNT, note="cores slowed down for heat, start to end"),
    field("quota_throttled_percent", REAL, "%", "of quota periods: its CPU quota stopped it"),
    field("quota_throttled_s", REAL, "s", "that its CPU quota stopped it, summed over CPUs"),
    field("load_before_1min", REAL, note="load average when the trainer was started"),
    field("waited_for_quiet_s", REAL, "s", "before the trainer was started"),
    field(
        "other_gpu_processes", pa.int32(), note="processes of other programs, the most on one GPU"
    ),
    field("disturbed", TEXT, note="what other processes used more of than allowed; none: nothing"),
    field(
        "neighbours_unknown",
        TEXT,
        note="what could not be measured about other processes and clocks, and why",
    ),
)

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

STEPS = pa.schema(
    [
        field("run_id", NAME),
        field("rank", pa.int32()),
        field("step", COUNT, note="from 1, warm-up included"),
        field("epoch", pa.int32(), note="from 1"),
        field("t_s", REAL, "s", "end of the step since run_start; none within a window"),
        field(
            "step_time_s",
            REAL,
            "s",
            "since the end of the step before, the mean over a window at its last step; none "
            "within a window",
        ),
        field("loss", REAL, note="mean over the rank's items of the step"),
        field("learning_rate", REAL),
        field("warm_up", pa.bool_(), note="not counted in any summary"),
        field("window_steps", COUNT, "steps", "whose mean the time is, where it is of several"),
    ]
)
EVALS = pa.schema(
    [
        field("run_id", NAME),
        field("epoch", pa.int32()),
        field("step", COUNT),
        field("t_s", REAL, "s", "end of the evaluation since run_start"),
        field("split", NAME),
        field("loss", REAL),
        field("top1", REAL, "1", "share of items whose best class is right"),
        field("top5", REAL, "1", "share of items with the right class among the best five"),
        field("iou", REAL, "1", "intersection over union of masks, all pixels together"),
        field("perplexity", REAL, "1", "exponential of the loss a word"),
        field("examples", COUNT, "items"),
        field("score", REAL, note="as another program prints it, in its own unit"),
        field("score_name", NAME, note="what it is, as mAP; lower may be better, as of a loss"),
    ]
)
SAMPLES = pa.schema(
    [
        field("run_id", NAME),
        field("rank", pa.int32()),
        field("t_s", REAL, "s", "since run_start"),
        field("gpu", NAME, note="NVML index or UUID; none in the row of the process"),
        field("cpu_percent", REAL, "%", "of the process since the last sample; 100: one core"),
        field("memory_bytes", COUNT, "B", "resident set of the process"),
        field("node_cpu_percent", REAL, "%", "since the last sample; 100: all cores"),
        field("node_memory_available_bytes", COUNT, "B"),
        field("load_average_1min", REAL),
        field("package_energy_j", REAL, "J", "of the node's processors since the first sample"),
        field("dram_energy_j", REAL, "J", "of their memory since the first sample"),
        field("utilisation_percent", REAL, "%"),
        field("memory_used_bytes", COUNT, "B", "of the GPU"),
        field("power_w", REAL, "W"),
        field("temperature_c", REAL, "Cel"),
        field("clock_sm_mhz", REAL, "MHz"),
        field("clock_memory_mhz", REAL, "MHz"),
        field("throttle_reasons", NAME, note="joined by +"),
        field("energy_j", REAL, "J", "since the first sample"),
        field("other_gpu_processes", pa.int32(), note="that compute on the GPU and are not ours"),
    ]
)
RUN_TABLES = dict(zip(cells.OF_RUN, (STEPS, EVALS, SAMPLES), strict=True))

APART = "apart"  # of a run that is in no mean
LAST_EVALUATION = "on the validation data at the last evaluation"
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
        *of_run("xla", "compile", "deterministic", "recompute", "augment"),
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
            "of shards and all-reduces of groups; none: each device has all weights",
        ),
        field("reduced_bytes_per_step", COUNT, "bytes", "as those gathered; an all-reduce is both"),
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
        field(
            "import_s",
            REAL,
            "s",
            "from the trainer's first line to run_start: imports, data and build of its account",
        ),
        field("page_cache_share", REAL, "1", "of the dataset in memory, if page_cache is set"),
        field("nccl_version", NAME, note="of NCCL or RCCL, if the run used it"),
        field("nccl_network", NAME, note="between nodes"),
        field("nccl_transports", TEXT, note="by which channels reach their peers, with their ends"),
        field("nccl_algorithms", TEXT, note="of collectives, with their calls, if NCCL logs them"),
        field("gpudirect_rdma", pa.bool_(), note="whether all channels between nodes use it"),
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
        field("software_origin", TEXT, note="modules, Spack's packages, EasyBuild, EESSI"),
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
STUDY_TABLES = dict(
    zip(
        cells.OF_STUDY,
        (RUNS, EVALS, ACCOUNTS, METRICS, COVERAGE, COMPARISONS, SPEEDUPS, PUBLISHED, DRIFT, NODES,
         EXPLANATIONS, TRIES),
        strict=True,
    )
)  # fmt: skip


def with_settings(table: pa.Table, runs: pa.Table) -> pa.Table:
    """A table with the SETTINGS of the runs that its column `settings_of` names.

    `runs`: the table of runs.
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
MACHINE_TABLES = dict(zip(cells.OF_MACHINES, (BASELINES,), strict=True))


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
