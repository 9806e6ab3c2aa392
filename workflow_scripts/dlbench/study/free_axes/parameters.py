"""Parameters of other programs: axes that a block with a `trainer` names itself.

    parameters: {tensor_parallel: [1, 2, 4], recompute: [true, false]}
    global_batch: "{micro_batch} * {devices} / {tensor_parallel}"

- In a combination, which is a mapping from keys to values, a parameter has the key
  `parameters.NAME`, and so it has in tables. In a run all of them are one text
  (common/assignments.py).
- Fields of a run that are numbers may be formulas of parameters and of other fields.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from dlbench import Error
from dlbench.common import assignments, phrases
from dlbench.run_fields.declaring import LARGEST, value_type
from dlbench.run_fields.fields import DECLARED, DEFAULTS, FIELDS
from dlbench.study.free_axes import formulas, variables

KEY, FIELD = "parameters", "trainer_parameters"  # in a block; in a run
PREFIX = f"{KEY}."
NAME = "^[a-z][a-z0-9_]*$"
_TOTAL, _EACH, _DEVICES = "global_batch", "batch_per_device", "devices"
# The keys of a block that take a number.
NUMBERS = (_TOTAL, *(n for n, f in FIELDS.items() if value_type(f) in (int, float)))


def flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a block, or of an entry that selects runs, with one for each parameter.

    >>> flat({"steps": 5, "parameters": {"tensor_parallel": [1, 2]}})
    {'steps': 5, 'parameters.tensor_parallel': [1, 2]}
    """
    own = {f"{PREFIX}{name}": value for name, value in entry.get(KEY, {}).items()}
    return {name: value for name, value in entry.items() if name != KEY} | own


def names_in(values: Mapping[str, Any]) -> list[str]:
    """The names of the parameters in a combination."""
    return [key.removeprefix(PREFIX) for key in values if key.startswith(PREFIX)]


def typed(text: str) -> dict[str, Any]:
    """{name: value} of the parameters of a run: numbers and booleans are no texts.

    >>> typed("a=2 b=0.5 c=true d=x")
    {'a': 2, 'b': 0.5, 'c': True, 'd': 'x'}
    """
    return dict(_typed(text))


def column_values(text: str | None) -> dict[str, Any]:
    """{column of tables: value} of the parameters of a run.

    None of a text that no run of ours has, as tables of others may hold any.

    >>> column_values("a=2"), column_values("a b='")
    ({'parameters.a': 2}, {})
    """
    try:
        own = _typed(text or "")
    except Error:
        return {}
    return {f"{PREFIX}{name}": own[name] for name in own if re.fullmatch(NAME, name)}


def text_without(text: str | None, keys: Iterable[str]) -> str:
    """The text of the parameters of a run without some.

    >>> text_without("a=2 b=3", ["parameters.b"])
    'a=2'
    """
    if not text:
        return ""
    left_out = {key.removeprefix(PREFIX) for key in keys if key.startswith(PREFIX)}
    try:
        own = assignments.parse(text)
    except Error:
        return text
    return assignments.text({name: own[name] for name in own if name not in left_out})


@functools.lru_cache(maxsize=1024)
def _typed(text):
    return {name: _value_in(word) for name, word in assignments.parse(text).items()}


def _value_in(word):
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if str(value) == word and math.isfinite(value):
            return value
    return word


def settle(values: Mapping[str, Any], reserved: frozenset[str]) -> tuple[dict[str, Any], set[str]]:
    """A combination with numbers instead of formulas, and its parameters as one text.

    Args:
        reserved: names that a parameter cannot have.

    Returns:
        The combination, and the names in its formulas.

    Raises:
        Error: a name or value cannot be, or a formula has no value that its key may have; the
            message begins with the key.
    """
    own = {name: values[PREFIX + name] for name in names_in(values)}
    if not own and not _formulas_in(values):
        return dict(values), set()
    for name, value in own.items():
        if name in reserved:
            raise Error(f"{PREFIX}{name}: a field of a run has this name; choose another")
        try:
            variables.check_plain(name, value)
        except Error as error:
            raise Error(f"{KEY}: {error}") from None
    settled = {key: value for key, value in values.items() if not key.startswith(PREFIX)}
    written = _formulas_in(settled)
    numbers = _Numbers(settled, own)
    for key in written:
        settled[key] = numbers.of(key)
    if own:
        settled[FIELD] = assignments.text(own)
    return settled, {name for text in written.values() for name in formulas.names_in(text)}


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """A combination with numbers instead of formulas; None for a formula without a value."""
    result = dict(values)
    written = _formulas_in(values)
    own = {name: values[PREFIX + name] for name in names_in(values)} if written else {}
    for key in written:
        try:
            result[key] = _Numbers(values, own).of(key)
        except Error:
            result[key] = None
    return result


def of_run(text: str, values: Mapping[str, Any], own: str) -> Fraction:
    """The value of a formula for a run.

    >>> of_run("2 * {width} * {steps}", {"steps": 3}, "width=5")
    Fraction(30, 1)

    Args:
        values: the fields of the run.
        own: its parameters, as one text.

    Raises:
        Error: it has none.
    """
    return formulas.evaluate(text, _Numbers(values, typed(own)).named)


def _formulas_in(values):
    """The keys that take a number and have a formula, with it; called for each run of a study."""
    texts = {key: value for key, value in values.items() if type(value) is str and "{" in value}
    return {key: text for key, text in texts.items() if key in NUMBERS} if texts else texts


class _Numbers:
    """The numbers of a combination by their names, some of which are formulas of others."""

    def __init__(self, values, own):
        self._values, self._own = values, own
        self._open: list[str] = []  # names that are being computed

    def of(self, key):
        """The value of a key that has a formula."""
        text = self._values[key]
        self._open.clear()
        try:
            return _fitting(key, text, self.named(key))
        except Error as error:
            raise Error(f"{key}: {error}") from None

    def named(self, name):
        """The number of a name, as a Fraction."""
        if name in self._open:
            raise Error(f"{' needs '.join([*self._open, name])}: a formula needs itself")
        self._open.append(name)
        try:
            value = self._own[name] if name in self._own else self._of_run(name)
        finally:
            self._open.pop()
        if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
            raise Error(f"{{{name}}} is no number: {value!r}")
        return value if isinstance(value, Fraction) else Fraction(str(value))

    def _of_run(self, name):
        if name == _DEVICES:
            return self.named("nodes") * self.named("devices_per_node")
        if name == _TOTAL and name not in self._values:
            return self.named(_EACH) * self.named(_DEVICES)
        if name == _EACH and name not in self._values:
            return self.named(_TOTAL) / self.named(_DEVICES)
        if name not in NUMBERS:
            known = [*self._own, _DEVICES, *NUMBERS]
            raise Error(
                f"there is no number {{{name}}}{phrases.did_you_mean(name, known)}; there are: "
                f"{', '.join(known)}"
            )
        value = self._values.get(name, DEFAULTS.get(name))
        if value is None:
            raise Error(f"{{{name}}}: the run has no {name}")
        if not formulas.is_formula(value):
            return value
        return formulas.evaluate(value, self.named)


def _fitting(key, text, value):
    """The value of a formula as its key takes it.

    Raises:
        Error: it is none that the key takes.
    """
    declared = DECLARED[_EACH if key == _TOTAL else key]
    kind = int if key == _TOTAL else value_type(FIELDS[key])
    shown = f"found {float(value):g}, the value of {text!r}"
    if kind is int and value.denominator != 1:
        raise Error(f"expected a whole number, {shown}")
    most = LARGEST[kind] if declared.maximum is None else declared.maximum
    if declared.minimum is not None and value < declared.minimum:
        raise Error(f"expected at least {declared.minimum}, {shown}")
    if declared.above is not None and value <= declared.above:
        raise Error(f"expected more than {declared.above}, {shown}")
    if value > most:
        raise Error(f"expected at most {most}, {shown}")
    return kind(value)
