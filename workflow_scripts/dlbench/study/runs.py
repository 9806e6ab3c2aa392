"""A run: one combination that is trained and measured, and the name it goes by.

A run is an immutable value. Its id is readable words plus a hash of its plain
values; values equal to their defaults are left out of the hash, so that a new
field changes no existing id. Ids never change between releases.
"""

import dataclasses
import functools
import itertools
import json
import operator
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dlbench import Error
from dlbench.common import files, phrases, run_fields
from dlbench.common.run_fields import DECLARED, DEFAULTS, FIELDS, RunFields
from dlbench.study import parameters, wording

# Which fields are about reading stored items.
READING = tuple(name for name, field in DECLARED.items() if field.part == run_fields.READING)
# The fields that name a file, and the folder it lies in.
PLUGIN_FOLDERS = {name: field.folder for name, field in DECLARED.items() if field.folder}
# Fields in which repeats agree, also those of a later session.
CONDITION = tuple(name for name, field in DECLARED.items() if field.of_condition)
# Fields in which repeats differ. A seed is no condition, so runs of other seeds are repeats.
REPEATED = (*(name for name in DECLARED if name not in CONDITION), "seed")
# Fields in which a run and its counterpart on synthetic items must agree. They may differ in
# length, in how real items are read, and in what changes numbers but not the work of a step.
SAME_SPEED = tuple(name for name, field in DECLARED.items() if field.changes_speed)
# Fields that the label of a run has, in addition to those that all labels have, if their values are
# not the default ones.
_LABELLED = wording.in_order(
    {name for name, field in DECLARED.items() if field.is_mapping or field.switch}
    | {"precision", "mode", "runtime", "copies_per_node", "trainer", "sentinel", "probe"}
    | {parameters.FIELD}
)
FLAGS = "{flags}"  # in a command: the flags of the run that it trains
_REALS = tuple(name for name, field in FIELDS.items() if field.type is float)


@dataclass(frozen=True, kw_only=True)
class Run(RunFields):
    """One combination. Its fields, declared in dlbench/common/run_fields.py, are the flags of
    `train.py` and the keys of a matrix block.

    A run with a `sentinel` is not part of a matrix: it repeats a finished run in a later session.
    The number counts the sessions that have sentinels, from 1 (dlbench/plan/sentinels.py). A
    `probe` is a short run that shows what the steps of other runs consist of; it enters no
    statistics (dlbench/study/probes.py). A `node` is the only node on which the run may be trained.
    """

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """The run with the values that `values()` gives, as JSON.

        Raises Error: it is no JSON object, or a field is unknown or missing.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise Error(f"expected the fields of a run as JSON, found {text!r}: {error}") from error

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "Run":
        """The run with the values in `spec`, that of a log's run_start or of a record.

        Raises Error: it names no run: a field is unknown, missing, or of another type.
        """
        given = {name: value for name, value in spec.items() if value is not None}
        wrong = [name for name, value in given.items() if not _fits(name, value)]
        try:
            if wrong:
                raise TypeError(f"{', '.join(wrong)}: no field of a run, or of another type")
            return cls(**given)
        except (TypeError, ValueError, OverflowError) as error:
            raise Error(f"it names no run: {error}") from error

    def __post_init__(self):
        # 1 and 1.0 are one learning rate and must give one id.
        for name in _REALS:
            object.__setattr__(self, name, float(getattr(self, name)))
        # The class has the defaults, so an instance keeps only the values that differ from them:
        # a study may have ten thousand runs.
        changed = {name: v for name, v in vars(self).items() if v != FIELDS[name].default}
        object.__setattr__(self, "__dict__", changed)

    @property
    def is_external(self) -> bool:
        """Whether another program trains it (dlbench/study/other_trainers.py)."""
        return self.trainer != DEFAULTS["trainer"]

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def global_batch(self) -> int:
        """Items that one training step takes from the dataset, over all devices."""
        return self.batch_per_device * self.devices

    @property
    def combination(self) -> "Run":
        """The run without its repeat: runs of equal combination are repeats of one another.

        So are sentinels, which repeat a run in a later session, and runs with a profile, which is
        taken after the measured steps.
        """
        if (self.repeat, self.sentinel, self.profile) == (1, 0, False):
            return self
        return dataclasses.replace(self, repeat=1, sentinel=0, profile=False)

    @functools.cached_property
    def id(self) -> str:
        parts = [self.model, self.dataset, f"b{self.batch_per_device}"]
        parts += [
            getattr(self, name)
            for name in ("precision", "mode")
            if getattr(self, name) != DEFAULTS[name]
        ]
        parts += [name for name in ("xla", "compile") if getattr(self, name)]
        parts += [self.strategy, f"{self.nodes}x{self.devices_per_node}"]
        parts += [f"x{self.copies_per_node}"] if self.copies_per_node > 1 else []
        parts += [self.runtime] if self.runtime != DEFAULTS["runtime"] else []
        parts += [f"s{self.sentinel}"] if self.sentinel else []
        parts += ["probe"] if self.probe else []
        parts += [f"r{self.repeat}", self.digest()]
        return "-".join(parts)

    def digest(self) -> str:
        """Ten hexadecimal digits over the values that differ from their defaults."""
        return files.json_digest(self.values())[:10]

    def values(self) -> dict[str, Any]:
        """The values that differ from their defaults, as plain Python values."""
        return {name: value for name, value in vars(self).items() if name in FIELDS}

    def value(self, key: str) -> Any:
        """The value of a field, or of a parameter of another program (`parameters.NAME`).

        None, of a parameter that the run has not.
        """
        if key.startswith(parameters.PREFIX):
            return parameters.column_values(self.trainer_parameters).get(key)
        return getattr(self, key)

    def flags(self) -> list[str]:
        """The command line of `train.py` that trains this run, less data folder and log."""
        return list(
            itertools.chain.from_iterable(
                (f"--{name.replace('_', '-')}", str(value)) for name, value in self.values().items()
            )
        )

    def command(self, template: Iterable[str]) -> list[str]:
        """A command in which the flags of this run replace FLAGS.

        Commands of other programs are returned unchanged.
        """
        if self.is_external:
            return list(template)
        return [part for word in template for part in (self.flags() if word == FLAGS else [word])]

    def label(self, also: Iterable[str] = ()) -> str:
        """One line for people, as in `lenet5 digits batch 64, mirrored on 2 devices, repeat 1`.

        `also`: further fields to name, as in `seed 2`.
        """
        values = {name: getattr(self, name) for name in FIELDS}
        unusual = [name for name in _LABELLED if values[name] != DEFAULTS[name]]
        further = (name for name in wording.fields_for_label(also, values) if name not in unusual)
        settings = [wording.field(name, values[name]) for name in unusual]
        settings += [f"{name} {values[name]}" for name in further if values[name] not in (None, "")]
        return ", ".join(
            [
                f"{self.model} {self.dataset} batch {self.batch_per_device}",
                f"{self.strategy} on {phrases.counted(self.devices, 'device')}",
                *settings,
                f"repeat {self.repeat}",
            ]
        )


def _fits(name, value):
    """Whether a value is of the type that a field of a run has."""
    if name not in FIELDS:
        return False
    expected = FIELDS[name].type
    if isinstance(value, bool) or expected is bool:
        return isinstance(value, bool) and expected is bool
    return isinstance(value, int | float if expected is float else expected)


def shared_values(run: Any, names: Iterable[str], left_out: Iterable[str]) -> tuple[Any, ...]:
    """The values in which runs agree that differ in nothing but what is left out.

    Args:
        run: a Run, or what has its fields as attributes.
        names: of fields.
        left_out: fields, and parameters of other programs (`parameters.NAME`).
    """
    left_out = set(left_out)
    values = {name: getattr(run, name) for name in names if name not in left_out}
    if parameters.FIELD in values:
        values[parameters.FIELD] = parameters.text_without(values[parameters.FIELD], left_out)
    return tuple(values.values())


SENTINEL_ID = re.compile(r"(?P<prefix>.+)-s(?P<sentinel>\d+)-r(?P<repeat>\d+)-[0-9a-f]{10}")


def is_sentinel(run_id: str) -> bool:
    """Whether an id is that of a sentinel."""
    return bool(SENTINEL_ID.fullmatch(run_id))


PROBE_ID = re.compile(r".+-probe-r\d+-[0-9a-f]{10}")


def is_of_statistics(run_id: str) -> bool:
    """Whether an id is that of a run of the matrix, neither a sentinel nor a probe."""
    return not (SENTINEL_ID.fullmatch(run_id) or PROBE_ID.fullmatch(run_id))


def labels(runs: Iterable[Run]) -> dict[str, str]:
    """{run id: label}; no two are equal: labels of similar runs have the fields that differ."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(run.label(), []).append(run)
    return {
        run.id: run.label(name for name in FIELDS if len({getattr(r, name) for r in group}) > 1)
        for group in alike.values()
        for run in group
    }


def shuffled(
    runs: Iterable[Run], seed: int, block_of: Callable[[Run], int] = operator.attrgetter("repeat")
) -> list[Run]:
    """All first repeats in random order, then all second ones, and so on.

    So drift of the machine (heat, other users) affects all conditions alike instead of the last
    one. The order depends on the ids and the seed only. `block_of`: run -> number of the block that
    it is in; its repeat, if not given.
    """
    blocks: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.id):
        blocks.setdefault(block_of(run), []).append(run)
    for number, block in blocks.items():
        random.Random(f"{seed}/{number}").shuffle(block)
    return [run for number in sorted(blocks) for run in blocks[number]]
