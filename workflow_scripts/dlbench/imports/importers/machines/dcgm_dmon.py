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
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT, LeftOut, real

FAMILY = None
ATTACHES = True
COMMAND = "dcgmi dmon -e 203,252,155,156,150,100 | ts '%Y-%m-%dT%H:%M:%.S'"
DATE = r"(?:(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{6})?)Z?\s+)?"
HEADER = re.compile(rf"^{DATE}#\s?Entity\s+(\S.*)$")
UNITS = re.compile(rf"^{DATE}I[Dd](?:\s|$)")
ROW = re.compile(rf"^{DATE}(\S+)\s+(\d{{1,9}})\s+(\S.*)$")
MIB = 2**20
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
    samples, number = _Samples(log), 0
    for number, line in log.lines():
        if number == log.unfinished:
            samples.left_out.add(number, CUT_SHORT)
        elif match := HEADER.match(line):
            samples.header(number, match[2].split())
        elif not UNITS.match(line) and (match := ROW.match(line)):
            samples.add(number, *match.groups())
    yield samples.imported(number)


class _Samples:
    """The samples of a log, and the state for reading the next one."""

    def __init__(self, log):
        self.log = log
        self.names = None
        self.rows, self.first, self.last_s = [], None, 0.0
        self.undated, self.memory = 0, 0
        self.energy = {}  # first value of the counter and the last one, of each GPU, in J
        self.absent = Counter()
        self.left_out = LeftOut()

    def header(self, number, names):
        if self.names is not None and names != self.names:
            raise self.log.error(number, "a header with other fields: these are two logs")
        self.names = names

    def add(self, number, date, entity, gpu, text):
        cells = text.split()
        if entity != "GPU":
            self.left_out.add(number, f"not a whole GPU: {entity[:20]}")
        elif self.names is None or len(cells) != len(self.names):
            self.left_out.add(number, f"{len(cells)} values for {len(self.names or [])} fields")
        else:
            row = {}
            for name, cell in zip(self.names, cells, strict=True):
                row |= self._value(number, gpu, name, cell)
            self.memory = max(self.memory, row.get("memory_used_bytes", 0))
            if date is None:
                self.undated += 1
            elif (t_s := self._time(number, date)) is not None:
                self.rows.append({"t_s": t_s, "gpu": gpu, **row})

    def _time(self, number, date):
        """Seconds since the first sample; None if the sample is left out for its date."""
        try:
            at = datetime.fromisoformat(date)
        except ValueError:
            self.left_out.add(number, "not a date")
            return None
        self.first = self.first or at
        t_s = (at - self.first).total_seconds()
        if t_s < self.last_s:
            self.left_out.add(number, "a date earlier than that of the sample before")
            return None
        self.last_s = t_s
        return t_s

    def _value(self, number, gpu, name, cell):
        if name not in FIELDS:
            return {}
        column, high, scale = FIELDS[name]
        value = real(cell, 0, high)
        if value is None:
            if cell == ABSENT:
                self.absent[name] += 1
            else:
                self.left_out.add(number, f"{name} is not a number, or out of range")
            return {}
        if column != "energy_j":
            return {column: round(value * scale) if scale == MIB else value}
        first, last = self.energy.get(gpu, (value, value))
        if value < last:
            self.left_out.add(number, "the energy counter went backwards: was it reset?")
            return {}
        self.energy[gpu] = (first, value)
        return {column: (value - first) * scale}

    def imported(self, last_line):
        if not self.rows and not self.undated:
            raise self.log.error(last_line or 1, "no sample of a GPU after the header")
        run = Imported({}, samples=self.rows, lines=(1, last_line))
        if self.first:
            run.notes.append(f"first sample at {self.first}; t_s counts from there")
        if self.undated:
            run.notes.append(f"{self.undated} samples have no time, left out; with one: {COMMAND}")
        if self.memory:
            run.columns["peak_used_bytes_per_device"] = self.memory
        if self.energy:
            used_j = sum(last - first for first, last in self.energy.values()) / 1000
            run.notes.append(f"{used_j:.1f} J of {len(self.energy)} GPUs by DCGM's counter")
        if unknown := set(self.names) - set(FIELDS):
            run.notes.append(f"fields left out: {log_values.list_names(unknown)}")
        for name, times in self.absent.items():
            run.notes.append(f"{name}: not there in {times} samples")
        run.notes += self.left_out.notes()
        return run
