"""Where the times of a row come from: `timing_source` of own runs and of published numbers.

Those of imported runs name the kind of log.
"""

MEASURED, PUBLISHED = "dlbench", "published"
