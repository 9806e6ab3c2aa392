"""From the records and logs of all runs to tables.

- results/tables: runs, evaluations, coverage.
- steps.parquet and evals.parquet in each run's folder, made from its logs where
  they are missing or were made from another log.
"""

import json
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq

from dlbench import eventlog, parsing, records, tables
from dlbench.files import written_whole
from dlbench.runs import Run

EXCLUDED = "excluded"


def collect(study, device_kind, output):
    """Write runs, evals and coverage of a study, every record checked to the last byte.

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
        evals.append(_run_tables(run.id, place, record["log_sha256"]))
        coverage.append(
            {
                "run_id": run.id,
                "combination": run.label(),
                "status": record["status"],
                "reason": record["message"],
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
    ):
        tables.write(output / f"{name}.parquet", content, schema)
        tables.write_csv(output / f"{name}.csv", tables.read(output / f"{name}.parquet", schema))
    _concatenate(evals, output / "evals.parquet", tables.EVALS)


def row(run, record, study, device_kind):
    """One row of the runs table from a record."""
    provenance, summary = record["provenance"], dict(record["summary"])
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
        "status": record["status"],
        "message": record["message"],
        "timing_source": "dlbench",
        "host": provenance["host"],
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "log_sha256": record["log_sha256"],
        "parser_version": record["parser_version"],
        **summary,
    }


def _run_tables(run_id, place, log_sha256):
    """See that a run's steps.parquet and evals.parquet are there. Returns the latter's path."""
    steps, evals = place / "steps.parquet", place / "evals.parquet"
    if not all(tables.made_from(path, log_sha256) for path in (steps, evals)):
        logs = [parsing.RankLog(path) for path in eventlog.rank_paths(place / "train.jsonl")]
        rows = [
            {"run_id": run_id, "rank": rank, **_values(step)}
            for rank, log in enumerate(logs)
            for step in log.steps
        ]
        tables.write(steps, rows, tables.STEPS, run_id=run_id, log_sha256=log_sha256)
        rows = [{"run_id": run_id, **_values(event)} for event in logs[0].evals]
        tables.write(evals, rows, tables.EVALS, run_id=run_id, log_sha256=log_sha256)
    return evals


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
