"""Options of one strategy or runtime: what a config says about them, as text with one meaning.

What there is comes from the file of the strategy or runtime, its OPTIONS: names
with their defaults. Where the default is a tuple it lists the choices, the
default first. Every function here takes them with the words for messages:

    kind: what has the options, as in "strategy".
    owner: its name, as in "horovod".
    known: its OPTIONS.
"""

import contextlib

from dlbench import Error
from dlbench.common.phrases import nearest

LARGEST = 1e15  # of a value


def parse(kind, owner, known, text):
    """All options with their values, from text such as `a=1,b=x`.

    Raises:
        Error: an option or a value that there is not.
    """
    words = dict(
        word.split("=", 1) if "=" in word else (word, "") for word in text.split(",") if word
    )
    given = {}
    for name, word in words.items():
        _check_name(kind, owner, known, name)
        given[name] = _plain(known[name], word)
    return _checked(kind, owner, known, given)


def text(kind, owner, known, given):
    """The text of some options, those equal to their defaults left out: one text a meaning.

    Raises:
        Error: an option or a value that there is not.
    """
    values, defaults = (_checked(kind, owner, known, some) for some in (given, {}))
    return ",".join(
        f"{name}={values[name]}" for name in sorted(values) if values[name] != defaults[name]
    )


def _checked(kind, owner, known, given):
    """Defaults updated with some options, each of the kind of its default."""
    for name, value in given.items():
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
    values = {name: type(default)(given.get(name, default)) for name, default in defaults.items()}
    # -0.0 is 0.0: one meaning has one text.
    return {
        name: value + 0.0 if isinstance(value, float) else value for name, value in values.items()
    }


def _check_name(kind, owner, known, name):
    if name not in known:
        raise Error(
            f"{kind} {owner} has no option {name!r}{nearest(name, known)}; "
            f"there are: {', '.join(sorted(known)) or 'none'}"
        )


def _plain(default, word):
    """A value from its text, as the kind of the default says."""
    if isinstance(default, tuple):
        return word
    if isinstance(default, bool):
        return {"True": True, "False": False}.get(word, word)
    with contextlib.suppress(ValueError):
        return type(default)(word)
    return word
