"""From the records and logs of all runs to tables.

- results/tables: runs, evaluations, accounts of their time, metrics,
  coverage, comparisons of conditions, speedups, published numbers, drift, nodes, what probes
  explain, tries of searches. Beside our own runs there are those of others, imported and published.
- steps.parquet, evals.parquet and samples.parquet in each run's folder, made from
  its logs where they are missing or of another log.
- The learning gate is judged here (dlbench/study/goals.py), since it is no part of a run.
  So is whether a run is stale: the code may have changed while the others were trained.
- Runs are read one after the other, so that memory does not grow with their logs.
"""

import datetime
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dlbench import Error
from dlbench.analysis import comparisons, drift, limits, measures, nodes, run_tables, scaling_series
from dlbench.baselines import collectives
from dlbench.common import files
from dlbench.common.phrases import did_you_mean
from dlbench.log import event_fields
from dlbench.machine import fingerprints
from dlbench.plan import sentinels, standing
from dlbench.records import judgement, run_record
from dlbench.results import published_beside_own, run_rows
from dlbench.study import contradictions, goals
from dlbench.study.config import Study
from dlbench.study.runs import FIELDS
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.cells import Row
from dlbench.tables.metrics import METRICS
from dlbench.tables.table_columns import APART, BASELINES, TRIES, with_parameters

EXCLUDED, STALE, IMPORTED = "excluded", "stale", "imported"
IMPORTS = run_record.RESULTS / "imports"
_OF_RUN = tuple(name for name in FIELDS if name in TRIES.names)


def tries(study: Study) -> Iterator[Row]:
    """Rows of the table of tries, in the order of the searches' ids and of the tries."""
    for search_id, result in sorted(study.search_results.items()):
        search = study.searches[search_id]
        search_file = files.read_json(search.output) or {}
        common = {name: getattr(search.run, name) for name in _OF_RUN} | {
            "study": study.name,
            "site": study.site["name"],
            "search": search_id,
            "node_memory_bytes": search_file.get("node_memory_bytes"),
            "found_batch_per_device": result.batch,
            "reason": result.reason,
            "host": search_file.get("host"),
        }
        for batch_try in result.tries:
            yield common | {name: batch_try[name] for name in TRIES.names if name in batch_try}


def collect(
    study: Study, device_kind: str, output: Path | str, results: Path = run_record.RESULTS
) -> None:
    """Check every record and log of a study in full and write its tables.

    Args:
        device_kind: cpu or gpu, what a device of this site is.
        output: folder of the tables; `results`: that of all results.

    Raises:
        RecordError: a record is damaged.
        Damaged: the files beside records are; all such runs are named.
    """
    output = Path(output)
    basis = standing.basis_of(study).without_limit
    with run_tables.appender(output / "evals.parquet", table_columns.EVALS) as append_evals:
        found = [
            _own_runs(study, device_kind, basis, results, append_evals),
            *(_imported(results / "imports" / e["name"], append_evals) for e in study.imports),
            _sentinels(study, device_kind, basis, results, append_evals),
        ]
    rows, coverage, accounts, metrics = (
        list(itertools.chain.from_iterable(parts)) for parts in zip(*found, strict=True)
    )
    _report_stale_runs(coverage, len(study.without_probes))
    rows += map(contradictions.marked, published_beside_own.rows(study))
    rows = run_rows.with_shared(rows)
    # Rows whose numbers contradict one another are in the table of runs and in no other.
    consistent = [row for row in rows if not row.get(contradictions.REASON)]
    named = measures.named(metrics)
    measured = measures.attached(consistent, metrics)
    runs = [row for row in measured if not row.get(APART)]
    repeated = [row for row in measured if row.get("sentinel")]
    report_metrics(study, named, [*runs, *repeated])
    for name, content in (
        ("runs", rows),
        ("accounts", accounts),
        ("metrics", metrics),
        ("coverage", [*coverage, *excluded(study)]),
        ("comparisons", comparisons.rows(study, runs, repeated, named)),
        ("speedups", scaling_series.speedup_rows(study, runs, repeated)),
        ("published", published_beside_own.numbers(study, runs)),
        ("drift", drift.rows(study, runs, repeated, named)),
        ("nodes", nodes.rows(study, runs)),
        ("explanations", limits.explained_rows(study, consistent)),
        ("tries", list(tries(study))),
    ):
        schema, with_own = with_parameters(table_columns.STUDY_TABLES[name], content)
        parquet_files.write(output / f"{name}.parquet", with_own, schema)
        parquet_files.write_csv(
            output / f"{name}.csv", parquet_files.read(output / f"{name}.parquet", schema)
        )


def report_metrics(study: Study, named: measures.Named, rows: Sequence[Row]) -> None:
    """Print which metrics cannot be compared."""
    for name, why in named.unlike.items():
        print(f"metric {name}: {why}: not compared until all runs agree", file=sys.stderr)
    for entry in study.compare:
        name = entry.get(comparisons.METRIC)
        if name and name not in {**named.metrics, **named.unlike, **METRICS}:
            hint = did_you_mean(name, [*named.metrics, *METRICS])
            print(f"compare: no run has a metric {name!r}{hint}", file=sys.stderr)
    for metric in named.metrics.values():
        if row := measures.not_positive(rows, metric):
            value = row[metric.column]
            print(f"metric {metric.name}: {value:g} in {row['run_id']}: no ratio", file=sys.stderr)


class Found(NamedTuple):
    """Rows of the tables of these names, of runs of one origin."""

    runs: list[Row]
    coverage: list[Row]
    accounts: list[Row]
    metrics: list[Row]


def _own_runs(study, device_kind, basis, results, append_evals):
    """What is found of the study's own runs.

    Raises RecordError, Damaged: as in `collect`.
    """
    found, stale = Found([], [], [], []), {}
    repeats, damaged = fingerprints.Repeats(), {}
    for run in sorted(study.runs, key=lambda run: run.id):
        folder = run_record.folder(run.id, results)
        record = run_record.read(folder / "run.json")
        try:
            run_record.check_files(folder, record, content=True)
        except run_record.RecordError as error:
            damaged[run.id] = str(error)
            continue
        row = run_rows.row(record, study, device_kind, results)
        found.runs.append(row)
        if not run.probe:
            _append_own_evals(row, results, append_evals)
            found.accounts.extend(_account_rows(study.name, record))
            found.metrics.extend(run_rows.metrics(record))
        stale[run.id] = judgement.outdated(run, record, False, basis)
        if record["status"] in event_fields.SUCCEEDED:
            repeats.add(run, record["provenance"])
    if damaged:
        raise run_record.Damaged(damaged)
    differences, planned = repeats.differences(), {run.id for run in study.without_probes}
    rows = [
        row | ({"repeats_differ": differs} if (differs := differences.get(row["run_id"])) else {})
        for row in found.runs
    ]
    covered = [_coverage_row(study.labels[r["run_id"]], r, stale[r["run_id"]]) for r in rows]
    covered = [row for row in covered if row["run_id"] in planned]
    return found._replace(runs=rows, coverage=covered)


def _sentinels(study, device_kind, basis, results, append_evals):
    found = Found([], [], [], [])
    for _, record in sentinels.finished(study, basis, results):
        row = run_rows.row(record, study, device_kind, results)
        found.runs.append(row)
        found.metrics.extend(run_rows.metrics(record))
        if not row[APART]:
            _append_own_evals(row, results, append_evals)
    return found


def _account_rows(study, record):
    spent_s = record["summary"].get("account_s", {})
    run, whole_s = {"study": study, "run_id": record["run_id"]}, math.fsum(spent_s.values())
    return [
        run | {"part": part, "spent_s": part_s, "share": part_s / whole_s}
        for part, part_s in spent_s.items()
        if part_s > 0
    ]


def _append_own_evals(row, results, append_evals):
    """Make the tables of an own run if needed, and append its evaluations."""
    run_tables.ensure_run_tables(row["run_id"], row["log_sha256"], results)
    log = run_record.folder(row["run_id"], results) / "train.jsonl"
    append_evals(run_tables.eval_rows(row["run_id"], log))


def _imported(folder, append_evals):
    """What is found of the runs of an import, as it may be of an earlier version."""
    runs = parquet_files.read(folder / "runs.parquet", table_columns.RUNS, earlier=True)
    evals = parquet_files.read(folder / "evals.parquet", table_columns.EVALS, earlier=True)
    append_evals(evals.to_pylist())
    rows, coverage, metrics = list(map(contradictions.marked, runs.to_pylist())), [], []
    if (path := folder / "metrics.parquet").is_file():
        metrics = parquet_files.read(path, table_columns.METRICS).to_pylist()
    for row in rows:
        reasons = f"import {folder.name}: {row['status']}", row.get("message"), _conflict_text(row)
        covered = {"run_id": row["run_id"], "combination": _import_label(row), "status": IMPORTED}
        coverage.append(covered | {"reason": "; ".join(filter(None, reasons))})
    return Found(rows, coverage, [], metrics)


def _import_label(row):
    workload = [row.get("site") and f"{row['site']}:", row.get("model"), row.get("dataset")]
    label = [" ".join(filter(None, workload))]
    for field, form in (
        ("batch_per_device", "batch {}"),
        ("strategy", "{}"),
        ("devices", "{} devices"),
        ("precision", "{}"),
        ("runtime", "{}"),
        ("repeat", "repeat {}"),
    ):
        label += [form.format(row[field])] if row.get(field) else []
    return ", ".join(label)


def excluded(study: Study) -> list[Row]:
    """Rows of the table of coverage of what the config leaves out."""
    return [
        {
            "combination": json.dumps(left_out.values),
            "status": EXCLUDED,
            "reason": f"block {left_out.block}: {left_out.reason}",
        }
        for left_out in study.excluded
    ]


def _coverage_row(label, row, stale):
    """A run's row of the table of coverage; problems of a completed one are printed, too."""
    missed = row["learning_gate"] if row["learning_gate"] != goals.REACHED else None
    differs = run_rows.disagreement(row["epochs_check"]) or _conflict_text(row)
    unlike = row.get("repeats_differ")
    unlike = f"unlike its first repeat: {unlike}" if unlike else None
    problems = list(filter(None, (missed, differs, unlike)))
    for problem in problems:
        print(f"{label}: {problem}", file=sys.stderr)
    message = row["message"]
    if stale:
        message = f"{stale}; it was {': '.join(filter(None, (row['status'], message)))}"
    return {
        "run_id": row["run_id"],
        "combination": label,
        "status": STALE if stale else row["status"],
        "reason": "; ".join(filter(None, (message, *problems))),
    }


def _conflict_text(row):
    """How the numbers of a row contradict one another, as text; "" where they agree."""
    reason = row.get(contradictions.REASON)
    return f"its numbers contradict one another: {reason}" if reason else ""


def _report_stale_runs(coverage, runs):
    stale = sum(row["status"] == STALE for row in coverage)
    if stale:
        print(f"{stale} of {runs} runs are stale (see the table coverage)", file=sys.stderr)


# Conditions that say something of some measures only.
OF_EXCHANGES = ("strategy", "strategy_options", "launcher")
OF_PRODUCTS = ("precision",)
FROM_MACHINE = ("host", "device_model", "load_average_1min", "hardware_sha256")


def collect_baselines(folder: Path, output: Path) -> None:
    """Write the table as Parquet and CSV.

    Args:
        folder: has a folder for each machine, with files as measure_baselines.py writes them.
        output: folder of the table.

    Raises:
        Error: a file is not as measure_baselines.py writes it.
    """
    rows = [row for path in sorted(folder.glob("*/*.json")) for row in baseline_rows(path)]
    parquet_files.write(output / "baselines.parquet", rows, BASELINES)
    parquet_files.write_csv(
        output / "baselines.csv", parquet_files.read(output / "baselines.parquet", BASELINES)
    )


def baseline_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file. Raises Error: it is not as measure_baselines.py writes it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        conditions = content["conditions"]
        common = {name: content[name] for name in FROM_MACHINE}
        common["framework_version"] = content["versions"].get(conditions["framework"])
        measured_at = content["measured_at"]  # none: imported, from a log without a date
        common["measured_at"] = measured_at and datetime.datetime.fromisoformat(measured_at)
        common["devices"] = conditions["nodes"] * conditions["devices_per_node"]
        common["baseline"] = path.stem
        for row in content["rows"]:
            yield {**_relevant_conditions(conditions, row["measure"]), **common, **row}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(
            f"{path}: expected a baseline as measure_baselines.py writes it ({error!r}): delete "
            "it, and `snakemake baselines` measures it again"
        ) from error


def _relevant_conditions(conditions, measure):
    """The conditions that matter for a measure."""
    left_out = OF_PRODUCTS if measure != "matrix_product" else ()
    left_out += OF_EXCHANGES if measure not in collectives.MEASURES else ()
    return {name: value for name, value in conditions.items() if name not in left_out}
