"""The table of `dcgmi dmon`, which DCGM samples beside a run: `GPU 0   97   301.5`, a row a GPU.

- It has no times. With a date before each line, as `ts` writes it, t_s counts from the first
  sample. Samples without one are not imported: the interval (-d, 1 s by default) is not
  in the log, and none is assumed. Of them the notes have the energy, and the run the largest memory
  in use.
- energy_j is the counter TOTEC (field 156, mJ) less its first value: exact, whatever the
  interval. Without it there is no energy: power over an unknown time gives none.
- GPUTL (203) is the share of the driver's last period in which a kernel ran, FBUSD (252) memory
  in use by all processes and the driver, in MiB; POWER (155) W of the board, TMPTR (150) degrees
  Celsius, SMCLK and MMCLK (100, 101) MHz. Other fields, as of profiling (SMACT, TENSO), are named
  in the notes.
- The header is repeated every few rows. N/A is absent. Entities other than whole GPUs (instances,
  CPUs, switches) are left out.
- The text of dcgm-exporter has no history: it is for Prometheus, and not imported.

Source: NVIDIA/DCGM, dcgmi/DeviceMonitor.cpp and dcgmlib/src/dcgm_fields.cpp, July 2026. No whole
log was found in public; the samples of the tests follow the program.
"""

import re
from collections.abc import Iterator
from datetime import datetime

from dlbench.imports.importers import Imported
from dlbench.imports.importers.machines._dmon import MIB, NO_DATE, Samples
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT

FAMILY = None
ATTACHES = True
COMMAND = "dcgmi dmon -e 203,252,155,156,150,100 | ts '%Y-%m-%dT%H:%M:%.S'"
DATE = r"(?:(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{6})?)Z?\s+)?"
HEADER = re.compile(rf"^{DATE}#\s?Entity\s+(\S.*)$")
UNITS = re.compile(rf"^{DATE}I[Dd](?:\s|$)")
ROW = re.compile(rf"^{DATE}(\S+)\s+(\d{{1,9}})\s+(\S.*)$")
# For each field the column, the highest plausible value, and its unit over that of the column.
FIELDS = {
    "GPUTL": ("utilisation_percent", 100, 1),
    "FBUSD": ("memory_used_bytes", 2**33, MIB),
    "POWER": ("power_w", 1e5, 1),
    "TMPTR": ("temperature_c", 1000, 1),
    "SMCLK": ("clock_sm_mhz", 1e6, 1),
    "MMCLK": ("clock_memory_mhz", 1e6, 1),
    "TOTEC": ("energy_j", 2**63, 1e-3),
}
ABSENT = "N/A"


def recognise(log: LogFile) -> bool:
    first = next((line for line in log.head_text.splitlines() if line.strip()), "")
    return bool(HEADER.match(first))


def read(log: LogFile) -> Iterator[Imported]:
    samples, number = Samples(log, FIELDS, ABSENT, COMMAND), 0
    for number, line in log.lines():
        if number == log.unfinished:
            samples.left_out.add(number, CUT_SHORT)
        elif match := HEADER.match(line):
            samples.header(number, match[2].split())
        elif not UNITS.match(line) and (match := ROW.match(line)):
            date, entity, gpu, text = match.groups()
            if entity == "GPU":
                samples.add(number, date and (_date(date) or NO_DATE), gpu, text.split())
            else:
                samples.left_out.add(number, f"not a whole GPU: {entity[:20]}")
    yield samples.imported(number)


def _date(text):
    """The date of a line; None if it is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
