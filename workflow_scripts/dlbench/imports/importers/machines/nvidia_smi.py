"""The CSV of `nvidia-smi --query-gpu=... --format=csv`, sampled with -l or -lms beside a run.

- The header names the columns and their units; the values have units too, unless `nounits`. It is
  repeated if the file was appended to. A log without a header is refused, because utilisation of
  the GPU and of its memory look the same.
- timestamp is local time, to the millisecond. t_s counts from the first sample in the log, which
  is not the start of the run.
- utilization.gpu is the share of the driver's last period (1/6 s to 1 s) in which a kernel ran.
  memory.used is by all processes and the driver, in MiB. power.draw is of the board, in W; newer
  drivers give the mean of a second. If it is absent, power.draw.average or power.draw.instant is
  used.
- Decimals may have commas, as in some locales; then cells are separated by comma and space.
- energy_j is computed: power over time by the trapezoid rule, between the samples of a GPU, from
  its first one. Changes between two samples are unknown.
- `[N/A]`, `[Not Supported]` and the like are values that the GPU does not have: absent.

Source: nvidia-smi --help-query-gpu; NVIDIA System Management Interface's manual.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT, LeftOut, real
from dlbench.machine.gpu_readings import throttle_reasons

FAMILY = None
ATTACHES = True
QUERY = (
    "nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,memory.used,power.draw,"
    "temperature.gpu,clocks.sm,clocks.mem --format=csv -l 1"
)
DATE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d[.,]\d{3}")
DATE_FORMAT = "%Y/%m/%d %H:%M:%S.%f"
SELECTORS = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
NAMES = ("name", "gpu_name")
# For each column of the samples table the query's columns, and the highest plausible value.
VALUES = {
    "utilisation_percent": (("utilization.gpu",), 100),
    "memory_used_bytes": (("memory.used",), 2**33),
    "power_w": (("power.draw", "power.draw.average", "power.draw.instant"), 1e5),
    "temperature_c": (("temperature.gpu",), 1000),
    "clock_sm_mhz": (("clocks.sm", "clocks.current.sm"), 1e6),
    "clock_memory_mhz": (("clocks.mem", "clocks.current.memory"), 1e6),
}
REASONS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
UNITS = {"%": 1, "W": 1, "MHz": 1, "MiB": 1}
MIB = 2**20
SAME_TIME_S = 0.01  # two samples that are nearer than this are of two GPUs


def recognise(log: LogFile) -> bool:
    first = log.head_text.partition("\n")[0]
    return _is_header(_names(first)) or bool(DATE.match(first) and ", " in first)


def _names(line):
    """The columns of a header, without their units.

    >>> _names("timestamp, utilization.gpu [%], memory.used [MiB]")
    ['timestamp', 'utilization.gpu', 'memory.used']
    """
    return [cell.partition("[")[0].strip() for cell in line.split(",")]


def _is_header(names):
    known = {name for columns, _ in VALUES.values() for name in columns}
    return len(names) > 1 and not known.isdisjoint(names)


def read(log: LogFile) -> Iterator[Imported]:
    samples, number = _Samples(log), 0
    for number, line in log.lines():
        if number == log.unfinished:
            samples.left_out.add(number, CUT_SHORT)
        elif _is_header(names := _names(line)):
            samples.header(number, names)
        elif line.strip():
            samples.add(number, line)
    yield samples.imported(number)


class _Samples:
    """The samples of a log, and the state for reading the next one."""

    def __init__(self, log):
        self.log = log
        self.names = None
        self.rows, self.models = [], {}
        self.first, self.last_s = None, 0.0
        self.latest_s = {}  # time of each GPU's last sample
        self.power = {}  # time, power and energy of each GPU's last sample that has a power
        self.absent = Counter()
        self.left_out = LeftOut()

    def header(self, number, names):
        if "timestamp" not in names:
            raise self.log.error(number, f"no timestamp, so no time of a sample; log with: {QUERY}")
        if self.names is None:
            self.names = names
        elif names == self.names:
            self.left_out.add(number, "the header again")
        else:
            raise self.log.error(number, "a header with other columns: these are two logs")

    def add(self, number, line):
        if self.names is None:
            self.left_out.add(number, "before the header")
            return
        cells = _cells(line, len(self.names))
        if len(cells) != len(self.names):
            self.left_out.add(number, f"{len(cells)} values for {len(self.names)} columns")
            return
        row = dict(zip(self.names, cells, strict=True))
        t_s = self._time(number, row)
        if t_s is None:
            return
        gpu = next((row[name] for name in SELECTORS if name in row), None)
        if gpu is None and self.rows and t_s - self.last_s < SAME_TIME_S:
            raise self.log.error(
                number,
                "a sample at the same time as the one before it: of which GPU? Ask for the index "
                f"too: {QUERY}",
            )
        gpu = gpu or "0"
        if t_s <= self.latest_s.get(gpu, -1.0):
            self.left_out.add(number, "a time no later than that of the GPU's last sample")
            return
        self.latest_s[gpu] = self.last_s = t_s
        sample = {"t_s": t_s, "gpu": gpu, **self._values(number, row)}
        if "power_w" in sample:
            sample["energy_j"] = self._energy_j(gpu, t_s, sample["power_w"])
        self.rows.append(sample)
        name = next((row[name] for name in NAMES if name in row), None)
        if name:
            self.models[gpu] = name

    def _time(self, number, row):
        """Seconds since the first sample; None if the line is left out for its timestamp."""
        try:
            date = datetime.strptime(row["timestamp"].replace(",", "."), DATE_FORMAT)
        except ValueError:
            self.left_out.add(number, "a timestamp that is not a date")
            return None
        self.first = self.first or date
        t_s = (date - self.first).total_seconds()
        if t_s < 0:
            self.left_out.add(number, "a time before that of the first sample")
            return None
        return t_s

    def _values(self, number, row):
        sample = {}
        for column, (names, high) in VALUES.items():
            present = [name for name in names if name in row]
            if not present:
                continue
            # The first column that has a number.
            name = next((n for n in present if _number(row[n], high) is not None), present[0])
            value = _number(row[name], high)
            if value is not None:
                sample[column] = round(value * MIB) if column == "memory_used_bytes" else value
            elif row[name].startswith("[") or row[name] in ("N/A", "ERR!"):
                self.absent[name] += 1
            else:
                self.left_out.add(number, f"{name} is not a number, or out of range")
        mask = next((row[name] for name in REASONS if name in row), "")
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask):
            sample["throttle_reasons"] = "+".join(throttle_reasons(int(mask, 16)))
        return sample

    def _energy_j(self, gpu, t_s, power_w):
        """Energy since the GPU's first sample with a power; samples without one are skipped."""
        before_s, before_w, energy_j = self.power.get(gpu, (t_s, power_w, 0.0))
        energy_j += (t_s - before_s) * (before_w + power_w) / 2
        self.power[gpu] = (t_s, power_w, energy_j)
        return energy_j

    def imported(self, last_line):
        if self.names is None:
            raise self.log.error(1, f"no header that names the columns; log with: {QUERY}")
        if not self.rows:
            raise self.log.error(last_line, "no sample after the header")
        run = Imported({}, samples=self.rows, lines=(1, last_line))
        run.notes.append(f"first sample at {self.first} local time; t_s counts from there")
        models = sorted(set(self.models.values()))
        if models:
            run.columns["device_model"] = " + ".join(models)
        if any("energy_j" in row for row in self.rows):
            run.notes.append("energy_j from power_w by the trapezoid rule")
        if not any(name in self.names for name in SELECTORS):
            run.notes.append("no index in the log: taken as GPU 0")
        used = {
            "timestamp",
            *NAMES,
            *SELECTORS,
            *REASONS,
            *(n for ns, _ in VALUES.values() for n in ns),
        }
        if unknown := set(self.names) - used:
            run.notes.append(f"columns left out: {log_values.list_names(unknown)}")
        for name, times in self.absent.items():
            run.notes.append(f"{name}: not there in {times} samples")
        run.notes += self.left_out.notes()
        return run


def _number(cell, high):
    """The number in a cell, with or without its unit; None if the cell has none.

    >>> _number("40960 MiB", 2**33), _number("4", 100), _number("[N/A]", 100), _number("-5 W", 9)
    (40960.0, 4.0, None, None)
    >>> _number("61,27 W", 1e5)
    61.27
    """
    text, _, unit = cell.partition(" ")
    return real(text.replace(",", "."), 0, high) if not unit or unit in UNITS else None


def _cells(line, count):
    """The cells of a line that should have `count`.

    If decimals have commas, only a comma before a space separates cells.

    >>> _cells("2024/06/01 11:27:05.177, 4 %, 61,27 W", 3)
    ['2024/06/01 11:27:05.177', '4 %', '61,27 W']
    """
    cells = line.split(",")
    if len(cells) != count:
        cells = re.split(r",\s+", line)
    return [cell.strip() for cell in cells]
