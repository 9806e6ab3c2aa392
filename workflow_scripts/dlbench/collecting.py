"""From the records and logs of all runs to tables.

- results/tables: runs, evaluations, coverage, comparisons of conditions.
- steps.parquet, evals.parquet and samples.parquet in each run's folder, made from
  its logs where they are missing or were made from another log.
- The learning gate is judged here (dlbench/gates.py), since it is no part of a run.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq

from dlbench import comparing, eventlog, gates, parsing, records, tables
from dlbench.files import written_whole
from dlbench.runs import Run

EXCLUDED = "excluded"


def collect(study, device_kind, output):
    """Write the tables of a study, every record checked to the last byte.

    Args:
        study: the Study whose runs are collected.
        device_kind: cpu or gpu, what a device of this site is.
        output: folder of the tables.

    Raises:
        RecordError: a record or a file beside it is damaged.
    """
    output = Path(output)
    rows, evals, coverage = [], [], []
    for run in sorted(study.runs, key=lambda run: run.id):
        place = records.folder(run.id)
        record = records.read(place / "run.json")
        records.check_files(place, record, content=True)
        rows.append(row(run, record, study, device_kind))
        missed = gates.missed(study.must_reach.get(run.id), record["summary"])
        if missed:
            print(f"{run.label()}: {missed}", file=sys.stderr)
        evals.append(_run_tables(run.id, place, record["log_sha256"]))
        coverage.append(
            {
                "run_id": run.id,
                "combination": run.label(),
                "status": record["status"],
                "reason": "; ".join(filter(None, (record["message"], missed))),
            }
        )
    coverage += [
        {
            "combination": json.dumps(left_out.values),
            "status": EXCLUDED,
            "reason": f"{left_out.block}: {left_out.reason}",
        }
        for left_out in study.excluded
    ]
    for name, content, schema in (
        ("runs", rows, tables.RUNS),
        ("coverage", coverage, tables.COVERAGE),
        ("comparisons", comparing.rows(study, rows), tables.COMPARISONS),
    ):
        tables.write(output / f"{name}.parquet", content, schema)
        tables.write_csv(output / f"{name}.csv", tables.read(output / f"{name}.parquet", schema))
    _concatenate(evals, output / "evals.parquet", tables.EVALS)


def row(run, record, study, device_kind):
    """One row of the runs table from a record."""
    provenance, summary = record["provenance"], dict(record["summary"])
    summary.pop("copies_images_per_second", None)  # a list, for which there is no column
    for key in ("started_at", "ended_at"):
        if summary.get(key):
            summary[key] = datetime.fromisoformat(summary[key])
    fields = {name: getattr(run, name) for name in Run.__dataclass_fields__}
    versions = provenance["versions"] or {}
    known = {name: value for name, value in fields.items() if name in tables.RUNS.names}
    return known | {
        "run_id": run.id,
        "study": study.name,
        "site": study.site["name"],
        "devices": run.devices,
        "global_batch": run.global_batch,
        "framework_version": versions.get(run.framework),
        "device_kind": device_kind,
        "device_model": provenance["device_model"],
        "container_start": (provenance["container"] or {}).get("start"),
        "image_digest": (provenance["container"] or {}).get("digest"),
        "status": record["status"],
        "message": record["message"],
        "learning_gate": gates.gate(study.must_reach.get(run.id), summary),
        "timing_source": "dlbench",
        "host": provenance["host"],
        "data_sha256": provenance["data_sha256"],
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "log_sha256": record["log_sha256"],
        "parser_version": record["parser_version"],
        **summary,
    }


def _run_tables(run_id, place, log_sha256):
    """See that a run's steps, evals and samples tables are there. Returns the path of evals."""
    steps, evals, samples = (place / f"{name}.parquet" for name in ("steps", "evals", "samples"))
    if not all(tables.made_from(path, log_sha256) for path in (steps, evals, samples)):
        logs = [parsing.RankLog(path) for path in eventlog.rank_paths(place / "train.jsonl")]
        rows = [
            {"run_id": run_id, "rank": rank, **_values(step)}
            for rank, log in enumerate(logs)
            for step in log.steps
        ]
        tables.write(steps, rows, tables.STEPS, run_id=run_id, log_sha256=log_sha256)
        rows = [{"run_id": run_id, **_values(event)} for event in logs[0].evals]
        tables.write(evals, rows, tables.EVALS, run_id=run_id, log_sha256=log_sha256)
        rows = [
            {"run_id": run_id, "rank": rank, **row}
            for rank, log in enumerate(logs)
            for sample in log.samples
            for row in _sample_rows(sample)
        ]
        tables.write(samples, rows, tables.SAMPLES, run_id=run_id, log_sha256=log_sha256)
    return evals


def _sample_rows(sample):
    """One row for the process and its node, and one for each of its GPUs."""
    values = _values(sample)
    gpus = values.pop("gpus", [])
    yield values
    for gpu in gpus:
        reasons = gpu["throttle_reasons"]
        yield {
            **gpu,
            "t_s": values["t_s"],
            "gpu": str(gpu["gpu"]),
            "throttle_reasons": None if reasons is None else "+".join(reasons),
        }


def _values(event):
    return {key: value for key, value in event.items() if key != "event"}


def _concatenate(paths, output, schema):
    """Stream small tables into one, file by file."""
    with written_whole(output) as part:
        metadata = {"schema_version": str(tables.SCHEMA_VERSION)}
        with pq.ParquetWriter(
            part, schema.with_metadata(metadata), compression="zstd", compression_level=3
        ) as writer:
            for path in paths:
                writer.write_table(tables.read(path, schema).replace_schema_metadata(metadata))
