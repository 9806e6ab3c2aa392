"""The collectives by which strategies reduce gradients, one file each, for baselines.

A file has the name of its strategy and defines
    all_reduce(strategy, elements): a calibration.Repeat that sums `elements` float32 values over
        all devices of the strategy, by the calls that a step makes.
A strategy without a file here uses another collective; it has no baseline.
"""
