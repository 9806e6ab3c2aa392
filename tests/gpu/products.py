"""Measure matrix products and copies on the first device in each precision; prints JSON.

    python -m tests.gpu.products FRAMEWORK DEVICE PRECISION ...

It is a separate process, so that it frees the device's memory for later measurements.
"""

import json
import sys

from benchmarks import training_step
from dlbench.baselines import measure_baselines
from dlbench.common import plugins
from dlbench.trainer import calibration

LASTING_S = 1.5


def main():
    framework, device, *precisions = sys.argv[1:]
    strategy = training_step.single(framework, device)
    engine = plugins.load(framework, "engine").Engine
    results = {}
    for precision in precisions:
        flags = ("--framework", framework, "--precision", precision)
        spec, _ = training_step.parsed("lenet5:1:1", *flags)
        made = engine(spec, strategy, None)
        kernels = made.kernels()
        attained = calibration.measure(kernels, lasting_s=LASTING_S)
        copies = list(measure_baselines.host_copies(kernels, made.gpu_count))
        results[precision] = attained | {"from_host_gb_per_s": copies[-1].get("value")}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
