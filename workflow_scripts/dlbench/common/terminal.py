"""Text for terminals and records, without control characters."""

import re

MAX_MESSAGE = 500  # characters of a failure's message
# Escape sequences (ECMA-48, 5.4; operating system commands end with BEL or ST), then all other
# control characters but tabs and new lines, and halves of characters.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(text: str) -> str:
    """A text without escape sequences and control characters; tabs and new lines stay.

    >>> plain("\\x1b[1;31mred\\x1b[0m\\x07 and \\x1b]0;title\\x07plain")
    'red and plain'
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def message(text: str, most: int = MAX_MESSAGE) -> str:
    """A text as one plain line of at most `most` characters.

    The middle of a longer text is cut out, because its end usually has the reason.

    >>> message("what\\n  happened: " + 300 * "x" + " the reason", 40)
    'what happened: ... xxxxxxxxxx the reason'
    """
    line = " ".join(plain(text).split())
    if len(line) <= most:
        return line
    first = (most - 5) * 2 // 5
    return f"{line[:first].rstrip()} ... {line[first + 5 - most :].lstrip()}"
