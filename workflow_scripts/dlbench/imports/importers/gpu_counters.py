"""Counters of GPUs, sampled beside a run: nvidia-smi's CSV, its `dmon`, and `dcgmi dmon`.

- `nvidia-smi --query-gpu=... --format=csv`, with -l or -lms: the header names columns and units;
  values have units too, unless `nounits`. Decimals may have commas; then cells are separated by
  comma and space. timestamp is local time, to the millisecond.
- `nvidia-smi dmon`, ` 20240104   13:54:35   0   97`: only with -o DT (or T) rows have local times,
  in whole seconds. A time alone that goes back by more than half a day is one of the next day.
  `--format csv` separates by commas.
- `dcgmi dmon`, `GPU 0   97   301.5`, has no times, unless `ts` writes a date before each line.
  Entities other than whole GPUs (instances, CPUs, switches) are left out.
- Samples without a time are not imported, since the interval is not in the log: the run has the
  largest memory in use of them. t_s counts from the first sample, not from the start of the run.
- Utilisation is the share of the driver's last period (1/6 s to 1 s) in which a kernel ran. Memory
  is that in use by all processes and the driver, in MiB, power that of the board in W (newer
  drivers give the mean of a second; of power.draw, .average and .instant the first counts).
- energy_j is power over time by the trapezoid rule between the samples of a GPU; or DCGM's counter
  TOTEC (field 156, mJ) less its first value, which is exact whatever the interval.
- Headers are repeated. `[N/A]`, `-` and the like are values that a GPU does not have. Other columns
  are named in the notes.

Source: nvidia-smi --help-query-gpu and its man page, driver 550, tables that users published;
NVIDIA/DCGM, dcgmi/DeviceMonitor.cpp and dcgmlib/src/dcgm_fields.cpp, July 2026 (of dcgmi no whole
log was found in public; the samples of the tests follow the program).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import CUT_SHORT, LeftOut, real
from dlbench.machine.gpus import throttle_reasons

FAMILY = None
ATTACHES = True
MIB = 2**20
TIME, INDEX = "timestamp", "index"
SELECTORS = (INDEX, "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
NAMES = ("name", "gpu_name")
REASONS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
# For each column of the samples what the programs call it, the highest plausible value, and its
# unit over that of the column.
VALUES = {
    "utilisation_percent": (("utilization.gpu", "sm", "GPUTL"), 100, 1),
    "memory_used_bytes": (("memory.used", "fb", "FBUSD"), 2**33, MIB),
    "power_w": (("power.draw", "power.draw.average", "power.draw.instant", "pwr", "POWER"), 1e5, 1),
    "temperature_c": (("temperature.gpu", "gtemp", "TMPTR"), 1000, 1),
    "clock_sm_mhz": (("clocks.sm", "clocks.current.sm", "pclk", "SMCLK"), 1e6, 1),
    "clock_memory_mhz": (("clocks.mem", "clocks.current.memory", "mclk", "MMCLK"), 1e6, 1),
    "energy_j": (("TOTEC",), 2**63, 1e-3),
}
KNOWN = {name for names, _, _ in VALUES.values() for name in names}
UNITS = {"", "%", "W", "MHz", "MiB"}
ABSENT = ("N/A", "ERR!", "-")
SAME_TIME_S = 0.01  # two samples that are nearer than this are of two GPUs
HALF_DAY_S = 43_200
QUERY_ROW = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d[.,]\d{3}, ")
DMON_HEADER = re.compile(r"^#\s?(?:Date\s+)?(?:Time\s+)?gpu\s+([a-z]\S*(?:\s+\S+)*)\s*$")
DMON_ROW = re.compile(r"^\s*(?:(\d{8})\s+)?(?:(\d\d:\d\d:\d\d)\s+)?(\d{1,4})\s+(\S.*)$")
PROCESSES = "pid"  # a column of `nvidia-smi pmon`, which has a row a process
_date = r"(?:(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{6})?)Z?\s+)?"
DCGM_HEADER = re.compile(rf"^{_date}#\s?Entity\s+(\S.*)$")
DCGM_UNITS = re.compile(rf"^{_date}I[Dd](?:\s|$)")
DCGM_ROW = re.compile(rf"^{_date}(\S+)\s+(\d{{1,9}})\s+(\S.*)$")


def _query_names(line):
    """The columns of a header, without their units.

    >>> _query_names("timestamp, utilization.gpu [%], memory.used [MiB]")
    ['timestamp', 'utilization.gpu', 'memory.used']
    """
    names = [cell.partition("[")[0].strip() for cell in line.split(",")]
    return names if len(names) > 1 and any("." in name and name in KNOWN for name in names) else []


def _query_cells(line, count):
    """The cells of a line that should have `count`.

    >>> _query_cells("2024/06/01 11:27:05.177, 4 %, 61,27 W", 3)
    ['2024/06/01 11:27:05.177', '4 %', '61,27 W']
    """
    cells = line.split(",")
    if len(cells) != count:
        cells = re.split(r",\s+", line)
    return [cell.strip() for cell in cells]


def _dmon_names(line):
    match = DMON_HEADER.match(line.replace(",", " "))
    names = match[1].split() if match else [PROCESSES]
    return [] if PROCESSES in names else [TIME, INDEX, *names]


def _dmon_cells(line, _):
    if not (match := DMON_ROW.match(line.replace(",", " "))):
        return []
    day, time, gpu, cells = match.groups()
    date = f"{day[:4]}-{day[4:6]}-{day[6:]} {time}" if day and time else time or ""
    return [date, gpu, *cells.split()]


def _dcgm_names(line):
    match = DCGM_HEADER.match(line)
    return [TIME, INDEX, *match[2].split()] if match else []


def _dcgm_cells(line, _):
    if DCGM_UNITS.match(line) or not (match := DCGM_ROW.match(line)):
        return []
    date, entity, number, cells = match.groups()
    return [date or "", number if entity == "GPU" else f"{entity} {number}", *cells.split()]


class _Form(NamedTuple):
    """How a program prints: the names in a header, and the cells of a row; [] of other lines."""

    names: Callable[[str], list[str]]
    cells: Callable[[str, int], list[str]]
    command: str  # by which samples have times
    whole_seconds: bool = False


QUERY = _Form(
    _query_names,
    _query_cells,
    "nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,memory.used,power.draw,"
    "temperature.gpu,clocks.sm,clocks.mem --format=csv -l 1",
)
FORMS = (
    _Form(_dmon_names, _dmon_cells, "nvidia-smi dmon -s pucm -o DT", whole_seconds=True),
    _Form(
        _dcgm_names,
        _dcgm_cells,
        "dcgmi dmon -e 203,252,155,156,150,100 | ts '%Y-%m-%dT%H:%M:%.S'",
    ),
    QUERY,
)


def recognise(log: LogFile) -> bool:
    first, form = _first_line(log)
    return bool(form.names(first) or QUERY_ROW.match(first))


def _first_line(log):
    """(the first line that is not empty, its form; QUERY if it is no header)."""
    first = next((line for line in log.head_text.splitlines() if line.strip()), "")
    return first, next((form for form in FORMS if form.names(first)), QUERY)


def read(log: LogFile) -> Iterator[Imported]:
    _, form = _first_line(log)
    samples, number = _Samples(log, form), 0
    for number, line in log.lines():
        if number == log.unfinished:
            samples.left_out.add(number, CUT_SHORT)
        elif names := form.names(line):
            samples.header(number, names)
        elif line.strip() and (cells := form.cells(line, len(samples.names))):
            samples.add(number, cells)
    yield samples.imported(number)


class _Samples:
    """The samples of a log, and the state for reading the next one."""

    def __init__(self, log, form):
        self.log, self.form = log, form
        self.names, self.rows, self.models = [], [], {}
        self.first = self.before = None  # dates
        self.last_s, self.latest_s = 0.0, {}  # times of the last sample, and of that of each GPU
        self.undated, self.peak_bytes = 0, 0
        self.counters = {}  # first and last value of each GPU's counter of energy, mJ
        self.power = {}  # time, power and energy of each GPU's last sample that has a power
        self.absent, self.left_out = Counter(), LeftOut()

    def header(self, number, names):
        if TIME not in names:
            raise self.log.error(
                number, f"no timestamp, so no time of a sample; log with: {self.form.command}"
            )
        if self.names not in ([], names):
            raise self.log.error(number, "a header with other columns: these are two logs")
        self.names = names

    def add(self, number, cells):
        if not self.names:
            self.left_out.add(number, "before the header")
            return
        if len(cells) != len(self.names):
            self.left_out.add(number, f"{len(cells)} values for {len(self.names)} columns")
            return
        row = dict(zip(self.names, cells, strict=True))
        gpu = next((row[name] for name in SELECTORS if name in row), None)
        if gpu and " " in gpu:
            self.left_out.add(number, f"not a whole GPU: {gpu[:20]}")
            return
        sample = self._values(number, row, gpu or "0")
        self.peak_bytes = max(self.peak_bytes, sample.get("memory_used_bytes", 0))
        if not row[TIME]:
            self.undated += 1
        elif (t_s := self._time(number, row[TIME], gpu)) is not None:
            gpu = gpu or "0"
            if "power_w" in sample and "TOTEC" not in row:
                sample["energy_j"] = self._energy_j(gpu, t_s, sample["power_w"])
            self.rows.append({"t_s": t_s, "gpu": gpu, **sample})
            if name := next((row[name] for name in NAMES if row.get(name)), None):
                self.models[gpu] = name

    def _time(self, number, text, gpu):
        """Seconds since the first sample; None if the sample is left out for its time."""
        date = _parse_date(text, self.before)
        if date is None:
            self.left_out.add(number, "a timestamp that is not a date")
            return None
        self.first, self.before = self.first or date, date
        t_s = (date - self.first).total_seconds()
        if gpu is None and self.rows and 0 <= t_s - self.last_s < SAME_TIME_S:
            raise self.log.error(
                number,
                "a sample at the same time as the one before it: of which GPU? Ask for the index "
                f"too: {self.form.command}",
            )
        latest_s = self.latest_s.get(gpu, -1.0)
        if t_s < max(latest_s, 0) or (t_s == latest_s and not self.form.whole_seconds):
            self.left_out.add(number, "a time no later than that of the GPU's last sample")
            return None
        self.latest_s[gpu] = self.last_s = t_s
        return t_s

    def _values(self, number, row, gpu):
        sample = {}
        for column, (names, high, scale) in VALUES.items():
            if not (present := [name for name in names if name in row]):
                continue
            # The first that has a number.
            name = next((n for n in present if _number(row[n], high) is not None), present[0])
            value = _number(row[name], high)
            if value is None and (row[name].startswith("[") or row[name] in ABSENT):
                self.absent[name] += 1
            elif value is None:
                self.left_out.add(number, f"{name} is not a number, or out of range")
            elif column != "energy_j":
                sample[column] = round(value * scale) if scale == MIB else value
            elif value < self.counters.get(gpu, (value, value))[1]:
                self.left_out.add(number, "the energy counter went backwards: was it reset?")
            else:
                first, _ = self.counters.get(gpu, (value, value))
                self.counters[gpu] = (first, value)
                sample[column] = (value - first) * scale
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
        if not self.names:
            raise self.log.error(
                1, f"no header that names the columns; log with: {self.form.command}"
            )
        if not self.rows and not self.undated:
            raise self.log.error(last_line, "no sample of a GPU after the header")
        run = Imported({}, samples=self.rows, lines=(1, last_line))
        if self.first:
            run.notes.append(f"first sample at {self.first}; t_s counts from there")
        if self.undated:
            run.notes.append(
                f"{self.undated} samples have no time, left out; with one: {self.form.command}"
            )
        if self.models:
            run.columns["device_model"] = " + ".join(sorted(set(self.models.values())))
        if self.peak_bytes:
            run.columns["peak_used_bytes_per_device"] = self.peak_bytes
        if self.counters:
            used_j = sum(last - first for first, last in self.counters.values()) / 1000
            run.notes.append(f"{used_j:.1f} J of {len(self.counters)} GPUs by DCGM's counter")
        if self.power:
            run.notes.append("energy_j from power_w by the trapezoid rule")
        if not any(name in self.names for name in SELECTORS):
            run.notes.append("no index in the log: taken as GPU 0")
        if unknown := set(self.names) - {TIME, *NAMES, *SELECTORS, *REASONS, *KNOWN}:
            run.notes.append(f"columns left out: {log_lines.list_names(unknown)}")
        for name, times in self.absent.items():
            run.notes.append(f"{name}: not there in {times} samples")
        run.notes += self.left_out.notes()
        return run


def _parse_date(text, before):
    """The date of a row; a time alone is the next one of that time after `before`. None: none."""
    is_time = len(text) == len("00:00:00")
    text = f"2000-01-01 {text}" if is_time else text.replace("/", "-").replace(",", ".")
    try:
        date = datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None
    if is_time and before:
        date += timedelta(days=(before - datetime(2000, 1, 1)).days)
        if (before - date).total_seconds() > HALF_DAY_S:
            date += timedelta(days=1)
    return date


def _number(cell, high):
    """The number in a cell, with or without its unit; None if the cell has none.

    >>> _number("40960 MiB", 2**33), _number("4", 100), _number("[N/A]", 100), _number("-5 W", 9)
    (40960.0, 4.0, None, None)
    >>> _number("61,27 W", 1e5)
    61.27
    """
    text, _, unit = cell.partition(" ")
    return real(text.replace(",", "."), 0, high) if unit in UNITS else None
