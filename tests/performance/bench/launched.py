"""Training in separate processes: our runs, and bare programs with the same processes."""

import argparse
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.records import step_times
from dlbench.records.parse_run import RankLog
from dlbench.study.runs import Run

from . import REPOSITORY, Figures, in_turns, python_of, ratios, run
from . import parser as plain_parser

WARMUP_STEPS = 5
TRAIN = "workflow_scripts/train.py"


def parser(description: str, model: str) -> argparse.ArgumentParser:
    """A parser with the arguments of a run and those of all programs.

    With --bare NAME RESULT a program acts as the bare program for the run NAME.
    """
    made = plain_parser(description)
    made.add_argument("--model", default=model)
    made.add_argument("--batch", type=int, default=32, help="per device")
    made.add_argument("--steps", type=int, default=30)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    return made


def run_of(args: argparse.Namespace, dataset: str = "synthetic", **fields: Any) -> Run:
    """The run described by the arguments of `parser` and further fields."""
    return Run(
        model=args.model,
        dataset=dataset,
        batch_per_device=args.batch,
        steps=args.steps,
        warmup_steps=WARMUP_STEPS,
        **fields,
    )


def beside_bare(
    figures: Figures, program: str, specs: dict[str, Run], args: argparse.Namespace, *further: Any
) -> dict[tuple[str, str], list[float]]:
    """Add the throughput of runs, and the ratio to bare programs with the same processes.

    Args:
        program: the module that also acts as the bare program: see `parser`.
        specs: the runs by name.
        further: further arguments of the bare program.

    Returns:
        Images per second by (name of the run, "ours" or "bare"), one value a round.
    """
    words = ["--model", args.model, "--batch", args.batch, "--steps", args.steps, *further]
    calls = {}
    for name, spec in specs.items():
        calls[name, "ours"] = functools.partial(images_per_second, spec)
        bare = functools.partial(bare_images_per_second, spec, program)
        calls[name, "bare"] = functools.partial(bare, *words, "--bare", name)
    rates = in_turns(args.rounds, calls)
    for name in specs:
        mine, of = rates[name, "ours"], f"{args.model}, batch {args.batch}, {name}"
        figures.add(f"{of}, throughput", mine, "images/s")
        over = ratios(mine, rates[name, "bare"])
        figures.add(f"{of}, over the bare program", over, at_least=0.95)
    return rates


def main(
    description: str,
    program: str,
    layouts: dict[str, dict[str, Any]],
    bare: Callable[[Run, Path], None],
) -> None:
    """The main function of a program that only calls `beside_bare`.

    Args:
        description: description of the program.
        program: name of its module.
        layouts: for the name of each run, the fields that `parser` does not set.
        bare: the bare program for a run; called with the path of RESULT.
    """
    args = parser(description, "resnet20").parse_args()
    specs = {name: run_of(args, **fields) for name, fields in layouts.items()}
    if args.bare:
        name, result = args.bare
        bare(specs[name], Path(result))
    else:
        beside_bare(Figures(args.json), program, specs, args)


def images_per_second(spec: Run, *flags: Any) -> float:
    """Throughput of our trainer over the steps after the warm-up, of the slowest process.

    Args:
        spec: the run.
        flags: further flags of train.py.
    """
    return first_step_and_rate(spec, *flags)[1]


def first_step_and_rate(spec: Run, *flags: Any) -> tuple[float, float]:
    """Seconds of the first step, and the throughput that images_per_second returns."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.jsonl"
        _start(spec, TRAIN, *spec.flags(), "--log", log, *flags)
        logs = [RankLog(path) for path in event_log.rank_paths(log)]
    steps = step_times.of_all_ranks(logs)
    (first_s,) = step_times.slowest(steps[:1])
    measured = step_times.slowest(steps[spec.warmup_steps :])
    return first_s, step_times.images_per_second(measured, spec.global_batch)


def bare_images_per_second(spec: Run, program: str, *words: Any) -> float:
    """Throughput of a bare program that a run's launcher starts, of the slowest process.

    Args:
        spec: the run with the same steps.
        program: name of its module. Process r must write the seconds of all steps after the
            warm-up to the file `RESULTr`.
        words: its arguments; RESULT follows as the last one.
    """
    with tempfile.TemporaryDirectory() as folder:
        _start(spec, "-m", program, *words, Path(folder) / "result")
        seconds = max(float(path.read_text()) for path in Path(folder).iterdir())
    return spec.global_batch * spec.steps / seconds


def _start(spec, *arguments):
    """Run the Python of a run's environment with arguments, started by the run's launcher."""
    python = python_of(spec.framework)
    command = plugins.load("launchers", spec.launcher).command(
        spec, [str(python), *map(str, arguments)], python.parents[1]
    )
    run(command, cwd=REPOSITORY, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"})
