"""From the records and logs of all runs to tables.

- results/tables: runs, evaluations, coverage, comparisons of conditions, speedups.
- steps.parquet, evals.parquet and samples.parquet in each run's folder, made from
  its logs where they are missing or were made from another log.
- The learning gate is judged here (dlbench/gates.py), since it is no part of a run. So is
  whether a run is stale: the code may have changed while the others were trained.
- One run is looked at at a time.
"""

import contextlib
import json
import sys
from datetime import datetime
from pathlib import Path

from dlbench import (
    adoption,
    comparing,
    derived,
    eventlog,
    gates,
    parsing,
    records,
    scaling,
    tables,
)
from dlbench.files import written_whole
from dlbench.runs import Run

EXCLUDED, STALE = "excluded", "stale"
RUN_TABLES = {"steps": tables.STEPS, "evals": tables.EVALS, "samples": tables.SAMPLES}


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
    recipes = {name: digest for name, (_, digest) in adoption.found(study).items()}
    rows, coverage = [], []
    with _appending(output / "evals.parquet", tables.EVALS) as append_evals:
        for run in sorted(study.runs, key=lambda run: run.id):
            place = records.folder(run.id)
            record = records.read(place / "run.json")
            records.check_files(place, record, content=True)
            rows.append(row(run, record, study, device_kind))
            see_run_tables(run.id, record["log_sha256"])
            evals = run_table(run.id, "evals")
            append_evals(evals)
            rows[-1] |= _time_to_accuracy(run, record, study, evals)
            stale = records.outdated(run, record, False, recipes, study.images)
            coverage.append(_covered(run, rows[-1], stale))
    _say_how_many(coverage, len(rows))
    derived.add_synthetic(rows)
    for name, content, schema in (
        ("runs", rows, tables.RUNS),
        ("coverage", [*coverage, *excluded(study)], tables.COVERAGE),
        ("comparisons", comparing.rows(study, rows), tables.COMPARISONS),
        ("speedups", scaling.rows(study, rows), tables.SPEEDUPS),
    ):
        tables.write(output / f"{name}.parquet", content, schema)
        tables.write_csv(output / f"{name}.csv", tables.read(output / f"{name}.parquet", schema))


def excluded(study):
    """Rows of the table of coverage of what the config leaves out."""
    return [
        {
            "combination": json.dumps(left_out.values),
            "status": EXCLUDED,
            "reason": f"{left_out.block}: {left_out.reason}",
        }
        for left_out in study.excluded
    ]


def _covered(run, row, stale):
    """A run's row of the table of coverage; what is amiss though it ended well is also said."""
    missed = row["learning_gate"] if row["learning_gate"] != gates.REACHED else None
    differs = derived.disagreement(row["epochs_check"])
    for words in filter(None, (missed, differs)):
        print(f"{run.label()}: {words}", file=sys.stderr)
    was = f"{stale}; it was {row['status']}" if stale else ""
    return {
        "run_id": run.id,
        "combination": run.label(),
        "status": STALE if stale else row["status"],
        "reason": "; ".join(filter(None, (was, row["message"], missed, differs))),
    }


def _say_how_many(coverage, runs):
    stale = sum(row["status"] == STALE for row in coverage)
    if stale:
        print(f"{stale} of {runs} runs are stale (see the table coverage)", file=sys.stderr)


def _time_to_accuracy(run, record, study, evals):
    """Columns of the runs table for runs with a learning gate that ended well and reached it."""
    must_reach = study.must_reach.get(run.id)
    if not must_reach or record["status"] not in derived.ENDED_WELL:
        return {}
    first = derived.reached_at(must_reach, evals.to_pylist())
    if first is None:
        return {}
    steps = run_table(run.id, "steps")
    columns = (steps[name].to_numpy() for name in ("step", "step_time_s"))
    return {
        "time_to_accuracy_s": first["t_s"],
        "training_time_to_accuracy_s": derived.training_time_s(*columns, first["step"]),
    }


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
        "energy_per_image_j": derived.energy_per_image_j(run, summary),
        "epochs_check": derived.epochs_check(run, summary),
        **summary,
    }


def see_run_tables(run_id, log_sha256):
    """Make a run's tables (RUN_TABLES) from its logs, where one is missing or of another log."""
    place = records.folder(run_id)
    if not all(tables.made_from(place / f"{name}.parquet", log_sha256) for name in RUN_TABLES):
        _make_run_tables(run_id, place, log_sha256)


def run_table(run_id, name):
    """One of a run's tables, which are there."""
    return tables.read(records.folder(run_id) / f"{name}.parquet", RUN_TABLES[name])


def _make_run_tables(run_id, place, log_sha256):
    logs = [parsing.RankLog(path) for path in eventlog.rank_paths(place / "train.jsonl")]
    rows = {
        "steps": [
            {"run_id": run_id, "rank": rank, **_values(step)}
            for rank, log in enumerate(logs)
            for step in log.steps
        ],
        "evals": [{"run_id": run_id, **_values(event)} for event in logs[0].evals],
        "samples": [
            {"run_id": run_id, "rank": rank, **row}
            for rank, log in enumerate(logs)
            for sample in log.samples
            for row in _sample_rows(sample)
        ],
    }
    for name, schema in RUN_TABLES.items():
        path = place / f"{name}.parquet"
        tables.write(path, rows[name], schema, run_id=run_id, log_sha256=log_sha256)


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


@contextlib.contextmanager
def _appending(output, schema):
    """Yield a function that appends a table to a Parquet file, which is whole afterwards."""
    metadata = {"schema_version": str(tables.SCHEMA_VERSION)}
    with (
        written_whole(output) as part,
        tables.writer(part, schema.with_metadata(metadata)) as parquet,
    ):
        yield lambda table: parquet.write_table(table.replace_schema_metadata(metadata))
