"""The columns of the tables in the folder of each run: its steps, evaluations and samples."""

import pyarrow as pa

from dlbench.tables import table_names
from dlbench.tables.fields import COUNT, NAME, REAL, field

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
RUN_TABLES = dict(zip(table_names.OF_RUN, (STEPS, EVALS, SAMPLES), strict=True))
