"""formulas: exact arithmetic, and nothing else, whatever a config says."""

import time
from fractions import Fraction

import pytest

from dlbench import Error
from dlbench.study.free_axes import formulas

NUMBERS = {"a": Fraction(6), "b": Fraction(4), "half": Fraction(1, 2), "zero": Fraction(0)}


def value(text):
    return formulas.evaluate(text, NUMBERS.__getitem__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a} * {b}", 24), ("{a} / {b}", Fraction(3, 2)), ("{a}//{b}", 1), ("{a} % {b}", 2),
        ("{b} ** 3", 64), ("2 ** -1", Fraction(1, 2)), ("-({a} - {b})", -2), ("+{a}", 6),
        ("max({a}, {b}, 1)", 6), ("min({a},{b})", 4), ("0.1 * 3 * {half}", Fraction(3, 20)),
        ("{a} + {b} * 2", 14), ("({a} + {b}) * 2", 20), (" 1024 ", 1024),
    ],
)  # fmt: skip
def test_arithmetic_is_exact(text, expected):
    assert value(text) == expected


HOSTILE = [
    "__import__('os').system('touch x')", "{a}.real", "{a}.__class__", "{a}[0]", "{a}{b}",
    "2{a}", "min{a}", "max(1)", "min(*[1, 2])", "max()", "min(1, 2)(3)", "(min)", "abs({a})",
    "lambda: 1", "1 if 2 else 3", "[1, 2]", "{a}, {b}", "1 < 2", "'x' * 9", "x", "_0", "n0 + {a}",
    "1e999", "0x10", "1_000", "1j", "\u0661 + 1", "{a} = 1", "print(1)", "()", "", "{a", "a}",
    "{{a}}", "{a} @ {b}", "not 1", "~1", "1 | 2", "1 << 9", "{a!r}", "{a:>9}", "1; 2", "1\n+ 2",
    "(", ")", "1 +", "* 2", "... + 1", "min(1, 2, key=3)", "max(-)", "f(1, 2)", "minmax(1, 2)",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_arithmetic_is_refused(text):
    with pytest.raises((Error, KeyError)):
        value(text)


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9", "9 ** 64 ** 1 ** 1 * 9 ** 64", "2 ** 65", "2 ** -65", "2 ** 0.5",
        "(2 ** 64) ** 64", "(0.1 ** 64) ** 64", "9" * 200, "{a}" * 200, "(" * 199, "-" * 199,
        "+".join(["1"] * 200), "(" * 95 + "1" + ")" * 95 + "**" + "9" * 9, "1/" + "9" * 190,
    ],
)  # fmt: skip
def test_what_would_be_huge_or_deep_is_refused_at_once(text):
    started_s = time.perf_counter()
    with pytest.raises(Error):
        value(text)
    assert time.perf_counter() - started_s < 1


@pytest.mark.parametrize("text", ["1 / 0", "1 // {zero}", "{a} % 0", "{zero} ** -1"])
def test_a_division_by_zero_is_said(text):
    with pytest.raises(Error, match="divides by zero"):
        value(text)


def test_a_formula_is_a_text_with_a_brace():
    assert formulas.is_formula("{a}")
    assert not any(map(formulas.is_formula, ("max", 2, None, True, ["{a}"])))
    assert formulas.names_in("{a} * {b} + {a}") == ["a", "b", "a"]
