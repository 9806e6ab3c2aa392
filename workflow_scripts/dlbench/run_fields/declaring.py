"""The declaration of a run's field."""

import dataclasses
from typing import Any, NamedTuple

REQUIRED = dataclasses.MISSING
NAME = "^[a-z0-9_]+$"  # of a plugin, or of an entry in a mapping of the config
# The topic of a field that not all runs have: the model, which runs of mode input lack, or the
# reading of stored items, which runs on synthetic datasets lack.
MODEL, READING = "model", "reading"
LARGEST = {int: 1_000_000_000, float: 3.4e38}


class Declaration(NamedTuple):
    """The declaration of a field, in addition to its name, its type and its default.

    Attributes:
        meaning: its description in docs/config.md and `train.py --help`.
        choices: the values that it may have; () for any.
        minimum, above, maximum: its bounds, if it is a number; `above` is exclusive.
        pattern: regular expression for its text in a config, if it has no choices.
        folder: kind of the plugins whose names it may have, see common/plugins.py.
        is_mapping: whether its value in a config is a mapping of options.
        names: pattern of the names in the mapping, if they are free; "" if a file lists them.
        or_max: whether a config may set it to max, for the largest value that fits.
        unit, note: of its column in the table of runs; "" for a note that is its meaning.
        bits: of that column, if it has whole numbers.
        label: format of its label with the value; "" for `name value`.
        switch: name of what it switches on or off, if it is a boolean.
        part: MODEL or READING, if only runs with these have it.
        needs_gradients: whether mode forward, which computes none, lacks it.
        frameworks: those that have it; () for all. The reason why a framework lacks a field is in
            UNSUPPORTED_FIELDS of its engine.py.
        changes_memory: whether the largest batch that fits may depend on it.
        changes_speed: whether the work of a step may depend on it.
        of_condition: whether runs that differ in it are different conditions, not repeats.
        is_axis: whether it distinguishes the series and rows of figures.
        contrast: the figure of findings that compare runs which differ only in this field; "" for
            fields that findings do not compare.
        only_recorded: whether the trainer only writes it into its log.
        in_config: whether it is a key of a matrix block.
    """

    meaning: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    pattern: str = NAME
    folder: str = ""
    is_mapping: bool = False
    names: str = ""
    or_max: bool = False
    unit: str = ""
    note: str = ""
    bits: int = 64
    label: str = ""
    switch: str = ""
    part: str = ""
    needs_gradients: bool = False
    frameworks: tuple[str, ...] = ()
    changes_memory: bool = True
    changes_speed: bool = True
    of_condition: bool = True
    is_axis: bool = True
    contrast: str = ""
    only_recorded: bool = False
    in_config: bool = True


def declared(default: Any, meaning: str, **further: Any) -> Any:
    """A field of a dataclass with its Declaration.

    Args:
        default: REQUIRED if there is none. Run ids depend on it, so it never changes.
    """
    return dataclasses.field(
        default=default, metadata={"declared": Declaration(meaning, **further)}
    )


def value_type(field: dataclasses.Field[Any]) -> type:
    """The type of a field's values; None, of fields that may be left out, is ignored."""
    kinds = [kind for kind in (str, bool, int, float) if field.type in (kind, kind | None)]
    return kinds[0]
