"""Snakemake's benchmark files, TSV or JSON lines: time, memory and CPU time of a job.

- `s` is the time of the whole job, including the start of its container: an upper bound of
  duration_s, which is run_start to run_end.
- max_rss is in units of 2^20 bytes, though called MB: the largest sum over the processes of the
  job at one sample (every 0.5 s at first, then every 30 s). Elsewhere peak_memory_bytes is of the
  largest process, so this one is at least as large. Pages that processes share count for each.
- cpu_time is user and system time in seconds at the last sample, including processes that ended
  before it. mean_load is cpu_percent summed over time: not imported.
- Several rows are repeats of the job. The file does not say which of them is the run beside it:
  their range is in the notes, and no column is imported.
- In TSV all numbers have two decimals. `-` or NA could not be measured, because the job ended
  before the first sample.

Source: snakemake/benchmark.py, Snakemake 7 to 9.
"""

from collections.abc import Iterator

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT, MAX_TIME_S, LeftOut, real

FAMILY = None
ATTACHES = True
HEADER = "s\th:m:s\tmax_rss\t"
MIB = 2**20
ABSENT = ("NA", "-", "", None)


def recognise(log: LogFile) -> bool:
    first, newline, _ = log.head_text.partition("\n")
    if not newline:
        return False
    row = log_values.from_json(first) if first.startswith("{") else None
    is_row = isinstance(row, dict) and {"s", "h:m:s", "max_rss"} <= row.keys()
    return is_row or first.startswith(HEADER)


def read(log: LogFile) -> Iterator[Imported]:
    names: list[str] | None = None
    left_out, runs, number = LeftOut(), [], 0
    for number, line in log.lines():
        if number == log.unfinished:
            left_out.add(number, CUT_SHORT)
        elif line.startswith(HEADER):
            if names:
                left_out.add(number, "the header again")
            names = line.split("\t")
        else:
            runs.append(_run(log, number, line, names))
    if not runs:
        raise log.error(number, "no job was measured")
    run = runs[0] if len(runs) == 1 else _repeats(runs)
    run.notes += left_out.notes()
    yield run


def _repeats(runs):
    seconds = [run.columns["duration_s"] for run in runs]
    note = (
        f"{len(runs)} repeats of the job, {min(seconds):g} to {max(seconds):g} s; which of them "
        "this run is, is not said: nothing of them is taken"
    )
    return Imported({}, notes=[note], lines=(runs[0].lines[0], runs[-1].lines[1]))


def _run(log, number, line, names):
    if line.startswith("{"):
        row = log_values.from_json(line)
    else:
        cells = line.split("\t")
        row = dict(zip(names, cells, strict=True)) if names and len(names) == len(cells) else None
    if not isinstance(row, dict):
        raise log.error(
            number, f"expected a row of a benchmark, found {log_values.printable(line)}"
        )
    duration_s = real(row.get("s"), 0, MAX_TIME_S)
    if duration_s is None:
        raise log.error(
            number, f"expected seconds, found {log_values.printable(str(row.get('s')))}"
        )
    values = {
        "duration_s": duration_s,
        "cpu_time_s": _measured(log, number, row, "cpu_time", MAX_TIME_S),
        "peak_memory_bytes": _measured(log, number, row, "max_rss", 2**32),
    }
    if values["peak_memory_bytes"] is not None:
        values["peak_memory_bytes"] = round(values["peak_memory_bytes"] * MIB)
    return Imported(
        {name: value for name, value in values.items() if value is not None},
        notes=["times and memory are those of Snakemake's whole job"],
        lines=(number, number),
    )


def _measured(log, number, row, name, high):
    value = row.get(name)
    if value in ABSENT:
        return None
    measured = real(value, 0, high)
    if measured is None:
        raise log.error(
            number, f"expected a number as {name}, found {log_values.printable(str(value))}"
        )
    return measured
