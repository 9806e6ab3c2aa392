"""Check that RE2 can read a log by the patterns of the config's trainers (study/log_patterns.py).

RE2, which Arrow contains, takes a time linear in the length of a line for every pattern: none can
hang. Therefore it has no lookaround, no references to groups and no repetition above 1000.
"""

from collections.abc import Mapping
from typing import Any

from dlbench import Error
from dlbench.study import log_patterns


def check(trainers: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the patterns of the config's `trainers`, before anything is started.

    Raises:
        Error: RE2 cannot read one.
    """
    for name, trainer in trainers.items():
        if isinstance(trainer["log"], Mapping):
            where = f"trainers.{name}.log"
            check_patterns(log_patterns.parse(trainer["log"], where), where)


def check_patterns(patterns: log_patterns.LogPatterns, where: str) -> None:
    """Check each of some patterns.

    Raises:
        Error: RE2 cannot read one.
    """
    import pyarrow as pa  # late: few studies have patterns
    import pyarrow.compute as pc

    for key, pattern in patterns.all():
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            why = str(error).partition("Invalid regular expression: ")[2] or error
            raise Error(
                f"{where}.{key}: '{pattern}' is not for RE2: {why}. It has no lookaround as "
                "(?=...) or (?<!...), no reference to a group as \\1, and repeats at most 1000 "
                "times; leave it out, or match more of the line"
            ) from None
