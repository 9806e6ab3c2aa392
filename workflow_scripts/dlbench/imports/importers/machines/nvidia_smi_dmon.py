"""The table of `nvidia-smi dmon`, which samples beside a run: ` 20240104   13:54:35   0   97`.

- Only with `-o DT` (or `-o T`) rows have local times, in whole seconds; t_s counts from the first
  row. Of `-o T` a time that goes back by more than half a day is one of the next day. Samples
  without a time are not imported: their interval (-d, 1 s by default) is not in the table. Of them
  the run has the largest memory in use.
- sm is the share of the last period in which a kernel ran, fb memory in use by all processes and
  the driver, in MiB though the table says MB; pwr W of the board in whole numbers, gtemp degrees
  Celsius, mclk and pclk the clocks of memory and SMs in MHz. Other columns (mem, enc, dec, pviol,
  rxpci) are named in the notes. energy_j is from pwr, by the trapezoid rule.
- The header is repeated every few rows; `-` is absent. `--format csv` separates by commas.

Source: man page of nvidia-smi, `dmon`, driver 550; tables with -o T and -o DT that users published,
with columns in the order of their -s.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from dlbench.imports.importers import Imported
from dlbench.imports.importers.machines._dmon import MIB, NO_DATE, Samples
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT

FAMILY = None
ATTACHES = True
COMMAND = "nvidia-smi dmon -s pucm -o DT"
HEADER = re.compile(r"^#\s?(Date\s+)?(Time\s+)?gpu\s+([a-z]\S*(?:\s+\S+)*)\s*$")
ROW = re.compile(r"^\s*(?:(\d{8})\s+)?(?:(\d\d:\d\d:\d\d)\s+)?(\d{1,4})\s+(\S.*)$")
PROCESSES = "pid"  # a column of `nvidia-smi pmon`, which has a row a process
HALF_DAY_S = 43_200
FIELDS = {
    "sm": ("utilisation_percent", 100, 1),
    "fb": ("memory_used_bytes", 2**33, MIB),
    "pwr": ("power_w", 1e5, 1),
    "gtemp": ("temperature_c", 1000, 1),
    "pclk": ("clock_sm_mhz", 1e6, 1),
    "mclk": ("clock_memory_mhz", 1e6, 1),
}
ABSENT = "-"


def recognise(log: LogFile) -> bool:
    first = next((line for line in log.head_text.splitlines() if line.strip()), "")
    match = HEADER.match(_spaced(first))
    return match is not None and PROCESSES not in match[3].split()


def read(log: LogFile) -> Iterator[Imported]:
    samples, number = Samples(log, FIELDS, ABSENT, COMMAND, energy_of_power=True), 0
    before = None
    for number, text in log.lines():
        line = _spaced(text)
        if number == log.unfinished:
            samples.left_out.add(number, CUT_SHORT)
        elif match := HEADER.match(line):
            samples.header(number, match[3].split())
        elif match := ROW.match(line):
            day, time, gpu, cells = match.groups()
            before = at = _date(day, time, before) if time else None
            samples.add(number, (at or NO_DATE) if time else None, gpu, cells.split())
    yield samples.imported(number)


def _spaced(line):
    """A line of the table, with spaces in place of the commas of CSV."""
    return line.replace(",", " ")


def _date(day, time, before):
    """The date of a row; without a day, the next one with that time after `before`. None: none."""
    try:
        at = datetime.strptime(f"{day or '20000101'} {time}", "%Y%m%d %H:%M:%S")
    except ValueError:
        return None
    if day is None and before:
        at += timedelta(days=(before - datetime(2000, 1, 1)).days)
        if (before - at).total_seconds() > HALF_DAY_S:
            at += timedelta(days=1)
    return at
