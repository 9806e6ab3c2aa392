"""The rows of a history in arrays, each with the machine and the condition that it is of."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench.history import machines


class HistoryRows:
    """The rows of a history by number: codes of what they are of, and their numbers.

    Args:
        table: as dataset.read returns it, with the columns of analyse_history.COLUMNS.
        names: {key of a machine: name}, as the config says.
        more: further columns of the table with texts.

    Attributes:
        meaning: the code of the meaning of each row, also where its record does not say it.
        remarks: texts on conditions whose name has several meanings.
    """

    def __init__(self, table: pa.Table, names: Mapping[str, str], more: Sequence[str] = ()) -> None:
        self.remarks: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.codes: dict[str, np.ndarray] = {}
        for name in (
            *("site", "session", "machine_key", "machine", "machine_facts", "condition_id"),
            *("condition", "metric", "unit", "better", "meaning", "facts", "hosts", "file"),
            *("study", "archive_sha256", *more),
        ):
            self.codes[name], self.texts[name] = _coded(table[name])
        self.dates = table["started_at"].to_numpy() if len(table) else np.array([], "M8[us]")
        self.n, self.failed = _numbers(table["n"]), _numbers(table["failed"])
        self.means, self.scatters = _numbers(table["mean_log"]), _numbers(table["scatter"])
        keys = self.texts["machine_key"]
        self.machine_names = [names.get(key, key) for key in keys]
        distinct = sorted(set(self.machine_names))
        position = {name: index for index, name in enumerate(distinct)}
        of_key = np.array([position[name] for name in self.machine_names], dtype=int)
        self.machine = of_key[self.codes["machine_key"]] if len(keys) else np.array([], int)
        self.distinct_machines = distinct
        self.condition = self._conditions()

    @property
    def machine_ids(self) -> pa.Array:
        """The machine of each row: its name in the config, or its key."""
        return pa.array([self.distinct_machines[code] for code in self.machine], pa.string())

    def text(self, name: str, row: int) -> Any:
        """The text of a column in a row."""
        code = self.codes[name][row]
        return self.texts[name][code] if code >= 0 else None

    def places(self) -> list[tuple[int, int]]:
        """(code of a site, code of a machine) of all that were measured."""
        pairs = np.unique(np.stack([self.codes["site"], self.machine]), axis=1)
        return [(int(site), int(machine)) for site, machine in pairs.T]

    def machines(self) -> Iterator[machines.Machine]:
        """What is known of each key at each site."""
        pairs = np.stack([self.codes["site"], self.codes["machine_key"]])
        distinct, inverse = np.unique(pairs, axis=1, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        parts = np.split(order, np.searchsorted(inverse[order], np.arange(1, distinct.shape[1])))
        for rows in parts if len(order) else ():
            hosts = {self.texts["hosts"][code] for code in set(self.codes["hosts"][rows]) - {-1}}
            yield machines.Machine(
                self.text("site", rows[0]),
                self.text("machine_key", rows[0]),
                json.loads(self.text("machine_facts", rows[0])),
                self.dates[rows].min(),
                self.dates[rows].max(),
                frozenset(host for text in hosts for host in text.split(", ")),
            )

    def _conditions(self):
        """A number for each condition, its meaning and the metric; remarks where meanings differ.

        Where the meaning is not recorded, as in early versions, it is taken to be the others'.
        """
        count = len(self.dates)
        ids, meanings = self.codes["condition_id"], self.codes["meaning"]
        meaning = meanings.copy()
        pairs = np.unique(np.stack([ids, meanings]), axis=1) if count else np.empty((2, 0), int)
        known: dict[int, list[int]] = {}
        for condition, code in pairs.T:
            known.setdefault(int(condition), []).append(int(code))
        for condition, codes in known.items():
            if len(codes) < 2:
                continue
            rows = np.flatnonzero(ids == condition)
            told = [code for code in codes if self.texts["meaning"][code] != "{}"]
            if len(told) == 1:
                meaning[rows] = told[0]
                continue
            label = self.text("condition", rows[0])
            parts = ", ".join(
                f"{self.texts['meaning'][code]} from "
                f"{day(self.dates[rows][meanings[rows] == code].min())}"
                for code in codes
            )
            self.remarks.append(
                f"{label}: one name and several meanings, which are kept apart: {parts}"
            )
        self.meaning = meaning
        triples = np.stack([ids, meaning, self.codes["metric"]])
        return np.unique(triples, axis=1, return_inverse=True)[1].ravel()


def _coded(column):
    """(codes, -1 for none; texts) of a column of texts."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # of no chunks, or several that cannot be joined
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, column.dictionary.to_pylist()


def _numbers(column):
    return column.to_numpy().astype(float) if len(column) else np.array([])


def to_time(date: Any) -> datetime:
    """A date of numpy, or one of Python, as one of Python."""
    return date.astype("M8[us]").astype(object) if isinstance(date, np.datetime64) else date


def day(when: Any) -> str:
    """A date in words."""
    return f"{to_time(when):%Y-%m-%d}"
