"""How a field of a run is declared."""

import dataclasses
from typing import Any, NamedTuple

REQUIRED = dataclasses.MISSING
NAME = "^[a-z0-9_]+$"  # of what a file or a mapping of the config defines
# What a field is about, if not about every run: the work of a model, which runs of mode input lack,
# or the reading of stored items, which synthetic datasets lack.
MODEL, READING = "model", "reading"
LARGEST = {int: 1_000_000_000, float: 3.4e38}


class Declaration(NamedTuple):
    """What is declared of a field beside its name, its type and its default.

    Attributes:
        meaning: what it means, for docs/config.md and `train.py --help`.
        choices: the values that it may have; () for any.
        least, above, most: its bounds, if it is a number; `above` without the bound itself.
        pattern: of its text in a config, where it has no choices.
        folder: of the files whose names it may have, as `plugins` takes it.
        is_mapping: whether a config has it as a mapping of options.
        or_max: whether a config may say max, for the largest that fits.
        unit, note: of its column in the table of runs; "" for a note that is its meaning.
        bits: of that column, if it has whole numbers.
        label: how it is named with its value; else as `name value`.
        switch: what is switched on or off by it, if it is true or false.
        part: MODEL or READING, where it is about that alone.
        frameworks: those that have it; () for all. The reason why a framework lacks a field is in
            UNSUPPORTED_FIELDS of its engine.py.
        changes_memory: whether the largest batch that fits may depend on it.
        changes_speed: whether the work of a step may depend on it.
        of_condition: whether runs that differ in it are no repeats of one another.
        is_axis: whether it tells apart the series and rows of figures.
        contrast: the figure in which findings show what it changes, where runs that are alike in
            all else are compared; "" for fields that findings do not compare.
        only_recorded: whether the trainer writes it into its log and uses it for nothing.
        in_config: whether it is a key of a matrix block.
    """

    meaning: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None
    pattern: str = NAME
    folder: str = ""
    is_mapping: bool = False
    or_max: bool = False
    unit: str = ""
    note: str = ""
    bits: int = 64
    label: str = ""
    switch: str = ""
    part: str = ""
    frameworks: tuple[str, ...] = ()
    changes_memory: bool = True
    changes_speed: bool = True
    of_condition: bool = True
    is_axis: bool = True
    contrast: str = ""
    only_recorded: bool = False
    in_config: bool = True


def declared(default: Any, meaning: str, **further: Any) -> Any:
    """A field of a dataclass with what is declared of it (see Declaration).

    Args:
        default: REQUIRED if there is none. It is part of what ids of runs mean: it never changes.
    """
    return dataclasses.field(
        default=default, metadata={"declared": Declaration(meaning, **further)}
    )


def value_type(field: dataclasses.Field[Any]) -> type:
    """The type of a field's values, without the None of those that may be left out."""
    kinds = [kind for kind in (str, bool, int, float) if field.type in (kind, kind | None)]
    return kinds[0]
