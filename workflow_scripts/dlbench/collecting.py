"""From the records and logs of all runs to tables.

- results/tables: runs, evaluations, coverage, comparisons of conditions, speedups, published
  numbers, sentinels, drift. Beside our own runs there are those of others, imported and published.
- steps.parquet, evals.parquet and samples.parquet in each run's folder, made from
  its logs where they are missing or were made from another log.
- The learning gate is judged here (dlbench/gates.py), since it is no part of a run. So is
  whether a run is stale: the code may have changed while the others were trained.
- One run is looked at at a time.
"""

import contextlib
import json
import mmap
import sys
from datetime import datetime
from pathlib import Path

from dlbench import (
    adoption,
    comparing,
    derived,
    drift,
    fingerprints,
    gates,
    log_events,
    parsing,
    published,
    records,
    scaling,
    sentinels,
    tables,
)
from dlbench.files import written_whole
from dlbench.runs import FIELDS

EXCLUDED, STALE, IMPORTED = "excluded", "stale", "imported"
IMPORTS = Path("results/imports")
_KNOWN = tuple(name for name in FIELDS if name in tables.RUNS.names)
ROW_GROUP = 20_000  # rows that wait to be written
RUN_TABLES = tables.RUN_TABLES


def collect(study, device_kind, output):
    """Write the tables of a study, every record checked to the last byte.

    Args:
        study: the Study whose runs are collected.
        device_kind: cpu or gpu, what a device of this site is.
        output: folder of the tables.

    Raises:
        RecordError: a record is damaged.
        Damaged: the files beside records are; all such runs are named.
    """
    output = Path(output)
    recipes = {name: digest for name, (_, digest) in adoption.found(study).items()}
    rows, coverage, repeats, damaged = [], [], fingerprints.Repeats(), {}
    with _appending(output / "evals.parquet", tables.EVALS) as append_evals:
        for run in sorted(study.runs, key=lambda run: run.id):
            place = records.folder(run.id)
            record = records.read(place / "run.json")
            try:
                records.check_files(place, record, content=True)
            except records.RecordError as error:
                damaged[run.id] = str(error)
                continue
            rows.append(row(run, record, study, device_kind))
            see_run_tables(run.id, record["log_sha256"])
            append_evals(_evals(run.id, place / "train.jsonl"))
            stale = records.outdated(run, record, False, recipes, study.images)
            coverage.append(_covered(study.labels[run.id], rows[-1], stale))
            if record["status"] in derived.ENDED_WELL:
                repeats.add(run, record["provenance"])
        if damaged:
            raise records.Damaged(damaged)
        own = len(rows)
        _say_how_repeats_differ(rows, coverage, repeats.differences())
        for entry in study.imports:
            folder = IMPORTS / entry["name"]
            # An archive may have imports of an earlier version.
            others = tables.read(folder / "runs.parquet", tables.RUNS, earlier=True).to_pylist()
            rows += others
            coverage += _imported(others, entry["name"])
            append_evals(tables.read(folder / "evals.parquet", tables.EVALS).to_pylist())
        again = list(sentinels.finished(study, recipes))
        repeated = [row(run, record, study, device_kind) for run, record in again]
        for one in repeated if study.sentinels_are_repeats else ():
            if one["status"] in derived.ENDED_WELL:
                see_run_tables(one["run_id"], one["log_sha256"])
                append_evals(_evals(one["run_id"], records.folder(one["run_id"]) / "train.jsonl"))
                rows.append(one)
    _say_how_many(coverage, own)
    rows += published.rows(study)
    derived.add_item_shapes([*rows, *repeated])
    derived.add_synthetic(rows)
    told = [one | {"sentinel": run.sentinel} for one, (run, _) in zip(repeated, again, strict=True)]
    for name, content, schema in (
        ("runs", rows, tables.RUNS),
        ("coverage", [*coverage, *excluded(study)], tables.COVERAGE),
        ("comparisons", comparing.rows(study, rows, repeated), tables.COMPARISONS),
        ("speedups", scaling.rows(study, rows, repeated), tables.SPEEDUPS),
        ("published", published.numbers(study, rows), tables.PUBLISHED),
        ("sentinels", told, tables.SENTINELS),
        ("drift", drift.rows(study, rows, repeated), tables.DRIFT),
    ):
        tables.write(output / f"{name}.parquet", content, schema)
        tables.write_csv(output / f"{name}.csv", tables.read(output / f"{name}.parquet", schema))


def _imported(rows, name):
    """Rows of the table of coverage of what an import brought."""
    return [
        {
            "run_id": row["run_id"],
            "combination": _called(row),
            "status": IMPORTED,
            "reason": "; ".join(
                filter(None, (f"import {name}: {row['status']}", row.get("message")))
            ),
        }
        for row in rows
    ]


def _called(row):
    """What is known of an imported run, as a run is called."""
    parts = [row.get("site") and f"{row['site']}:", row.get("model"), row.get("dataset")]
    words = [" ".join(filter(None, parts))]
    for field, form in (
        ("batch_per_device", "batch {}"), ("strategy", "{}"), ("devices", "{} devices"),
        ("precision", "{}"), ("runtime", "{}"), ("repeat", "repeat {}"),
    ):  # fmt: skip
        words += [form.format(row[field])] if row.get(field) else []
    return ", ".join(words)


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


def _covered(label, row, stale):
    """A run's row of the table of coverage; what is amiss though it ended well is also said."""
    missed = row["learning_gate"] if row["learning_gate"] != gates.REACHED else None
    differs = derived.disagreement(row["epochs_check"])
    for words in filter(None, (missed, differs)):
        print(f"{label}: {words}", file=sys.stderr)
    was = f"{stale}; it was {row['status']}" if stale else ""
    return {
        "run_id": row["run_id"],
        "combination": label,
        "status": STALE if stale else row["status"],
        "reason": "; ".join(filter(None, (was, row["message"], missed, differs))),
    }


def _say_how_repeats_differ(rows, coverage, differences):
    for row, covered in zip(rows, coverage, strict=True):
        words = differences.get(row["run_id"])
        if words:
            row["repeats_differ"] = words
            reason = f"unlike its first repeat: {words}"
            print(f"{covered['combination']}: {reason}", file=sys.stderr)
            covered["reason"] = "; ".join(filter(None, (covered["reason"], reason)))


def _say_how_many(coverage, runs):
    stale = sum(row["status"] == STALE for row in coverage)
    if stale:
        print(f"{stale} of {runs} runs are stale (see the table coverage)", file=sys.stderr)


def _time_to_accuracy(run, record, study):
    """Columns of the runs table for runs with a learning gate that ended well and reached it."""
    must_reach = study.must_reach.get(run.id)
    if not must_reach or record["status"] not in derived.ENDED_WELL:
        return {}
    see_run_tables(run.id, record["log_sha256"])
    first = derived.reached_at(must_reach, run_table(run.id, "evals").to_pylist())
    if first is None:
        return {}
    steps = run_table(run.id, "steps")
    columns = (steps[name].to_numpy() for name in ("rank", "step", "step_time_s"))
    return {
        "time_to_accuracy_s": first["t_s"],
        "training_time_to_accuracy_s": derived.training_time_s(*columns, first["step"]),
    }


def row(run, record, study, device_kind):
    """One row of the runs table from a record; what takes other runs is still to be added."""
    provenance, summary = record["provenance"], dict(record["summary"])
    summary.pop("copies_images_per_second", None)  # a list, for which there is no column
    for key in ("started_at", "ended_at"):
        if summary.get(key):
            summary[key] = datetime.fromisoformat(summary[key])
    versions = provenance["versions"] or {}
    return {name: getattr(run, name) for name in _KNOWN} | {
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
        "timing_source": (provenance.get("imported") or {"kind": "dlbench"})["kind"],
        "notes": "; ".join((provenance.get("imported") or {}).get("notes", [])) or None,
        "host": provenance["host"],
        "session": (provenance.get("session") or {}).get("id"),
        "data_sha256": provenance["data_sha256"],
        "item_shape": derived.shape_words(provenance.get("item_shape")),
        **fingerprints.of(provenance),
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "log_sha256": record["log_sha256"],
        "parser_version": record["parser_version"],
        "energy_per_image_j": derived.energy_per_image_j(run, summary),
        "epochs_check": derived.epochs_check(run, summary),
        **_time_to_accuracy(run, record, study),
        **summary,
    }


def see_run_tables(run_id, log_sha256):
    """Make a run's tables (RUN_TABLES) from its logs, where one is missing or of another log."""
    place = records.folder(run_id)
    if not all(tables.made_from(f"{place}/{name}.parquet", log_sha256) for name in RUN_TABLES):
        _make_run_tables(run_id, place, log_sha256)


def run_table(run_id, name):
    """One of a run's tables, which are there."""
    return tables.read(records.folder(run_id) / f"{name}.parquet", RUN_TABLES[name])


def _evals(run_id, log):
    """Rows of the table of evaluations, from a log that was read just now.

    Looking for the few lines that begin so takes a tenth of the time of opening a table.
    """
    with open(log, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        events = [log_events.parsed(line) for line in _lines(content, b'{"event": "eval", ')]
    for event in events:
        yield {"run_id": run_id, **_values(event)}


def _lines(content, beginning):
    """The whole lines that begin so, but for the first of all."""
    found = content.find(b"\n" + beginning)
    while found >= 0:
        end = content.find(b"\n", found + 1)
        if end < 0:
            return  # a write that a kill cut short
        yield content[found + 1 : end]
        found = content.find(b"\n" + beginning, end)


def _make_run_tables(run_id, place, log_sha256):
    logs = parsing.rank_logs(place / "train.jsonl")
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
            for row in sample_rows(sample)
        ],
    }
    for name, schema in RUN_TABLES.items():
        path = place / f"{name}.parquet"
        tables.write(path, rows[name], schema, run_id=run_id, log_sha256=log_sha256)


def sample_rows(sample):
    """One row for the process and its node, and one for each of its GPUs."""
    values = _values(sample)
    gpus = values.pop("gpus", None) or []
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
    """Yield a function that appends rows to a Parquet file, which is whole afterwards."""
    rows = []
    empty = tables.table(rows, schema)

    def append(more):
        rows.extend(more)
        if len(rows) >= ROW_GROUP:
            flush()

    def flush():
        if rows:
            parquet.write_table(tables.table(rows, schema))
            rows.clear()

    with written_whole(output) as part, tables.writer(part, empty.schema) as parquet:
        yield append
        flush()
