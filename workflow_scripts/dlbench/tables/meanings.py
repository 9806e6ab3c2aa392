"""Meanings of columns whose fields (table_columns.py, run_columns.py) have no description.

A key with a table before its dot is of that table only. Columns that are keys of a matrix block
are described in config.schema.json. For the page of all columns,
dlbench/tables/write_reference_pages.py.
"""

TABLES = {
    "runs": "One row for each run: own, imported (`timing_source` names the kind of log) and "
    "published. Means and figures are of those without `apart`.",
    "evals": "One row for each evaluation on held-out items.",
    "accounts": "Where the wall time of own runs went: one row for each part of a run that took "
    "any. The parts of a run add up to its `wall_s`.",
    "metrics": "One row for each metric of each run, of sentinels too: a number that the run's "
    "program names itself.",
    "coverage": "One row for each combination and repeat that the config asks for, whatever became "
    "of it, and for each imported run.",
    "comparisons": "One row for each condition, its base and metric, as `compare` asks.",
    "drift": "One row for each device shape and pair of sessions that measured the same "
    "conditions, of throughput and of each metric that programs name and whose values are above "
    "0.",
    "nodes": "How fast nodes are beside one another, by runs on one node: one row for each node, "
    "the slowest first; none where no two can be compared.",
    "speedups": "One row for each series and number of devices.",
    "published": "One row for each published number, with the own runs that match it.",
    "tries": "One row for each batch that a search for the largest one tried "
    "(`batch_per_device: max`). Tries are no runs, and in no statistics.",
    "explanations": "What a step is made of: one row for each part of each condition of a block "
    "with `explain`.",
    "baselines": "One row for each size of each baseline: what machines attain without a model, "
    "through the libraries that train. Made by `uv run snakemake baselines`.",
    "steps": "One row for each step (or window of steps) and rank, in `results/runs/{run_id}/`.",
    "samples": "One row for each sample of a process or of one of its GPUs, in "
    "`results/runs/{run_id}/`.",
    "sessions": "One row for each condition and metric of a session of a "
    "[history](history.md), in `history/site=S/year=Y/`: `site` and `year` are in the path. As "
    "Parquet only.",
    "campaigns": "One row for each file of a history: whether it counts, in `results/history/`.",
    "series": "`sessions` of all sites and machines together, without those that do not count, in "
    "`results/history/`. As Parquet only.",
    "findings": "One row for each change of level in a history, in `results/history/`.",
    "changes": "One row for each condition of a finding, in `results/history/`.",
}
MEANINGS = {
    "run_id": "names the run, and its folder in results/runs/",
    "study": "name of the study in its config; of an imported run that of the import",
    "site": "name of the machine (site.name)",
    "framework_version": "as the framework reports it",
    "item_shape": "shape of one input of the model, as 224x224x3; none: unknown",
    "device_kind": "cpu or gpu",
    "device_model": "name of the processor or GPU",
    "devices": "nodes times devices_per_node",
    "global_batch": "items of a step over all devices",
    "container_start": "what started the container: directive (Snakemake) or command",
    "status": "ok, unstable, oom, timeout, failed or skipped",
    "timing_source": "whose clock: dlbench, a kind of log that was imported, or published",
    "quality": "of a published number: printed, derived or read_off",
    "parameters": "trainable weights of the model",
    "step_time_mean_s": "over the measured steps of the slowest rank",
    "step_time_median_s": "median of the steps of step_time_mean_s; a window counts as its mean",
    "step_time_p95_s": "95th percentile of the steps of step_time_mean_s, linear between the two "
    "nearest",
    "started_at": "UTC",
    "ended_at": "UTC",
    "host": "node of the first process",
    "git_commit": "of the workflow when the run was started",
    "git_dirty": "whether files under git, profiles apart, differed from that commit",
    "release": "of dlbench, if it was installed from a wheel: version and digest of its files; "
    "`.changed` if some are not those that were installed",
    "log_sha256": "of the raw log that the record was made from",
    "parser_version": "of the code that made the record from the log",
    "rank": "of the process, from 0",
    "evals.step": "the last one before the evaluation",
    "evals.epoch": "from 1; 0 before training",
    "split": "validation: the held-out items; of several sets in a log their names",
    "evals.loss": "mean over the held-out items",
    "steps.learning_rate": "of the step",
    "ci90_high": "upper end of the 90 % interval",
    "ci95_low": "lower end of the 95 % interval",
    "ci95_high": "upper end of the 95 % interval",
    "examples": "items that were scored",
    "node_memory_available_bytes": "of the node",
    "load_average_1min": "of the node",
    "utilisation_percent": "of the GPU",
    "power_w": "of the GPU",
    "temperature_c": "of the GPU",
    "clock_sm_mhz": "of the GPU's processors",
    "clock_memory_mhz": "of the GPU's memory",
    "combination": "what was to be trained, in words",
    "field": "of a run, in which the conditions differ",
    "runtime_options": "settings of the runtime",
    "strategy_options": "settings of the strategy",
    "n_a": "runs of the condition that completed (ok or unstable)",
    "n_b": "runs of the base that completed (ok or unstable)",
    "ratio": "condition over base",
    "base_devices": "devices of the base",
    "base_nodes": "nodes of the base",
    "base_runs": "repeats of the base that completed (ok or unstable)",
    "published.base": "the point that a relative number is relative to",
    "metric": "a number of the table runs, or one relative to another point",
    "published.unit": "of the value",
    "page": "page, slide or table of the source",
    "published.source": "short citation",
    "published.note": "errata and what else to know",
    "own_over_published": "the own number over the published one",
}
