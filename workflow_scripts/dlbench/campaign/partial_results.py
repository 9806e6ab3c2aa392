"""Tables and figures of the finished runs while a campaign is running.

They are made as the workflow makes them, but in another folder and from copies of the current
records. Nothing is started or locked; the results and Snakemake's lock are not touched. Unfinished
runs are left out as if the study did not have them.
"""

import contextlib
import dataclasses
import shutil
import sys
from pathlib import Path

from dlbench import Error
from dlbench.analysis import run_tables
from dlbench.analysis.frames import Tables
from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.plan import skipping
from dlbench.records import run_record, sessions
from dlbench.results import collect_runs, export_runs
from dlbench.study.config import Study

TABLES = ("steps.parquet", "evals.parquet", "samples.parquet")
ATTEMPTS = 3  # a record may be removed while it is read


def write(study: Study, folder: str | Path) -> None:
    """Write tables/, figures/ and runs/ (the tables of each run) into a folder.

    Raises Error: no run is done, or the folder is among the results.
    """
    output = Path(folder)
    if output.resolve().is_relative_to(run_record.RESULTS.resolve()):
        raise Error(
            f"{output}: expected a folder outside {run_record.RESULTS}, which stays as it is"
        )
    done = _collect(study, output)
    print(f"{output}: {len(done.runs)} of {len(study.runs)} runs", file=sys.stderr)
    for name in study.figures:
        figure = plugins.load("figures", name)
        figure.draw(Tables(output / "tables", output / "runs"), output / "figures" / name)


def _collect(study, output):
    """Write the tables of the finished runs; returns the study with these runs only."""
    for attempt in range(1, ATTEMPTS + 1):
        done_ids = {row["run_id"] for row in export_runs.rows(study)}
        runs = tuple(run for run in study.runs if run.id in done_ids)
        if not runs:
            raise Error(f"none of {len(study.runs)} runs has a valid result")
        imports = tuple(e for e in study.imports if (collect_runs.IMPORTS / e["name"]).is_dir())
        done = dataclasses.replace(study, runs=runs, imports=imports)
        try:
            sentinels = sessions.sentinels_of(runs).values()
            folders = {run: run_record.folder(run.id) for run in sentinels}
            ended = [run for run, folder in folders.items() if (folder / "run.json").is_file()]
            with _linked_records([*runs, *ended], output):
                kind = skipping.devices(study.site).kind
                collect_runs.collect(done, kind, output / "tables", results=output)
            return done
        except (run_record.RecordError, FileNotFoundError):
            if attempt == ATTEMPTS:
                raise


@contextlib.contextmanager
def _linked_records(runs, output):
    """Copy the records of some runs into `output`, laid out as in the results.

    Logs and traces are linked for the duration of the `with` block; a run's tables are copied, or
    made there.
    """
    results, links = run_record.RESULTS, []
    try:
        if (results / "imports").is_dir():
            shutil.copytree(results / "imports", output / "imports", dirs_exist_ok=True)
        for run in runs:
            place = output / "runs" / run.id
            place.mkdir(parents=True, exist_ok=True)
            log = run_record.folder(run.id) / "train.jsonl"
            for file in (*event_log.rank_paths(log), *event_log.traces(log)):
                links.append(place / file.name)
                links[-1].unlink(missing_ok=True)
                links[-1].symlink_to(file.resolve())
            shutil.copy2(run_record.folder(run.id) / "run.json", place)
            for name in run_tables.FILES:
                origin = run_record.folder(run.id) / name
                if origin.is_file() and not (place / name).is_file():
                    shutil.copy2(origin, place)
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)
