"""Windows of steps between readings of a clock of which a log prints few digits."""

from array import array
from collections.abc import Iterable

MAX_DOUBT = 0.01  # relative error of a window's time by the last printed digit


def ends(readings: Iterable[tuple[float, float]], start: tuple[float, float] = (0, 0)) -> array:
    """The positions of the readings at which windows end.

    A window whose time is in doubt by more than MAX_DOUBT is joined with the next one, the last
    with as many before it as needed. The mean of all has the printed precision in any case.

    Args:
        readings: (time in s, its error in s by the last printed digit) each; a time of 0 is none.
        start: that of the beginning.

    >>> list(ends([(10, 0.1), (20, 0.1), (30, 0.4), (40, 0.1), (41, 0.1)]))
    [0, 4]
    """
    rows, times_s, doubts_s = array("q"), array("d"), array("d")
    last, last_s, last_doubt_s = None, *start
    for row, (at_s, doubt_s) in enumerate(readings):
        if not at_s:
            continue
        last = (row, at_s, doubt_s)
        took_s = at_s - last_s
        if took_s > last_doubt_s and doubt_s + last_doubt_s <= MAX_DOUBT * took_s:
            rows.append(row)
            times_s.append(at_s)
            doubts_s.append(doubt_s)
            last_s, last_doubt_s = at_s, doubt_s
    if last and (not rows or rows[-1] != last[0]):
        while rows and last[2] + doubts_s[-1] > MAX_DOUBT * (last[1] - times_s[-1]):
            del rows[-1], times_s[-1], doubts_s[-1]
        rows.append(last[0])
    return rows
