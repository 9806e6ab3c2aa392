"""Compare steps of our trainer with those of others: in one process, on one core or GPU, in turns.

A case is (model, batch, steps of each side of a pair).
"""

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.trainer import copies, engine, flags, loop
from dlbench.trainer.engine import Engine
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.strategy import BaseStrategy, Spec

from . import REPOSITORY, Figures, in_turns, ratios, run
from . import parser as plain_parser

Case = tuple[str, int, int]
ROUNDS_OF_IMPORTS = 5


def parser(description: str, pairs: int = 9) -> argparse.ArgumentParser:
    """A parser with the arguments --pairs, --case and those of all programs.

    Args:
        pairs: default of --pairs. If the machine's speed changes within seconds, many short pairs
            measure a ratio more precisely than few long ones.
    """
    made = plain_parser(description)
    made.add_argument("--pairs", type=int, default=pairs)
    made.add_argument("--case", type=case, action="append", help="as in resnet50:8:3")
    made.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    made.add_argument("--precision", default="float32", help="of both sides")
    made.add_argument("--steps-alone", action="store_true", help="nothing but steps as they are")
    return made


def case(text: str) -> Case:
    """Parse a case: model, batch and steps, separated by colons."""
    model, batch, steps = text.split(":")
    return model, int(batch), int(steps)


def keep_to_one_core(args: argparse.Namespace) -> None:
    """Bind this process to one core, unless its device is a GPU."""
    if args.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])


def how(args: argparse.Namespace) -> list[str]:
    """The trainer's flags for the device and the precision of all cases."""
    return ["--device", args.device, "--precision", args.precision]


def spec_of(case: Case, *further: str) -> Spec:
    """The spec of a case on synthetic items, without warm-up, parsed like train.py's flags."""
    return _parsed(case, further)[0]


def _parsed(case, further):
    model, batch, steps = case
    words = f"--model {model} --dataset synthetic --batch-per-device {batch} --steps {steps}"
    words += " --warmup-steps 0 --log unused"
    return flags.parse(None, [*words.split(), *further])


@functools.cache
def single(framework: str, device: str = "cpu") -> BaseStrategy:
    """The strategy for one device; a framework is initialised once in a process."""
    spec = spec_of(("lenet5", 1, 1), "--framework", framework)
    return engine.strategy_of(spec)(spec, device)


def our_engine(spec: Spec, device: str = "cpu") -> Engine:
    """The trainer's engine for a run, ready for its first step."""
    strategy = single(spec.framework, device)  # first, since it configures the framework's import
    made = plugins.load(spec.framework, "engine").Engine(spec, strategy, None)
    made.build()
    made.begin(0)
    made.trace()
    return made


def our_loop(spec: Spec, made: Engine, log: Path) -> Callable[[], Any]:
    """A function that runs and logs all steps of a run, like the trainer."""
    own_log, only = event_log.EventLog(log), copies.Copy(0, 1, log)
    schedule = Schedule(spec, made.records)
    return lambda: loop._do_steps(schedule, made, only, own_log, 0, None)


def paired(ours: Callable[[], Any], theirs: Callable[[], Any], pairs: int) -> list[float]:
    """Ratios of speed, ours over theirs, of pairs in alternating order."""
    calls = {"ours": ours, "theirs": theirs}
    for call in calls.values():
        call()  # the first time it compiles
    timed = {name: functools.partial(_seconds, call) for name, call in calls.items()}
    taken_s = in_turns(pairs, timed)
    return ratios(taken_s["theirs"], taken_s["ours"])


def _seconds(call):
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def beside_shortest(
    figures: Figures,
    framework: str,
    cases: Iterable[Case],
    shortest: Callable[[Spec, Any], Callable[[], Any]],
    pairs: int,
    *further: str,
    how: str = "",
) -> None:
    """Add the speed of our loop over the shortest loop of a framework, for each case.

    Args:
        shortest: takes a spec and a batch, (inputs, targets) on the device, and returns a function
            that runs all steps on this batch and waits for the last one.
        further: further flags of the runs.
        how: what these flags change, for the figure's name, e.g. ", compiled".
    """
    for case in cases:
        spec, where = _parsed(case, ("--framework", framework, *further))
        made = our_engine(spec, where.device)
        with tempfile.TemporaryDirectory() as folder:
            ours = our_loop(spec, made, Path(folder) / "train.jsonl")
            measured = paired(ours, shortest(spec, made._batch), pairs)
        name = f"{spec.model}, batch {spec.batch_per_device}{how}, over the shortest step"
        figures.add(name, measured, at_least=0.97)


def beside_imports(figures: Figures, framework: str, names: str, pairs: int) -> None:
    """Add the CPU time of importing our whole trainer over that of importing its packages.

    Args:
        names: names of the packages for people.
    """
    ours = f"import dlbench.trainer.train, dlbench.trainer.{framework}.engine"
    theirs = f"import {', '.join(engine.packages(framework))}"
    calls = {words: functools.partial(_importing_s, words) for words in (ours, theirs)}
    taken_s = in_turns(min(pairs, ROUNDS_OF_IMPORTS), calls)
    measured = ratios(taken_s[ours], taken_s[theirs])
    figures.add(f"imports of the trainer over those of {names}", measured, at_most=1.5)


def _importing_s(words):
    """CPU time of a Python process that imports modules, whose files are in the page cache."""
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")}
    return run([sys.executable, "-c", words], env=environ).cpu_s
