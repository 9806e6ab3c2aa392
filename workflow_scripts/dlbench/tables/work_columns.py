"""Columns of the table of runs: rates, what a model computes, what its device could do, memory,
energy, and what else the machine did.
"""

import pyarrow as pa

from dlbench.tables.fields import COUNT, NAME, REAL, TEXT, field

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
        field(f"{name}_source", NAME, note="what was read: a counter, or power over time"),
        field(f"{name}_samples", COUNT, note="how often it was read; of processes the fewest"),
        field(f"{name}_sampled_share", REAL, "1", "of the time that readings cover; the least"),
        field(f"{name}_resolution_s", REAL, "s", "mean time between two readings; the longest"),
        field(f"{name}_unknown", TEXT, note="why it is not known"),
    ]


ENERGY = (
    *_energy("", "all GPUs", "run_start to run_end"),
    *_energy("host_", "processors and memory of all nodes, by RAPL", "run_start to run_end"),
    *_energy("node_", "the whole node, by site.power_meter", "run_start to run_end"),
    field("power_limit_found_w", REAL, "W", "of a GPU before the run set one, the least"),
    field("power_limit_enforced_w", REAL, "W", "by the driver of a GPU after that, the least"),
    field(
        "energy_remark",
        TEXT,
        note="energies of under 60 readings or of a part of the time; or none",
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
        "other_gpu_processes",
        pa.int32(),
        note="processes of other programs, the most on one GPU",
    ),
    field("disturbed", TEXT, note="what other processes used more of than allowed; none: nothing"),
    field(
        "neighbours_unknown",
        TEXT,
        note="what could not be measured about other processes and clocks, and why",
    ),
)
