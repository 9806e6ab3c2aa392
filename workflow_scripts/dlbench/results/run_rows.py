"""The row of a run in the table of runs."""

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from dlbench.analysis import run_tables
from dlbench.log import event_fields
from dlbench.machine import binding, fingerprints
from dlbench.records import run_record
from dlbench.results import derived, peak_use
from dlbench.study import contradictions, goals, other_trainers
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import table_columns
from dlbench.tables.cells import Row

_KNOWN = tuple(name for name in FIELDS if name in table_columns.RUNS.names)
_WITHOUT_COLUMN = ("copies_images_per_second", "account_s", "metrics")
_NOT_INSTALLED = "is not installed"  # in the message of a run that is skipped for that reason
_EXCHANGED = ("gathered_bytes_per_step", "reduced_bytes_per_step")


def _time_to_accuracy(run, record, study, results):
    """The columns on time to accuracy; {} unless the run completed and reached its gate."""
    must_reach = study.must_reach.get(run.id)
    if not must_reach or record["status"] not in event_fields.SUCCEEDED:
        return {}
    run_tables.ensure_run_tables(run.id, record["log_sha256"], results)
    folder = run_record.folder(run.id, results)
    evals = run_tables.run_table(folder, "evals").to_pylist()
    first = derived.reached_at(must_reach, evals)
    if first is None:
        return {}
    steps = run_tables.run_table(folder, "steps")
    steps = steps.filter(pc.is_valid(steps["step_time_s"]))
    windows_s = pc.multiply(steps["step_time_s"], steps["window_steps"].fill_null(1))
    columns = (column.to_numpy() for column in (steps["rank"], steps["step"], windows_s))
    return {
        "time_to_accuracy_s": first["t_s"],
        "training_time_to_accuracy_s": derived.training_time_s(*columns, first["step"]),
    }


def _bits_per_byte(run, record, results):
    """Those of the last evaluation; None if it has no loss, or the bytes of a token are unknown."""
    perplexity = record["summary"].get("perplexity") or 0.0
    if record["status"] not in event_fields.SUCCEEDED or not (perplexity > 0 or run.is_external):
        return None
    token_bytes = derived.bytes_per_token(run)
    if token_bytes is None:
        return None
    if perplexity > 0:
        return derived.bits_per_byte(math.log(perplexity), token_bytes)
    run_tables.ensure_run_tables(run.id, record["log_sha256"], results)
    evals = run_tables.run_table(run_record.folder(run.id, results), "evals").to_pylist()
    losses = [row["loss"] for row in evals if row["loss"] is not None]
    return derived.bits_per_byte(losses[-1], token_bytes) if losses else None


def _is_batch_found(run, study):
    """Whether a search found the batch of a run, or of the one that it repeats; None: unknown."""
    ids = study.with_found_batch
    return None if ids is None else bool(ids) and not ids.isdisjoint({run.id, run.combination.id})


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
        "item_shape": derived.shape_text(provenance.get("item_shape")),
        "attention": provenance.get("attention"),
        **{name: (provenance.get("strategy_settings") or {}).get(name) for name in _EXCHANGED},
        **fingerprints.columns(provenance),
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "release": provenance.get("release"),
        "log_sha256": record["log_sha256"],
        "parser_version": record["parser_version"],
        "bits_per_byte": _bits_per_byte(run, record, results),
        **derived.energies_per_image_j(run, summary),
        "epochs_check": derived.epochs_check(run, summary),
        **_time_to_accuracy(run, record, study, results),
        **peak_use.columns(
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


def is_result(row: Row) -> bool:
    """Whether a row is in figures; else what its run needs was not installed."""
    return row["status"] != "skipped" or _NOT_INSTALLED not in (row["message"] or "")


def metrics(record: dict[str, Any]) -> list[Row]:
    """The rows of a run in the table of metrics."""
    return [{"run_id": record["run_id"], **one} for one in record["summary"].get("metrics", [])]


def _apart(run, row, sentinels_are_repeats):
    """Why a row is in no mean; None if it is in them."""
    if run.probe:
        return "probe"
    if not is_result(row):
        return "not installed"
    counts = sentinels_are_repeats and row["status"] in event_fields.SUCCEEDED
    return "sentinel" if run.sentinel and not counts else None


def _gate(must_reach, record):
    """What the learning gate says of a run; None of one that was skipped, so could miss nothing."""
    if record["status"] == "skipped":
        return None
    return goals.gate(must_reach, record["summary"])
