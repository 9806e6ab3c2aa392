"""The tables of runs and of coverage as they are now, while some runs are missing.

- The columns are those of results/tables/ (dlbench/tables/table_columns.py).
- The table of runs has a row for each run with a valid record, that of coverage one for each
  combination of the study, with what it waits for or why it is stale (dlbench/plan/standing.py).
- Nothing is locked: a run that ends meanwhile may be in the table or not.
"""

import math
import sys
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path

from dlbench import Error
from dlbench.common.files import write_json
from dlbench.data import stores
from dlbench.plan import skipping, standing
from dlbench.records import judgement, run_record
from dlbench.records.judgement import State
from dlbench.results import collect_runs, derived, run_rows
from dlbench.study.config import Study
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.cells import Row


def export(study: Study, output: Path | str, statuses: Collection[str]) -> None:
    """Write the runs table of a study with the runs that have results, atomically.

    Args:
        study: the Study.
        output: path that ends in .csv, .parquet or .json.
        statuses: of the runs whose rows are written.

    Raises:
        Error: the path ends in something else.
    """
    path = _checked_path(output)
    planned = len(study.without_probes)
    standing_rows = list(filter(run_rows.is_result, rows(study)))
    chosen = [row for row in standing_rows if row["status"] in statuses]
    WRITERS[path.suffix](path, chosen, table_columns.RUNS)
    print(
        f"{path}: {len(chosen)} of {planned} runs"
        f"{_count_note(len(standing_rows) - len(chosen), 'with another status')}"
        f"{_count_note(planned - len(standing_rows), 'without a valid result')}",
        file=sys.stderr,
    )


def export_coverage(study: Study, output: Path | str) -> None:
    """Write the current table of coverage of a study, atomically.

    Raises:
        Error: the path ends in something else.
    """
    path = _checked_path(output)
    covered = coverage(study)
    WRITERS[path.suffix](path, covered, table_columns.COVERAGE)
    print(f"{path}: {len(covered)} combinations", file=sys.stderr)


def coverage(study: Study) -> list[Row]:
    """Rows of the table of coverage, in the order of the runs' ids; what is excluded at the end."""
    standings = sorted(standing.examine(study), key=lambda one: one.run.id)
    return [
        {
            "run_id": one.run.id,
            "combination": study.labels[one.run.id],
            "status": one.state,
            "reason": "; ".join(filter(None, (one.message, one.missed))),
        }
        for one in standings
        if not one.run.probe
    ] + collect_runs.excluded(study)


def _checked_path(output):
    output = Path(output)
    if output.suffix not in WRITERS:
        raise Error(f"{output}: expected a name that ends in {', '.join(WRITERS)}")
    return output


def rows(study: Study) -> list[Row]:
    """Rows of the runs table, in the order of the runs' ids.

    Raises:
        Error: there are none, but results of another config.
    """
    standing_rows = list(_rows(study))
    if not standing_rows and any(run_record.RESULTS.glob("runs/*/run.json")):
        raise Error(
            f"none of the {len(study.runs)} runs of {study.name} has a valid result, but others "
            f"in {run_record.RESULTS} have: is their config missing (--configfile)?"
        )
    return derived.with_shared(standing_rows)


def _rows(study):
    devices = skipping.devices(study.site)
    recipes = stores.recipes(stores.adopted(study, as_converted=True))
    for run in sorted(study.without_probes, key=lambda run: run.id):
        can_run = not skipping.skip_reason(run, devices, study)
        if judgement.state(run, can_run, recipes, study.images)[0] is not State.CURRENT:
            continue
        try:
            record = run_record.read(run_record.folder(run.id) / "run.json")
        except run_record.RecordError:
            continue  # deleted meanwhile
        yield run_rows.row(record, study, devices.kind)


def _count_note(number, text):
    return f", {number} {text}" if number else ""


def _write_csv(output, rows, schema):
    parquet_files.write_csv(output, parquet_files.table(rows, schema))


def _write_json(output, rows, schema):
    plain = parquet_files.table(rows, schema).to_pylist()
    write_json(output, [{name: _plain(value) for name, value in row.items()} for row in plain])


def _plain(value):
    if isinstance(value, datetime):
        return value.isoformat()
    # JSON has no nan.
    return None if isinstance(value, float) and not math.isfinite(value) else value


WRITERS: dict[str, Callable[..., None]] = {
    ".csv": _write_csv,
    ".parquet": parquet_files.write,
    ".json": _write_json,
}
