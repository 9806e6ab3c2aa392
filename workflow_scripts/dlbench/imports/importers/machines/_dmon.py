"""Samples of GPUs in the tables of dcgmi dmon and nvidia-smi dmon: a header, a row a GPU."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import LeftOut, real

MIB = 2**20
NO_DATE = "not a date"  # in place of the date of a row
Field = tuple[str, float, float]  # column, highest plausible value, its unit over the column's


class Samples:
    """The samples of a log, and the state for reading the next one.

    Attributes:
        names: of the columns, by the header.
        power: last time, power and energy of each GPU, where energy is computed from power.
    """

    def __init__(
        self,
        log: LogFile,
        fields: Mapping[str, Field],
        absent: str,
        command: str,
        energy_of_power: bool = False,
    ) -> None:
        """Args:
        fields: the columns that are read, by their names in the header.
        absent: what a cell without a value has.
        command: one by which rows have dates, for notes.
        energy_of_power: whether energy is computed from power, by the trapezoid rule.
        """
        self.log, self.fields, self.absent_cell = log, fields, absent
        self.command, self.energy_of_power = command, energy_of_power
        self.names: Sequence[str] | None = None
        self.rows: list[dict[str, Any]] = []
        self.first: datetime | None = None
        self.last_s, self.undated, self.memory = 0.0, 0, 0
        self.energy: dict[str, tuple[float, float]] = {}  # of the counter, first and last value
        self.power: dict[str, tuple[float, float, float]] = {}
        self.absent: Counter[str] = Counter()
        self.left_out = LeftOut()

    def header(self, number: int, names: Sequence[str]) -> None:
        if self.names is not None and names != self.names:
            raise self.log.error(number, "a header with other fields: these are two logs")
        self.names = names

    def add(self, number: int, at: datetime | str | None, gpu: str, cells: Sequence[str]) -> None:
        """Add a row.

        Args:
            at: its date; None if the log has none.
        """
        if self.names is None or len(cells) != len(self.names):
            self.left_out.add(number, f"{len(cells)} values for {len(self.names or [])} fields")
            return
        row: dict[str, Any] = {}
        for name, cell in zip(self.names, cells, strict=True):
            row |= self._value(number, gpu, name, cell)
        self.memory = max(self.memory, row.get("memory_used_bytes", 0))
        if at is None:
            self.undated += 1
        elif (t_s := self._time(number, at)) is not None:
            if self.energy_of_power and "power_w" in row:
                row["energy_j"] = self._energy_j(gpu, t_s, row["power_w"])
            self.rows.append({"t_s": t_s, "gpu": gpu, **row})

    def _time(self, number, at):
        """Seconds since the first sample; None if the sample is left out for its date."""
        if at == NO_DATE:
            self.left_out.add(number, NO_DATE)
            return None
        self.first = self.first or at
        t_s = (at - self.first).total_seconds()
        if t_s < self.last_s:
            self.left_out.add(number, "a date earlier than that of the sample before")
            return None
        self.last_s = t_s
        return t_s

    def _energy_j(self, gpu, t_s, power_w):
        """Energy since the GPU's first sample with a power."""
        before_s, before_w, energy_j = self.power.get(gpu, (t_s, power_w, 0.0))
        energy_j += (t_s - before_s) * (before_w + power_w) / 2
        self.power[gpu] = (t_s, power_w, energy_j)
        return energy_j

    def _value(self, number, gpu, name, cell):
        if name not in self.fields:
            return {}
        column, high, scale = self.fields[name]
        value = real(cell, 0, high)
        if value is None:
            if cell == self.absent_cell:
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

    def imported(self, last_line: int) -> Imported:
        """The run of all samples, which belongs to that of another log.

        Raises:
            LogError: there is no sample.
        """
        if not self.rows and not self.undated:
            raise self.log.error(last_line or 1, "no sample of a GPU after the header")
        run = Imported({}, samples=self.rows, lines=(1, last_line))
        if self.first:
            run.notes.append(f"first sample at {self.first}; t_s counts from there")
        if self.undated:
            run.notes.append(
                f"{self.undated} samples have no time, left out; with one: {self.command}"
            )
        if self.memory:
            run.columns["peak_used_bytes_per_device"] = self.memory
        if self.energy:
            used_j = sum(last - first for first, last in self.energy.values()) / 1000
            run.notes.append(f"{used_j:.1f} J of {len(self.energy)} GPUs by DCGM's counter")
        if self.power:
            run.notes.append("energy_j from power_w by the trapezoid rule")
        if unknown := set(self.names or ()) - set(self.fields):
            run.notes.append(f"fields left out: {log_values.list_names(unknown)}")
        for name, times in self.absent.items():
            run.notes.append(f"{name}: not there in {times} samples")
        run.notes += self.left_out.notes()
        return run
