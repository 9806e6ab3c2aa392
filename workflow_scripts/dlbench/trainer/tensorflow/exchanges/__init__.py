"""How strategies add up gradients, one file each, to be measured without a model.

A file has the name of its strategy and defines
    all_reduce(strategy, elements): the sum of `elements` values of float32 over all devices of the
        joined strategy, by the calls that its step makes, as calibration.Repeat.
A strategy without a file here exchanges in another way; it has no baseline.
"""
