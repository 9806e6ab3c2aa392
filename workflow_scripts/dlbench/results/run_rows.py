"""Rows of the table of runs: from a record, and what needs its gate or other runs.

- Energy per image, of runs that were not resumed.
- Bits per byte of held-out text, where it is known how many bytes a token has.
- Epochs x images / time, by the clock of the log, beside the throughput of the steps.
- Time to accuracy: the first evaluation with all scores that the learning gate asks for.
- What items are, and the throughput in tokens and of a device.
- Throughput over that of the same combination on synthetic items of the same shape.
- Achieved FLOP/s are those that the model needs for the items of the measured steps, over their
  time: data loading and all else included. MFU is their share of the device's peak
  (A. Chowdhery et al. (2022), PaLM, arXiv:2204.02311, appendix B).
- HFU: the same with the FLOPs of activations that are computed again, of runs that do.
- Arithmetic intensity: the same FLOPs over the bytes that the products read and write, each on its
  own: what they take and give of each item, and the model's weights once for a batch of a device.
  A step that learns has three times both, so it has that of its forward pass.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dlbench.analysis import comparisons, estimates, run_tables
from dlbench.common import plugins
from dlbench.log import energies, event_fields
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import binding, device_peaks, fingerprints, gpus
from dlbench.records import run_record
from dlbench.study import contradictions, goals, other_trainers, runs, wording
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import table_columns
from dlbench.tables.cells import Row
from dlbench.trainer import engine, model_flops

AGREES = "agrees"
NEXT_TOKEN = "language"  # noqa: S105 - the task of models that predict each token of a text
CLOCK_SHARE = 0.05  # the clock and the steps may differ by so much, and by one batch
BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}  # of a number in products
TERA = 1e12
_KNOWN = tuple(name for name in FIELDS if name in table_columns.RUNS.names)
_WITHOUT_COLUMN = ("copies_images_per_second", "account_s", "metrics", "host_energy_sampled_share")
_NOT_INSTALLED = "is not installed"  # in the message of a run that is skipped for that reason


def row(
    record: dict[str, Any],
    study: Any,
    device_kind: str | None,
    results: Path = run_record.RESULTS,
) -> Row:
    """The row of a run in the runs table, without the columns that need other runs.

    Its settings are those of the record, whatever a config says of them by now.

    Args:
        study: a Study, or an object with its `name`, `site`, `must_reach` and `with_found_batch`,
            which is None where that is not known.
        device_kind: cpu or gpu; None if unknown.
        results: the folder of the run's results.

    Raises:
        TypeError: the record is of no run: a field is unknown or missing.
    """
    run = Run(**record["spec"])
    provenance, summary = record["provenance"], dict(record["summary"])
    for name in _WITHOUT_COLUMN:
        summary.pop(name, None)
    for key in ("started_at", "ended_at"):
        if summary.get(key):
            summary[key] = datetime.fromisoformat(summary[key])
    if run.is_external and (flops := other_trainers.stated(run, "model_flops_per_item")):
        summary["model_flops_per_item"] = flops
    versions = provenance["versions"] or {}
    notes = [
        *(provenance.get("imported") or {}).get("notes", []),
        fingerprints.unlike_nodes(provenance),
        binding.caveat(provenance.get("bindings") or ()),
        gpus.describe_errors(provenance.get("xids") or ()),
    ]
    unstated = other_trainers.unstated(run)
    values = {name: None if name in unstated else getattr(run, name) for name in _KNOWN} | {
        "run_id": run.id,
        "study": study.name,
        "precision": other_trainers.precision(run),
        "site": study.site["name"],
        "devices": run.devices,
        "global_batch": run.global_batch,
        "batch_found": _is_batch_found(run, study),
        "framework_version": versions.get(run.framework),
        "device_kind": device_kind,
        "device_model": provenance["device_model"],
        "container_start": (provenance["container"] or {}).get("start"),
        "image_digest": (provenance["container"] or {}).get("digest"),
        "status": record["status"],
        "message": record["message"],
        "learning_gate": _gate(study.must_reach.get(run.id), record),
        "timing_source": (provenance.get("imported") or {"kind": "dlbench"})["kind"],
        "notes": "; ".join(filter(None, notes)) or None,
        "host": provenance["host"],
        "session": (provenance.get("session") or {}).get("id"),
        "data_sha256": provenance["data_sha256"],
        "item_shape": shape_text(provenance.get("item_shape")),
        "attention": provenance.get("attention"),
        **exchanged_bytes(provenance.get("strategy_settings") or {}),
        **fingerprints.columns(provenance),
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "release": provenance.get("release"),
        "log_sha256": record["log_sha256"],
        "parser_version": record["parser_version"],
        "bits_per_byte": _bits_per_byte(run, record, results),
        **energies_per_image_j(run, summary),
        "epochs_check": epochs_check(summary),
        **_time_to_accuracy(run, record, study, results),
        **use_of_peak(
            run,
            summary,
            provenance["device_model"],
            device_kind,
            study.site.get("device_peak_tflops"),
        ),
        **summary,
    }
    values["apart"] = _apart(run, values, getattr(study, "sentinels_are_repeats", False))
    return contradictions.marked(values)


def exchanged_bytes(settings: dict[str, Any]) -> Row:
    """The bytes that the collectives of a step gather and reduce; an all-reduce does both.

    >>> exchanged_bytes({"gathered_bytes_per_step": 8, "all_reduced_bytes_per_step": 2})
    {'gathered_bytes_per_step': 10, 'reduced_bytes_per_step': 2}
    """
    names = ("gathered_bytes_per_step", "reduced_bytes_per_step")
    counts, both = map(settings.get, names), settings.get("all_reduced_bytes_per_step")
    known = not settings.keys().isdisjoint((*names, "all_reduced_bytes_per_step"))
    totals = ((count or 0) + (both or 0) if known else None for count in counts)
    return dict(zip(names, totals, strict=True))


def _is_batch_found(run, study):
    """Whether a search found the batch of a run, or of the one that it repeats; None: unknown."""
    ids = study.with_found_batch
    return None if ids is None else bool(ids) and not ids.isdisjoint({run.id, run.combination.id})


def _gate(must_reach, record):
    """What the learning gate says of a run; None of one that was skipped, so could miss nothing."""
    return None if record["status"] == "skipped" else goals.gate(must_reach, record["summary"])


def _apart(run, row, sentinels_are_repeats):
    """Why a row is in no mean; None if it is in them."""
    if run.probe:
        return "probe"
    if not is_result(row):
        return "not installed"
    counts = sentinels_are_repeats and row["status"] in event_fields.SUCCEEDED
    return "sentinel" if run.sentinel and not counts else None


def is_result(row: Row) -> bool:
    """Whether a row is in figures; else what its run needs was not installed."""
    return row["status"] != "skipped" or _NOT_INSTALLED not in (row["message"] or "")


def metrics(record: dict[str, Any]) -> list[Row]:
    """The rows of a run in the table of metrics."""
    return [{"run_id": record["run_id"], **one} for one in record["summary"].get("metrics", [])]


def shape_text(shape: Sequence[int] | None) -> str | None:
    """The shape of an item as text; None if it is not known.

    >>> shape_text([224, 224, 3]), shape_text(None)
    ('224x224x3', None)
    """
    return "x".join(map(str, shape)) if shape else None


def energies_per_image_j(run: Run, summary: dict[str, Any]) -> dict[str, float | None]:
    """Joules an item, by column; None if energy is not known, or only since a resumption."""
    steps = (summary.get("burn_in_steps") or 0) + (summary.get("steps_measured") or 0)
    steps = 0 if summary.get("resumes") else steps
    items = steps * run.global_batch * run.copies_per_node
    energies_j = {prefix: summary.get(f"{prefix}energy_j") for prefix in energies.SUBJECTS}
    return {
        f"{prefix}energy_per_image_j": energy_j / items if items and energy_j is not None else None
        for prefix, energy_j in energies_j.items()
    }


def _bits_per_byte(run, record, results):
    """Those of the last evaluation; None if it has no loss, or the bytes of a token are unknown."""
    perplexity = record["summary"].get("perplexity") or 0.0
    if record["status"] not in event_fields.SUCCEEDED or not (perplexity > 0 or run.is_external):
        return None
    token_bytes = bytes_per_token(run)
    if token_bytes is None:
        return None
    if perplexity > 0:
        return bits_per_byte(math.log(perplexity), token_bytes)
    run_tables.ensure_run_tables(run.id, record["log_sha256"], results)
    evals = run_tables.run_table(run_record.folder(run.id, results), "evals").to_pylist()
    losses = [row["loss"] for row in evals if row["loss"] is not None]
    return bits_per_byte(losses[-1], token_bytes) if losses else None


def bytes_per_token(run: Run) -> float | None:
    """Bytes of held-out text for a token that a run predicts; None if they are not known.

    A model that predicts masked tokens alone has no bits per byte.
    """
    if run.is_external:
        return other_trainers.stated(run, "bytes_per_token")
    kind = engine.plugin_kind(run.framework, "models")
    if not (plugins.is_known(kind, run.model) and plugins.is_known("datasets", run.dataset)):
        return None  # of an older study
    if plugins.constants(kind, run.model).get("TASK") != NEXT_TOKEN:
        return None
    return plugins.constants("datasets", run.dataset).get("BYTES_PER_TOKEN")


def bits_per_byte(loss: float, token_bytes: float) -> float | None:
    """Bits that a model needs for a byte of text, whatever its tokenizer; None if not finite.

    The formula is that of L. Gao et al. (2020), The Pile, arXiv:2101.00027, section 3.1.

    >>> bits_per_byte(math.log(256), 1)
    8.0

    `loss`: cross-entropy, nats a token.
    """
    return loss / math.log(2) / token_bytes if math.isfinite(loss) else None


def epochs_check(summary: dict[str, Any]) -> str | None:
    """AGREES if epochs x images / time is the throughput of the steps, else by how much it differs.

    None if the run has no whole measured epoch. The two may differ by CLOCK_SHARE, and by the one
    batch that goes across the end of an epoch.
    """
    clock, steps = summary.get("epochs_images_per_second"), summary.get("images_per_second")
    if not clock or not steps:
        return None
    allowed = CLOCK_SHARE + 1 / summary["steps_measured"]
    if abs(clock / steps - 1) <= allowed:
        return AGREES
    return (
        f"{100 * (clock / steps - 1):+.1f} %: epochs x images / time is {clock:.4g} items/s, "
        f"the steps say {steps:.4g}; expected at most {100 * allowed:.3g} % apart"
    )


def disagreement(checked: str | None) -> str:
    """The message of an `epochs_check` that failed; "" for any other."""
    if not checked or checked == AGREES:
        return ""
    return f"throughput by the clock differs by {checked}"


def _time_to_accuracy(run, record, study, results):
    """The columns on time to accuracy; {} unless the run completed and reached its gate."""
    must_reach = study.must_reach.get(run.id)
    if not must_reach or record["status"] not in event_fields.SUCCEEDED:
        return {}
    run_tables.ensure_run_tables(run.id, record["log_sha256"], results)
    folder = run_record.folder(run.id, results)
    evals = run_tables.run_table(folder, "evals").to_pylist()
    first = reached_at(must_reach, evals)
    if first is None:
        return {}
    steps = run_tables.run_table(folder, "steps")
    steps = steps.filter(pc.is_valid(steps["step_time_s"]))
    windows_s = pc.multiply(steps["step_time_s"], steps["window_steps"].fill_null(1))
    columns = (column.to_numpy() for column in (steps["rank"], steps["step"], windows_s))
    return {
        "time_to_accuracy_s": first["t_s"],
        "training_time_to_accuracy_s": training_time_s(*columns, first["step"]),
    }


def reached_at(must_reach: dict[str, Any] | None, evals: Iterable[Row]) -> Row | None:
    """The first evaluation with all scores that a gate asks for; None if there is none.

    Args:
        must_reach: bounds by score; final_loss, of training, and metrics are left out.
        evals: rows of the evals table, in their order.
    """
    not_evaluated = ("final_loss", goals.METRICS)
    bounds = {k: v for k, v in (must_reach or {}).items() if k not in not_evaluated}
    if not bounds:
        return None
    return next((row for row in evals if not goals.describe_miss(bounds, row)), None)


def training_time_s(
    ranks: np.ndarray, steps: np.ndarray, step_times_s: np.ndarray, until: int
) -> float:
    """Seconds of the steps up to one of them, on the rank that took longest for them.

    Args:
        ranks, steps: columns of the steps table.
        step_times_s: of each row, that of a whole window where the row is of one.
        until: the last step that counts.

    >>> ranks, steps = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 2, 3, 1, 2, 3])
    >>> training_time_s(ranks, steps, np.array([5.0, 1, 1, 4, 2, 9]), until=2)
    6.0
    """
    counted = steps <= until
    by_rank = np.bincount(ranks[counted], weights=step_times_s[counted])
    return float(by_rank.max(initial=0.0))


def use_of_peak(
    run: Run,
    summary: Mapping[str, Any],
    device_model: str | None,
    kind: str | None,
    site_peaks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The columns of one run; None where a number is not known.

    Args:
        summary: of its record.
        kind: of its devices, cpu or gpu; None if unknown.
        site_peaks: peaks that the site states: see device_peaks.peak.
    """
    precision = other_trainers.precision(run)
    peak = device_peaks.peak(device_model, precision, kind, run.threads_per_device, site_peaks)
    flops, rate = summary.get("model_flops_per_item"), summary.get("images_per_second")
    achieved = flops * rate / run.devices / TERA if flops and rate else None
    executed_flops = summary.get("hardware_flops_per_item")
    executed = achieved * executed_flops / flops if achieved and flops and executed_flops else None
    return {
        "arithmetic_intensity": intensity(run, summary),
        "achieved_tflops_per_device": achieved,
        "device_peak_tflops": peak.tflops,
        "device_peak_source": peak.source,
        "device_memory_gb_per_s": peak.memory_gb_per_s,
        "mfu": _share(achieved, peak.tflops),
        "mfu_of_attainable": _share(achieved, summary.get("attainable_tflops")),
        "hfu": _share(executed, peak.tflops),
        "hfu_of_attainable": _share(executed, summary.get("attainable_tflops")),
    }


def intensity(run: Run, summary: Mapping[str, Any]) -> float | None:
    """FLOPs for each byte that products read and write; None if not known."""
    flops, values = summary.get("model_flops_per_item"), summary.get("values_per_item")
    weights, width = summary.get("parameters"), BYTES.get(other_trainers.precision(run) or "")
    if not flops or not values or weights is None or not width:
        return None
    forward = run.batch_per_device * flops / model_flops.PASSES[run.mode]
    return forward / (width * (run.batch_per_device * values + weights))


def _share(achieved, peak):
    return achieved / peak if achieved and peak else None


def with_shared(rows: Sequence[Row]) -> list[Row]:
    """Rows of the runs table with the columns that need other rows, and those that follow.

    What items are, the rates in tokens, and throughput over that on synthetic items.
    """
    shapes: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        if row.get("item_shape"):
            shapes.setdefault(_data_key(row), set()).add(row["item_shape"])
    rows = [row | _item(row, shapes.get(_data_key(row), set())) for row in rows]
    synthetic: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if _is_measured(row) and comparisons.is_synthetic(row["dataset"]) and row.get("item_shape"):
            synthetic.setdefault(_partner_key(row), []).append(row)
    return [row | _beside_synthetic(row, synthetic.get(_partner_key(row))) for row in rows]


def _item(row, shapes):
    """What a row's items are; where its shape is missing, that of other runs of model and data."""
    shape = row.get("item_shape") or (next(iter(shapes)) if len(shapes) == 1 else None)
    rate, devices = row.get("images_per_second"), row.get("devices")
    return {"item_shape": shape} | wording.item_columns(shape, rate, devices)


def _beside_synthetic(row, twins):
    """Throughput over that on synthetic items.

    The partner is equal in all of SAME_SPEED and in the shape of its items, site, device and
    framework's version; its throughput is the geometric mean of its completed repeats. If
    partners have several lengths, those as long as the run count (`of_length`).
    """
    if not twins or not _is_measured(row) or comparisons.is_synthetic(row["dataset"]):
        return {}
    rates = [partner["images_per_second"] for partner in comparisons.of_length(row, twins)]
    ratio = row["images_per_second"] / estimates.mean(rates).value
    return {"synthetic_ratio": ratio, "synthetic_runs": len(rates)}


def _partner_key(row):
    names = (*runs.SAME_SPEED, "site", "framework_version", "device_model", "item_shape")
    return tuple(row.get(name) for name in names)


def _data_key(row):
    return tuple(row.get(n) for n in ("model", "dataset", "trainer", "timing_source", "study"))


def _is_measured(row):
    usable = row["status"] in SUCCEEDED and not row.get(contradictions.REASON)
    usable = usable and not row.get("apart")
    return usable and (row.get("images_per_second") or 0) > 0
