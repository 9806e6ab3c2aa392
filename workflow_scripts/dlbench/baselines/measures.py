"""What baselines measure and under what conditions, by name, without what measures it."""

OF_EXCHANGE = ("all_reduce", "all_gather", "reduce_scatter", "sendrecv")
OF_DEVICE = ("matrix_product", "memory_copy", "host_to_device")  # whatever is read
# The fields of a run that identify a baseline.
CONDITIONS = (
    *("framework", "environment", "runtime", "runtime_options", "threads_per_device"),
    *("precision", "strategy", "strategy_options", "launcher", "nodes", "devices_per_node"),
    "node",
)
NOT_MEASURED = "not measured"  # how the reason of a baseline that failed begins
