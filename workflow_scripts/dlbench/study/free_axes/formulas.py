"""Arithmetic on the numbers of a run, as in "{micro_batch} * {devices} / {tensor_parallel}".

Allowed are numbers (also 2e9), names in braces, + - * / // % **, parentheses, min and max. A
formula is parsed and never executed; all arithmetic is exact, on fractions of bounded size.
"""

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from dlbench import Error

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

    >>> numbers = {"micro_batch": Fraction(2), "devices": Fraction(8)}
    >>> evaluate("{micro_batch} * {devices} / 4", numbers.__getitem__)
    Fraction(4, 1)

    Args:
        number: name -> its value.

    Raises:
        Error: it is no formula, or has no value.
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
