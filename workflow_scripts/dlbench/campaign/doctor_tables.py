"""Damaged tables: of the study, of machines and of imports."""

import functools
from collections.abc import Iterator
from pathlib import Path

from dlbench.campaign.doctor_problem import Problem, put_all_aside
from dlbench.records import run_record
from dlbench.tables import parquet_files, table_names


def problems(content: bool = False) -> Iterator[Problem]:
    """Yield a Problem for each damaged table; of imports, which may be long, only with content."""
    for path in sorted((run_record.RESULTS / "tables").glob("*.parquet")):
        if what := describe_damage(path):
            ours = path.stem in (*table_names.OF_STUDY, *table_names.OF_MACHINES)
            yield _problem(path, what, (path,) if ours else ())
    imports = (run_record.RESULTS / "imports").glob("*/*.parquet") if content else ()
    for path in sorted(imports):
        if what := describe_damage(path):
            # The workflow notices a missing table of runs, so that one is moved aside too.
            yield _problem(path, what, {path, path.with_name("runs.parquet")})


def describe_damage(path: Path) -> str:
    """What is wrong with a table, by the digest in it; "" if nothing is."""
    try:
        parquet_files.check(path)
    except parquet_files.TableError as error:
        text = str(error).partition(";")[0]  # what is to be done about it follows
        return text.removeprefix(f"{path} is damaged: ").removeprefix(f"{path} ")
    return ""


def _problem(path, what, aside):
    repair = "the next start makes it again once --repair has moved it aside"
    return Problem(
        "table",
        str(path),
        what,
        "figures and report are not made from it",
        repair if aside else "take it anew from where it was made",
        functools.partial(put_all_aside, aside) if aside else None,
    )
