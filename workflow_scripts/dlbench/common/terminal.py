"""Text for terminals and records: nothing in it that a terminal would obey.

Runs inside images too, so it needs the standard library only.
"""

import re

MOST_MESSAGE = 500  # characters of a failure's message
# Escape sequences (ECMA-48, 5.4; operating system commands end with BEL or ST), then what is left
# of control characters. Tabs and new lines stay.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text):
    """A text without escape sequences and control characters; tabs and new lines stay.

    >>> plain("\\x1b[1;31mred\\x1b[0m\\x07 and \\x1b]0;title\\x07plain")
    'red and plain'
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def message(text, most=MOST_MESSAGE):
    """A text in one plain line; of a longer one the beginning and, mostly the reason, the end.

    >>> message("what\\n  happened: " + 300 * "x" + " the reason", 40)
    'what happened: ... xxxxxxxxxx the reason'
    """
    line = " ".join(plain(text).split())
    if len(line) <= most:
        return line
    first = (most - 5) * 2 // 5
    return f"{line[:first].rstrip()} ... {line[first + 5 - most :].lstrip()}"
