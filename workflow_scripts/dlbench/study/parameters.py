"""Axes whose names a study chooses itself, and formulas of numbers of a run.

- Parameters of other programs, which a block with a `trainer` names:

    parameters: {tensor_parallel: [1, 2, 4], recompute: [true, false]}
    global_batch: "{micro_batch} * {devices} / {tensor_parallel}"

  In a combination, which is a mapping from keys to values, a parameter has the key
  `parameters.NAME`, and so it has in tables. In a run all of them are one text
  (common/assignments.py).
- Fields of a run that are numbers may be formulas of parameters and of other fields. Allowed are
  numbers (also 2e9), names in braces, + - * / // % **, parentheses, min and max. A formula is
  parsed and never executed; all arithmetic is exact, on fractions of bounded size.
- Variables of the environment of a run, and options of its launcher, and their text in a run.
"""

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from dlbench import Error
from dlbench.common import assignments, phrases, plugins
from dlbench.common.run_fields import DECLARED, DEFAULTS, FIELDS, LARGEST, value_type
from dlbench.machine import redaction

MAX_LENGTH = 200  # characters
MAX_BITS = 256  # of numerator and denominator of each result
MAX_POWER = 64
_NAME = re.compile(r"\{([^{}]*)\}")
_ALLOWED = re.compile(r"(?:min|max|(?<=[0-9.])e(?=[+-]?[0-9])|[0-9.+\-*/%(), ])*")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CHOICES = {"min": min, "max": max}


def is_formula(value: object) -> bool:
    """Whether a value of a config is a formula: a text with a brace in it."""
    return isinstance(value, str) and "{" in value


def names_in(text: str) -> list[str]:
    """The names in braces of a formula."""
    return _NAME.findall(text)


def evaluate(text: str, number: Callable[[str], Fraction]) -> Fraction:
    """The value of a formula.

    `number`: name -> its value. Raises Error: it is no formula, or has no value.

    >>> numbers = {"micro_batch": Fraction(2), "devices": Fraction(8)}
    >>> evaluate("{micro_batch} * {devices} / 4", numbers.__getitem__)
    Fraction(4, 1)
    """
    if len(text) > MAX_LENGTH:
        raise Error(f"expected at most {MAX_LENGTH} characters, found {len(text)}")
    if not _ALLOWED.fullmatch(_NAME.sub("", text)):
        raise Error(
            "expected numbers, names in braces, + - * / // % **, parentheses, min and max, found "
            f"{text!r}"
        )
    names = names_in(text)
    numbered = iter(range(len(names)))
    try:
        tree = ast.parse(_NAME.sub(lambda _: f"(n{next(numbered)})", text).strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Error(f"expected a formula, found {text!r}: {error}") from None
    try:
        return _value(tree.body, {f"n{place}": name for place, name in enumerate(names)}, number)
    except ZeroDivisionError:
        raise Error(f"{text!r} divides by zero") from None


def _value(node, names, number):
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if not math.isfinite(node.value):
            raise Error("a number in it is too large")
        return _bounded(Fraction(str(node.value)))
    if isinstance(node, ast.Name) and node.id in names:
        return _bounded(number(names[node.id]))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        below = _value(node.operand, names, number)
        return -below if isinstance(node.op, ast.USub) else below
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(_value(node.left, names, number), _value(node.right, names, number))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        sides = _value(node.left, names, number), _value(node.right, names, number)
        return _bounded(Fraction(_OPERATORS[type(node.op)](*sides)))
    if _is_choice(node):
        return _CHOICES[node.func.id](_value(each, names, number) for each in node.args)
    raise Error(
        "expected arithmetic, as in {a} * 2 or max({a}, {b}): an operator or a comma is missing or "
        "too much"
    )


def _is_choice(node):
    """Whether a node is a call of min or max with several arguments."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _CHOICES
        and len(node.args) > 1
        and not node.keywords
    )


def _power(base, exponent):
    if exponent.denominator != 1 or abs(exponent) > MAX_POWER:
        raise Error(f"expected a whole power of at most {MAX_POWER}, found {_shown(exponent)}")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits * abs(exponent) > 2 * MAX_BITS:
        raise Error(f"a power of {_shown(exponent)} is too large")
    return _bounded(Fraction(base ** int(exponent)))


def _bounded(value):
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise Error("a number in it is too large, or has too many digits")
    return value


def _shown(value):
    return f"{float(value):g}"


# Set by dlbench, or by whatever starts the processes of a run, with a value for each.
_OF_A_PROCESS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TF_CONFIG", "CUDA_DEVICE_ORDER", "KERAS_BACKEND"),
)
_SET = "OPTIONS_SET"  # of a launcher that takes options: those that it sets itself
_PREFIXES = ("DLBENCH_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "TORCHELASTIC_", "SLURM_PROCID")


def variables_text(values: Mapping[str, Any]) -> str:
    """The text of variables, as in `NCCL_ALGO=Ring`: equal ones have equal texts.

    Raises Error: a name or a value is that of a secret, or a name is set for each process.
    """
    for name, value in values.items():
        check_plain(name, value)
        is_shared = redaction.shared_variables({name: ""})
        if name in _OF_A_PROCESS or name.startswith(_PREFIXES) or not is_shared:
            raise Error(
                f"{name} is set for each process of a run by what starts it; it cannot be an axis"
            )
    return assignments.text(values)


def options_text(launcher: str, values: Mapping[str, Any]) -> str:
    """The text of the options of a launcher, as in `mpi=pmix`.

    Raises Error: the launcher takes none, dlbench sets one itself, or one is a secret.
    """
    if not values:
        return ""
    own = plugins.constants("launchers", launcher).get(_SET)
    if own is None:
        taking = [
            n for n in plugins.names("launchers") if _SET in plugins.constants("launchers", n)
        ]
        raise Error(f"launcher {launcher} takes no options; these do: {', '.join(taking)}")
    for name, value in values.items():
        check_plain(name, value)
        if name.replace("_", "-") in own:
            raise Error(f"{name} of launcher {launcher} is set by dlbench; leave it out")
    return assignments.text(values)


def check_plain(name: str, value: Any) -> None:
    """Check that a named value may stand in records and figures.

    Raises Error: it is a secret, or more than one line.
    """
    text = assignments.plain(value)
    (shown,) = redaction.redact_command([f"{name}={text}"])
    if shown != f"{name}={text}" and redaction.is_secret(name):
        raise Error(
            f"{name} is the name of a secret, and this would be in records, tables and archives: "
            "set it where you start dlbench instead"
        )
    if shown != f"{name}={text}":
        raise Error(f"{name}: there is a secret in its value, which would be in records")
    if not text.isprintable():
        raise Error(f"{name}: expected one line of printable characters, found {text!r}")


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


def own_names(values: Mapping[str, Any]) -> list[str]:
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

    Returns the combination, and the names in its formulas. `reserved`: names that a parameter
    cannot have. Raises Error: a name or value cannot be, or a formula has no value that its key may
    have; the message begins with the key.
    """
    own = {name: values[PREFIX + name] for name in own_names(values)}
    if not own and not _formulas_in(values):
        return dict(values), set()
    for name, value in own.items():
        if name in reserved:
            raise Error(f"{PREFIX}{name}: a field of a run has this name; choose another")
        try:
            check_plain(name, value)
        except Error as error:
            raise Error(f"{KEY}: {error}") from None
    settled = {key: value for key, value in values.items() if not key.startswith(PREFIX)}
    written = _formulas_in(settled)
    numbers = _Numbers(settled, own)
    for key in written:
        settled[key] = numbers.of(key)
    if own:
        settled[FIELD] = assignments.text(own)
    return settled, {name for text in written.values() for name in names_in(text)}


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """A combination with numbers instead of formulas; None for a formula without a value."""
    result = dict(values)
    written = _formulas_in(values)
    own = {name: values[PREFIX + name] for name in own_names(values)} if written else {}
    for key in written:
        try:
            result[key] = _Numbers(values, own).of(key)
        except Error:
            result[key] = None
    return result


def formula_of_run(text: str, values: Mapping[str, Any], own: str) -> Fraction:
    """The value of a formula for a run.

    Raises Error: it has none.

    >>> formula_of_run("2 * {width} * {steps}", {"steps": 3}, "width=5")
    Fraction(30, 1)

    Args:
        values: the fields of the run.
        own: its parameters, as one text.
    """
    return evaluate(text, _Numbers(values, typed(own)).named)


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
        if not is_formula(value):
            return value
        return evaluate(value, self.named)


def _fitting(key, text, value):
    """The value of a formula as its key takes it. Raises Error: it is none that the key takes."""
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
