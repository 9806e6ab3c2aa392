"""Two campaigns of three runs a side, whose ratios can be computed by hand."""

from dlbench.analysis import compare_runs
from support.runs.made_runs import campaign

STEP = 1.1
A_RATES = (100, 110, 121)  # 110 STEP ** -1, 0, 1


def rates(steps):
    """Those of A times 1.1 to the power of `steps`."""
    return [rate * STEP**steps for rate in A_RATES]


def compared(a, b, **options):
    return compare_runs.compare(campaign(*a), campaign(*b), **options)
