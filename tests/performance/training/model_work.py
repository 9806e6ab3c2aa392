"""What it costs to count a model's FLOPs and to calibrate a device, and how alike calibrations are.

    uv run dlbench environment envs/train    # and envs/jax, envs/pytorch
    envs/train/.venv/bin/python -m tests.performance.training.model_work [--rounds 5]
        [--framework NAME ...] [--model NAME ...]

Without names: all frameworks whose environment is installed, and all models. Each round is a
process of its own, as each run is. Prints, for each framework,
    counting     CPU seconds of the model that takes longest, of those of each model (target: 1)
    calibration  seconds of the largest product and the copy on one core, and on two (target: 20)
    spread       of what rounds attained: the largest over the smallest, less 1; the machine alone
                 decides it, so it is shown and has no target
"""

import functools
import json
import os
import statistics
import sys
import time

from dlbench.common import plugins
from dlbench.trainer import calibration, engine

from .. import bench
from ..bench import steps

CORES = (1, 2)  # of the device that is calibrated


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--framework", choices=engine.names(), action="append")
    parser.add_argument("--model", action="append")
    parser.add_argument("--calibration-s", type=float, default=calibration.SECONDS)
    parser.add_argument("--in-process", choices=WORK, help="do it here, and print it as JSON")
    args = parser.parse_args()
    if args.in_process:
        print(json.dumps(WORK[args.in_process](args)))
        return
    figures = bench.Figures(args.json)
    for framework in args.framework or engine.names():
        python = bench.python_of(framework)
        if not python.exists():
            print(f"{framework}: left out, {python.parents[2].name} is not installed")
            continue
        models = args.model or plugins.names(engine.plugin_kind(framework, "models"))
        rounds = [
            {work: _apart(args, python, framework, work, models) for work in WORK}
            for _ in range(args.rounds)
        ]
        add_counting(figures, framework, [one["counting"] for one in rounds])
        for cores in CORES:
            add_calibrations(figures, framework, cores, [one[str(cores)] for one in rounds])


def _apart(args, python, framework, work, models):
    """What a process of its own says of one kind of work."""
    command = [python, "-m", __spec__.name, "--in-process", work, "--framework", framework]
    command += ["--calibration-s", args.calibration_s]
    command += [word for model in models for word in ("--model", model)]
    printed = bench.run(command).output.splitlines()  # warnings of the framework among them
    return json.loads(next(line for line in printed if line.startswith("{")))


def add_counting(figures, framework, rounds):
    """Add the slowest count; print those of all models."""
    for model in rounds[0]:
        print(f"  {framework}, {model}: {statistics.median(one[model] for one in rounds):.3f} s")
    slowest = [max(one.values()) for one in rounds]
    name = f"{framework}: counting the FLOPs of the slowest of {len(rounds[0])} models"
    figures.add(name, slowest, "s", at_most=1)


def add_calibrations(figures, framework, cores, rounds):
    """Add what calibrations take, attain, and by how much they differ."""
    on = f"on {cores} core{'s' if cores > 1 else ''}"
    taken_s = [one["spent_s"] for one in rounds]
    figures.add(f"{framework}: calibration {on}", taken_s, "s", at_most=20)
    for key, unit, what in (
        ("tflops", "TFLOP/s", "largest product"),
        ("gb_per_s", "GB/s", "copy in memory"),
    ):
        found = [one[key] for one in rounds]
        figures.add(f"{framework}: {what} {on}", found, unit)
        spread = 100 * (max(found) / min(found) - 1)
        name = f"{framework}: {what} {on}, spread over calibrations"
        figures.add(name, spread, "%")


def counted(args):
    """CPU seconds of counting each of some models, whose weights are not made."""
    (framework,) = args.framework
    if framework == "jax":
        os.environ["KERAS_BACKEND"] = "jax"  # read when Keras is imported
    kind = engine.plugin_kind(framework, "models")
    count = plugins.load(kind.partition("/")[0], "flops").count
    taken_s = {}
    for name in args.model:
        native = plugins.load(kind, name)
        model = _unmade(kind, native)
        begin = time.process_time()
        found = count(model, native.INPUT_SHAPE)
        taken_s[name] = time.process_time() - begin
        if found.unknown:
            sys.exit(f"{framework}: {name} was not counted: {found.unknown}")
    return taken_s


def _unmade(kind, native):
    """A model whose weights are zeros, or have no values: to make them takes minutes."""
    if kind.startswith("pytorch"):
        import torch
        import torch._dynamo  # as every optimizer of a run imports it, and counting some models

        with torch.device("meta"):
            return native.build()
    import keras

    from support.trainers.unmade_weights import unmade_weights

    with unmade_weights():
        model = native.build()
    for weight in model.variables:  # as a model of a run has values; else some are made to count
        weight._value = keras.ops.zeros(weight.shape, weight.dtype)
    return model


def calibrated(cores, args):
    """What one calibration says, as after a run of so many cores."""
    (framework,) = args.framework
    case = ("lenet5", 1, 1)
    spec = steps.spec_of(case, "--framework", framework, "--threads-per-device", str(cores))
    strategy = engine.strategy_of(spec)(spec, "cpu")
    kernels = plugins.load(framework, "calibrating").Kernels(spec, strategy)
    return calibration.measure(kernels, lasting_s=args.calibration_s)


WORK = {"counting": counted} | {str(one): functools.partial(calibrated, one) for one in CORES}

if __name__ == "__main__":
    main()
