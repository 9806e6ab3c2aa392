"""Options of a strategy or runtime: their text in a config, parsed and written canonically.

The file of the strategy or runtime declares them as OPTIONS: names with their
defaults. A tuple as default lists the choices, the default first. Every function
here has these parameters; the first two are for messages:

    kind: what has the options, e.g. "strategy".
    owner: its name, e.g. "horovod".
    known: its OPTIONS.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from dlbench import Error
from dlbench.common.phrases import did_you_mean

LARGEST = 1e15  # that a numeric value may be


def parse(kind: str, owner: str, known: Mapping[str, Any], text: str) -> dict[str, Any]:
    """All options with their values, from text such as `a=1,b=x`.

    Raises Error: an option is unknown or a value is not allowed.
    """
    values = {}
    for name, _, value in (option.partition("=") for option in text.split(",") if option):
        _check_name(kind, owner, known, name)
        values[name] = _parsed(known[name], value)
    return _checked(kind, owner, known, values)


def canonical_text(
    kind: str, owner: str, known: Mapping[str, Any], options: Mapping[str, Any]
) -> str:
    """The text of options: sorted, without those that have their default values.

    Equal options have equal texts. Raises Error: an option is unknown or a value is not allowed.
    """
    values, defaults = (_checked(kind, owner, known, chosen) for chosen in (options, {}))
    return ",".join(
        f"{name}={values[name]}" for name in sorted(values) if values[name] != defaults[name]
    )


def _checked(kind, owner, known, options):
    """The defaults updated with `options`; each value has the type of its default."""
    for name, value in options.items():
        _check_name(kind, owner, known, name)
        allowed = known[name]
        if isinstance(allowed, tuple):
            valid, expected = value in allowed, f"one of {', '.join(map(str, allowed))}"
        elif isinstance(allowed, bool):
            valid, expected = isinstance(value, bool), "true or false"
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            valid = number and 0 <= value <= LARGEST and type(allowed)(value) == value
            expected = (
                "a whole number of at least 0"
                if isinstance(allowed, int)
                else "a number of at least 0"
            )
        if not valid:
            raise Error(f"{kind} option {name}: expected {expected}, found {value!r}")
    defaults = {n: v[0] if isinstance(v, tuple) else v for n, v in known.items()}
    values = {name: type(default)(options.get(name, default)) for name, default in defaults.items()}
    # -0.0 + 0.0 is 0.0, so both zeros have the same text.
    return {
        name: value + 0.0 if isinstance(value, float) else value for name, value in values.items()
    }


def _check_name(kind, owner, known, name):
    if name not in known:
        raise Error(
            f"{kind} {owner} has no option {name!r}{did_you_mean(name, known)}; "
            f"there are: {', '.join(sorted(known)) or 'none'}"
        )


def _parsed(default, text):
    """A text as a value of the default's type; the text itself if it is not one."""
    if isinstance(default, tuple):
        return text
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    with contextlib.suppress(ValueError):
        return type(default)(text)
    return text
