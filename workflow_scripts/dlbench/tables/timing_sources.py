"""Where the times of a row come from: `timing_source` of own runs and of published numbers.

Of imported runs, and of own ones that another program trained and timed, it is the kind of log.
"""

from typing import Any

MEASURED, PUBLISHED = "dlbench", "published"


def is_own(row: Any) -> bool:
    """Whether dlbench started the run of a row; what is imported or published has a source."""
    return not row.get("source")
