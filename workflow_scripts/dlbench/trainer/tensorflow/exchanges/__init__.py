"""The collectives by which strategies reduce gradients, one file each, for baselines.

A file has the name of its strategy and defines
    all_reduce(strategy, elements): a calibration.Repeat that sums `elements` float32 values over
        all devices of the strategy, by the calls that a step makes.
and, by the same library, as far as it has them:
    all_gather(strategy, elements): each device gets the parts of all, `elements` values in sum.
    reduce_scatter(strategy, elements): sums `elements` values of each device; each gets a part.
    sendrecv(strategy, elements): each device sends `elements` values to the next one in a ring.
    LACKS: {name: why the library has no such collective}.
`elements` of the first two is a multiple of the number of devices. A strategy without a file here
uses another collective; it has no baseline.
"""
