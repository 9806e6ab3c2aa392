"""The columns of all tables, with their units in the metadata of the fields.

Dates are UTC. What a run has not is absent (null), never a stand-in.
"""

import pyarrow as pa


def _field(name, type_, unit="", note=""):
    metadata = {k: v for k, v in (("unit", unit), ("description", note)) if v}
    return pa.field(name, type_, metadata=metadata or None)


def _fields(type_, *names):
    return [_field(name, type_) for name in names]


def _with_interval(name, unit, note):
    """A value and the ends of its 95 % interval, absent where one run gives none."""
    return [
        _field(name, _real, unit, note),
        _field(f"{name}_ci95_low", _real, unit, "Student's or Welch's t on logarithms"),
        _field(f"{name}_ci95_high", _real, unit),
    ]


_text = pa.string()
_name = pa.dictionary(pa.int32(), pa.string())
_count, _real = pa.int64(), pa.float64()
_time = pa.timestamp("us", tz="UTC")

STEPS = pa.schema(
    [
        _field("run_id", _name),
        _field("rank", pa.int32()),
        _field("step", _count, note="from 1, warm-up included"),
        _field("epoch", pa.int32(), note="from 1"),
        _field("t_s", _real, "s", "end of the step since run_start"),
        _field("step_time_s", _real, "s", "since the end of the step before"),
        _field("loss", _real, note="mean over the rank's items of the step"),
        _field("learning_rate", _real),
        _field("warm_up", pa.bool_(), note="not counted in any summary"),
        _field("window_steps", _count, "steps", "whose mean the row is, where it is of several"),
    ]
)
EVALS = pa.schema(
    [
        _field("run_id", _name),
        _field("epoch", pa.int32()),
        _field("step", _count),
        _field("t_s", _real, "s", "end of the evaluation since run_start"),
        _field("split", _name),
        _field("loss", _real),
        _field("top1", _real, "1", "share of items whose best class is right"),
        _field("top5", _real, "1", "share of items with the right class among the best five"),
        _field("iou", _real, "1", "intersection over union of masks, all pixels together"),
        _field("perplexity", _real, "1", "exponential of the loss a word"),
        _field("examples", _count, "items"),
    ]
)
SAMPLES = pa.schema(
    [
        _field("run_id", _name),
        _field("rank", pa.int32()),
        _field("t_s", _real, "s", "since run_start"),
        _field("gpu", _name, note="NVML index or UUID; none in the row of the process"),
        _field("cpu_percent", _real, "%", "of the process since the last sample; 100: one core"),
        _field("memory_bytes", _count, "B", "resident set of the process"),
        _field("node_cpu_percent", _real, "%", "since the last sample; 100: all cores"),
        _field("node_memory_available_bytes", _count, "B"),
        _field("load_average_1min", _real),
        _field("utilisation_percent", _real, "%"),
        _field("memory_used_bytes", _count, "B", "of the GPU"),
        _field("power_w", _real, "W"),
        _field("temperature_c", _real, "Cel"),
        _field("clock_sm_mhz", _real, "MHz"),
        _field("clock_memory_mhz", _real, "MHz"),
        _field("throttle_reasons", _name, note="joined by +"),
        _field("energy_j", _real, "J", "since the first sample"),
        _field("other_gpu_processes", pa.int32(), note="that compute on the GPU and are not ours"),
    ]
)
RUNS = pa.schema(
    [
        _field("run_id", _text),
        *_fields(
            _name,
            "study",
            "site",
            "framework",
            "framework_version",
            "model",
            "dataset",
            "precision",
            "mode",
            "strategy",
            "launcher",
            "runtime",
            "runtime_options",
            "container_start",
            "environment",
            "trainer",
            "optimizer",
            "learning_rate_scaling",
            "strategy_options",
            "evaluate",
            "cache",
            "device_kind",
            "device_model",
            "status",
            "timing_source",
            "quality",
        ),
        _field("item_shape", _name),
        _field("message", _text, note="why the status is not ok"),
        _field("source", _text, note="of an imported run: its files with first and last line"),
        _field("notes", _text, note="of an imported run: what was converted, undone or left out"),
        _field("learning_gate", _text, note="reached, or by how much missed; none: no gate"),
        _field("xla", pa.bool_()),
        _field("deterministic", pa.bool_()),
        _field("augment", pa.bool_()),
        _field("nodes", pa.int32()),
        _field("devices_per_node", pa.int32()),
        _field("devices", pa.int32()),
        _field("threads_per_device", pa.int32()),
        _field("copies_per_node", pa.int32(), note="trained at once; all numbers are of one copy"),
        _field("repeat", pa.int32()),
        _field("seed", _count),
        _field("batch_per_device", _count, "items"),
        _field("global_batch", _count, "items"),
        _field("learning_rate", _real, note="before scaling"),
        _field("learning_rate_batch", _count, "items", "for which it is meant where it is scaled"),
        _field("learning_rate_warmup_steps", _count, "steps"),
        _field("steps", _count, "steps", "asked for, after the warm-up"),
        _field("warmup_steps", _count, "steps", "asked for"),
        _field("epochs", pa.int32(), "epochs", "asked for instead of steps"),
        _field("parameters", _count),
        _field("steps_measured", _count, "steps", "after the warm-up"),
        _field("burn_in_steps", _count, "steps", "left out of all summaries"),
        _field(
            "images_per_second",
            _real,
            "items/s",
            "items of the measured steps over their time on the slowest rank",
        ),
        _field(
            "copy_sd_images_per_second",
            _real,
            "items/s",
            "sample standard deviation over the copies trained at once",
        ),
        _field("overlap", _real, "1", "share of the copies' measured time in which all were"),
        _field("step_time_mean_s", _real, "s"),
        _field("step_time_sd_s", _real, "s", "sample standard deviation over the same steps"),
        _field("step_time_median_s", _real, "s"),
        _field("step_time_p95_s", _real, "s"),
        _field("step_time_mad_s", _real, "s", "1.4826 x median absolute deviation"),
        _field("compile_s", _real, "s", "making the graph, and the first step over the median one"),
        _field("start_s", _real, "s", "start of the container until the trainer's first line"),
        _field("import_s", _real, "s", "imports of the trainer, until run_start"),
        _field("first_batch_s", _real, "s", "run_start to the end of the first step"),
        _field(
            "first_epoch_images_per_second",
            _real,
            "items/s",
            "the first of several, kept apart; without its first step",
        ),
        _field(
            "epochs_images_per_second",
            _real,
            "items/s",
            "measured epochs x items of the dataset, over their time by the clock of the log",
        ),
        _field(
            "epochs_check", _text, note="agrees with images_per_second, or by how much it differs"
        ),
        _field(
            "synthetic_ratio",
            _real,
            "1",
            "images_per_second over the geometric mean of the same combination on synthetic items",
        ),
        _field("synthetic_runs", _count, "runs", "on synthetic items, which that mean is of"),
        _field("duration_s", _real, "s", "run_start to the end of the last step or evaluation"),
        _field("resumes", pa.int32(), note="times it went on from a checkpoint"),
        _field("energy_j", _real, "J", "of all GPUs, run_start to run_end"),
        _field(
            "energy_per_image_j",
            _real,
            "J",
            "energy_j over the items of all steps; compiling and evaluating included",
        ),
        _field(
            "time_to_accuracy_s",
            _real,
            "s",
            "run_start to the first evaluation with all scores of must_reach; none: never",
        ),
        _field(
            "training_time_to_accuracy_s",
            _real,
            "s",
            "the steps before that evaluation alone, the slowest rank's",
        ),
        _field("cpu_time_s", _real, "s", "of all processes, run_start to run_end"),
        _field("peak_memory_bytes", _count, "B", "resident set of the largest process"),
        _field("final_loss", _real, note="training loss of the last step"),
        _field("top1", _real, "1", "held-out items, last evaluation"),
        _field("top5", _real, "1", "held-out items, last evaluation"),
        _field("iou", _real, "1", "held-out items, last evaluation"),
        _field("perplexity", _real, "1", "held-out items, last evaluation"),
        _field("others_cpu_cores", _real, "cores", "what others used of cores, while measured"),
        _field("cores", pa.int32(), "cores", "CPUs that it might use, on the most disturbed node"),
        _field("node_others_cpu_cores", _real, "cores", "on all CPUs of the first node"),
        _field("node_cores", pa.int32(), "cores", "CPUs of the first node"),
        _field("steal_cpu_cores", _real, "cores", "of cores, taken by a hypervisor"),
        _field("cpu_pressure_percent", _real, "%", "of the time, some process waited for a CPU"),
        _field("memory_pressure_percent", _real, "%", "some process waited for memory"),
        _field("io_pressure_percent", _real, "%", "some process waited for a disk"),
        _field("others_disk_bytes_per_s", _real, "B/s", "read and written by others, all disks"),
        _field("cpu_clock_mhz", _real, "MHz", "mean over time and cores"),
        _field("cpu_throttle_count", _count, note="cores slowed down for heat, start to end"),
        _field("load_before_1min", _real, note="load average when the trainer was started"),
        _field("waited_for_quiet_s", _real, "s", "before the trainer was started"),
        _field("other_gpu_processes", pa.int32(), note="of others, the most on a GPU of its"),
        _field("disturbed", _text, note="what others used more of than they may; none: nothing"),
        _field("neighbours_unknown", _text, note="why some of these are not known"),
        _field("started_at", _time),
        _field("ended_at", _time),
        _field("host", _name),
        _field("session", _name, note="the start of the workflow that trained it; none: unknown"),
        _field("git_commit", _name),
        _field("git_dirty", pa.bool_()),
        _field("image_digest", _text, note="of the image that the run was in; none on bare metal"),
        _field("data_sha256", _text, note="of the manifest's list of shards"),
        _field("hardware_sha256", _text, note="of what equal nodes share; none: not known"),
        _field("software_sha256", _text, note="of system, packages, framework; none: not known"),
        _field(
            "repeats_differ",
            _text,
            note="in what hardware, software or settings, from the first repeat; none: in nothing",
        ),
        _field("log_sha256", _text),
        _field("parser_version", pa.int32()),
    ]
)

SENTINELS = RUNS.insert(
    RUNS.get_field_index("repeat") + 1,
    _field("sentinel", pa.int32(), note="the how manieth session with sentinels it is of, from 1"),
)
# What the runs of a group, or of a series, have in common, besides the framework.
_COMBINATION = (
    "model",
    "dataset",
    "precision",
    "mode",
    "strategy",
    "strategy_options",
    "launcher",
    "runtime",
    "runtime_options",
    "environment",
    "trainer",
    "optimizer",
    "learning_rate_scaling",
    "evaluate",
    "cache",
    "device_kind",
)
_FLAGS = ("xla", "deterministic", "augment")
_COUNTS = ("threads_per_device", "copies_per_node", "epochs")
_LEARNING_RATE = (
    _field("learning_rate", _real),
    _field("learning_rate_batch", _count, "items"),
    _field("learning_rate_warmup_steps", _count, "steps"),
)
_across_sessions = [
    _field("measured_apart", pa.bool_(), note="no session has runs of both sides"),
    *_with_interval("drift", "1", "between their sessions, for which it is corrected; else none"),
]
COMPARISONS = pa.schema(
    [
        *_fields(_name, "study", "field"),
        _field("condition", _name, note="value of the field, with the options that go with it"),
        _field("base", _name, note="the condition it is compared with: b; the other one is a"),
        # What a group of runs has in common, and of the compared field the value of a.
        *_fields(_name, "site", "timing_source", "framework", *_COMBINATION),
        *_fields(pa.bool_(), *_FLAGS),
        *_fields(pa.int32(), "nodes", "devices_per_node", "devices", *_COUNTS),
        _field("seed", _count),
        _field("batch_per_device", _count, "items"),
        _field("global_batch", _count, "items"),
        _field("steps", _count, "steps"),
        _field("warmup_steps", _count, "steps"),
        *_LEARNING_RATE,
        _field("ratio", _real, "1", "of the geometric means of images_per_second, a over b"),
        _field("ci90_low", _real, "1", "Welch's interval on logarithms, of this comparison alone"),
        _field("ci90_high", _real, "1"),
        _field("ci95_low", _real, "1"),
        _field("ci95_high", _real, "1"),
        _field("margin", _real, "1", "equivalent is from 1 / (1 + margin) to 1 + margin"),
        _field("scatter", _real, "1", "standard deviation of log images_per_second, pooled"),
        _field("p_tost", _real, "1", "of a ratio within the margin, adjusted (Holm)"),
        _field("p_difference", _real, "1", "of a ratio other than 1, adjusted (Holm)"),
        _field("p_tost_raw", _real, "1", "before the adjustment"),
        _field("p_difference_raw", _real, "1", "before the adjustment"),
        _field("family", _count, note="comparisons for which p is adjusted"),
        _field("verdict", _name, note="by the adjusted p; no runs, no base: nothing to compare"),
        _field("repeats_needed", _count, note="of each condition for a verdict; 1000: or more"),
        _field("n_a", _count, "runs"),
        _field("n_b", _count, "runs"),
        _field("base_flags", _text, note="what else differs between runs of a and b"),
        *_across_sessions,
        *(
            _field(f"{name}_{side}{unit and '_s'}", _real, unit or "items/s", note)
            for name, unit, note in (
                ("images_per_second", "", "geometric mean over runs"),
                ("step_time_sd", "s", "mean over runs of the standard deviation over steps"),
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
        _field("study", _name),
        _field(
            "scaling", _name, note="weak: batch per device fixed; strong: global batch; or none"
        ),
        # What a series has in common; names of its first runs where these differ.
        *_fields(_name, "site", "framework", "framework_version", *_COMBINATION),
        *_fields(_name, "device_model", "timing_source", "item_shape"),
        *_fields(pa.bool_(), *_FLAGS),
        *_fields(pa.int32(), *_COUNTS),
        _field("steps", _count, "steps"),
        *_LEARNING_RATE,
        _field("devices", pa.int32()),
        _field("nodes", pa.int32()),
        _field("batch_per_device", _count, "items"),
        _field("global_batch", _count, "items"),
        _field("runs", _count, "runs", "repeats that ended well"),
        _field("unstable_runs", _count, "runs", "of them, those that are not to be relied on"),
        *_with_interval("images_per_second", "items/s", "geometric mean over runs"),
        *_with_interval("speedup", "1", "throughput over that of the base"),
        *_with_interval("efficiency", "1", "speedup times the base's devices over these"),
        _field("base_strategy", _name, note="another one where the base is borrowed"),
        _field("base_devices", pa.int32()),
        _field("base_nodes", pa.int32()),
        _field("base_runs", _count, "runs"),
        *_with_interval("base_images_per_second", "items/s", "geometric mean over runs"),
        _field("base_mismatch", _text, note="what should agree with the base and does not"),
        *_across_sessions,
        *_with_interval("serial_fraction", "1", "Amdahl's, of the series; strong scaling"),
        *_with_interval("usl_alpha", "1", "contention, of the series"),
        *_with_interval("usl_beta", "1", "coherency, of the series"),
        _field("fit", _text, note="fitted, or why no law is fitted to the series"),
        _field("note", _text, note="what is missing in this row, and why"),
    ]
)
DRIFT = pa.schema(
    [
        _field("study", _name),
        *_fields(_name, "site", "device_kind"),
        *_fields(pa.int32(), "nodes", "devices_per_node"),
        _field("earlier_session", _name, note="`session` of its runs; none: not known"),
        _field("later_session", _name, note="the same of the later one"),
        _field("earlier_started_at", _time, note="the first of its runs on such devices"),
        _field("later_started_at", _time, note="the same of the later session"),
        _field("conditions", _count, note="measured in both"),
        _field("earlier_runs", _count, "runs", "of these conditions, sentinels included"),
        _field("later_runs", _count, "runs", "the same of the later session"),
        *_with_interval("ratio", "1", "of throughputs, later over earlier"),
        _field("margin", _real, "1", "equivalent is from 1 / (1 + margin) to 1 + margin"),
        _field(
            "verdict",
            _name,
            note="none: equivalent to none (TOST); faster, slower: by a two-sided test; "
            "undecided; too few runs: of every condition that leads from one to the other",
        ),
    ]
)
COVERAGE = pa.schema(
    [
        _field("run_id", _text, note="none: the combination was excluded"),
        _field("combination", _text),
        _field(
            "status",
            _name,
            note="ok, unstable, oom, timeout, failed, skipped, excluded, stale, imported; "
            "of an unfinished study also running, pending, unread, interrupted",
        ),
        _field("reason", _text, note="why, and what a run that ended well missed"),
    ]
)
PUBLISHED = pa.schema(
    [
        _field("study", _name),
        _field("reference", _name, note="folder of the study that it was published in"),
        _field("point", _name, note="what was measured, with the settings that are stated"),
        *_fields(_name, "site", "device_kind", "device_model", "framework", "framework_version"),
        *_fields(_name, "model", "dataset", "item_shape", "precision", "mode", "strategy"),
        *_fields(_name, "launcher", "runtime"),
        *_fields(pa.int32(), "nodes", "devices"),
        _field("batch_per_device", _count, "items"),
        _field("epochs", pa.int32(), "epochs"),
        _field("metric", _name),
        _field("value", _real, note="in the unit of its row"),
        _field("unit", _name),
        _field("low", _real, note="least, where a range was published"),
        _field("high", _real, note="most"),
        _field("printed", _text, note="as the source has it"),
        _field("base", _name, note="the point that a relative number is relative to"),
        _field("base_mismatch", _text, note="what should agree with the base and does not"),
        _field("recomputed", _real, note="from what was published of the point and of its base"),
        _field("agrees", pa.bool_(), note="recomputed and rounded as printed, it is the value"),
        _field("quality", _name, note="printed, derived (computed) or read_off (a picture)"),
        *_fields(_name, "source", "page"),
        _field("note", _text),
        *_with_interval("own", "", "geometric mean of own runs (scores: arithmetic), or ratio"),
        _field("own_runs", _count, "runs", "of a ratio, of the side with the fewer"),
        _field("own_differs", _text, note="stated settings in which own runs differ"),
        _field("own_note", _text, note="why there is no own number though runs match"),
        _field("own_over_published", _real, "1"),
    ]
)
