"""Numbers on command lines: finite ones, within bounds.

For `type=` of an argparse option. Programs inside images use it too, so it needs the standard
library only.
"""

import argparse
import math


def whole(least):
    """What reads a whole number of at least `least`."""

    def number(text):
        if not text.isdecimal() or not text.isascii() or len(text) > 18 or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, found {text!r}"
            )
        return int(text)

    return number


def real(least=None, above=None):
    """What reads a finite number, of at least `least` or above `above`."""

    def number(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        low = (least is not None and value < least) or (above is not None and value <= above)
        if low or not math.isfinite(value):
            bound = f"above {above:g}" if above is not None else f"of at least {least:g}"
            raise argparse.ArgumentTypeError(f"expected a number {bound}, found {text!r}")
        return value

    return number
