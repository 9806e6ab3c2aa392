"""The programs of tests/performance, with their environments and arguments."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import REPOSITORY


@dataclass(frozen=True)
class Program:
    """A program that measures.

    Attributes:
        smallest: arguments for a run of seconds, as in CI.
        minutes: approximate duration on two cores without arguments.
        environment: folder in envs/ whose Python runs it; "": the workflow's Python.
        needs: requirements that not every machine meets; such a program runs only if named.
        given: required arguments.
        note: explanation of its figures, for the page.
    """

    smallest: str
    minutes: float
    environment: str = ""
    needs: str = ""
    given: str = ""
    note: str = ""

    @property
    def python(self) -> Path:
        if not self.environment:
            return Path(sys.executable)
        return REPOSITORY / "envs" / self.environment / ".venv/bin/python"


OF_PLANNING = (
    "Profiles of dry runs of 8000 runs, 2026-11-26: ours takes 33.0 s under cProfile, the bare "
    "workflow 18.6. Of the 14.4 s more, Snakemake spends 3.2 on the signatures of functions, read "
    "anew for each function of each job, and 2.8 on resources and on which job makes an input; "
    "2.6 are ours to read the config and to make the plan, 2.0 to write the command lines of runs."
)
OF_READING = (
    "TensorFlow's own operation, called alone on whole photographs, reaches 0.65 of simplejpeg's "
    "rate, and none of its settings changes that (2026-11-26); so a pipeline of TensorFlow is "
    "judged by TensorFlow's rate."
)
OF_COPIES = (
    "Two cores of this virtual machine add up the same two arrays at 50 GB/s for 10 to 50 seconds, "
    "then at 76 for 10 to 20, and so on; one core at 37 to 40 in either state, and a product of "
    "matrices on two cores is a twentieth faster in the slow one (2026-11-25). So it is not that "
    "others use the cores; the host may move them to one chiplet or to two."
)
OF_COMPILING = (
    "Block by block PyTorch compiles in half the time; what either mode gains on one core is "
    "within the scatter of rounds."
)
OF_ROUNDS = (
    "Rounds of one program differ by up to a fifth on this virtual machine, though nothing else "
    "runs on it ([copies](#copies)), and medians of a few rounds by some per cent from session to "
    "session: from 25 to 28 November 2026 they were {}."
)
OF_RATES = "These are rates, no times: what runs beside the program does not change them."
OF_HISTORIES = (
    f"{OF_RATES} The most is that of a change beside 5 % outliers, which is at the target: 5.3 % "
    "of 5000 histories, 4.8 % of 2500 others (28 November 2026), with standard errors of 0.3 and "
    "0.4."
)
OF_AGGREGATION = (
    "For 1200 runs the program makes 2.29 million function calls (28 November 2026), and made 2.20 "
    "million on 25 November, when 4000 runs took 3.7 CPU-seconds: by what seconds differ more than "
    "that, the virtual machine is slower."
)
OF_MODEL_WORK = (
    "Spreads over calibrations have no target: each runs the same instructions, and differs by "
    "memory, clock and host alone. The bandwidth of this virtual machine changes within seconds "
    "([copies](#copies)), of which five seconds of copies show one moment."
)
OF_TORCH_STEP = (
    "CPU time of a step, in turns on a busy machine (2026-11-25): the shortest takes 0.997 of ours "
    "with resnet20 (16 pairs, 0.96 .. 1.07), 1.028 with gpt_tiny (0.96 .. 1.19). Loop, log and "
    "bookkeeping alone take 5 us of the 105 to 111 ms of a step."
)
OF_TWO_PROCESSES = (
    "Why Horovod's efficiency is not higher, 2026-11-23: two runs on one core each that exchange "
    "nothing are beside each other as fast as alone (302 ms a step). Horovod's all-reduce takes 7 "
    "ms of a step, and waits up to 5 ms for its cycle. The slower of two processes, for which the "
    "other waits, takes 2 to 8 % longer than their mean on this virtual machine, whose steps have "
    "a standard deviation of 4 to 25 %."
)
# The file of each program, by its name.
FILES = {
    path.stem: path
    for path in Path(__file__).parents[1].glob("*/*.py")
    if path.parent != Path(__file__).parent
}
SHORT_STEPS = "--pairs 2 --case lenet5:8:2"
PROGRAMS = {
    # The short ones first: where a machine is lent for an hour, most is measured.
    "binding": Program("--rounds 2", 0.1),
    "neighbours": Program("--readings 20", 0.1),
    "logger": Program("--pairs 2 --steps 2", 0.5),
    "watching": Program("--seconds 2", 0.6),
    "sampling": Program("--samples 20 --rounds 2", 0.5, environment="train"),
    "copies": Program("--seconds 1", 2, note=OF_COPIES),
    "provenance": Program("--runs 1", 0.5, environment="train"),
    "reading": Program("--images 64 --rounds 1", 1.5, environment="train", note=OF_READING),
    "drift": Program("--studies 2", 0.5),
    "history": Program("--campaigns 20", 3),
    "history_changes": Program("--histories 2", 60, note=OF_HISTORIES),
    "history_gate": Program("--histories 2", 8, note=OF_RATES),
    "site": Program("--campaigns 20", 0.5, needs="Chromium"),
    "download": Program("--pairs 2 --megabytes 100", 1.5),
    "indexing": Program("--pictures 4000 --rounds 1", 4),
    "conversion": Program("--images 40 --rounds 1", 2.5),
    "import_logs": Program("--steps 2000 --rounds 1", 1.5),
    "log_patterns": Program("--steps 2000 --rounds 1", 1.5),
    "figures": Program("--runs 20 --steps 10 --draw scaling loss", 3),
    "report": Program("--runs 20", 2, needs="Chromium"),
    "archive": Program("--runs 20 --steps 10 --small 20 --draw loss", 4),
    "aggregation": Program("--runs 20 --steps 20", 4, note=OF_AGGREGATION),
    "model_work": Program(
        "--framework tensorflow --model lenet5 --model gpt_tiny --rounds 1 --calibration-s 1",
        12,
        environment="train",
        note=OF_MODEL_WORK,
    ),
    "training_step": Program(
        f"{SHORT_STEPS} --case gpt_tiny:2:2",
        12,
        environment="train",
        note=OF_ROUNDS.format(
            "1.009, 1.006, 0.969 and, alone an hour later, 1.018 of lstm_ptb over the bare "
            "compiled step"
        ),
    ),
    "jax_step": Program(SHORT_STEPS, 8, environment="jax"),
    "torch_step": Program(
        f"{SHORT_STEPS} --compiled-case lenet5:8:2", 12, environment="pytorch", note=OF_TORCH_STEP
    ),
    "jax_processes": Program("--model lenet5 --batch 8 --steps 4 --rounds 1", 4, environment="jax"),
    "torch_processes": Program(
        "--model lenet5 --batch 8 --steps 4 --rounds 1", 4, environment="pytorch"
    ),
    "compile_modes": Program(
        "--batch 2 --steps 2 --rounds 1", 5, environment="pytorch", note=OF_COMPILING
    ),
    "real_data": Program(
        "--framework tensorflow --model lenet5 --batch 8 --steps 4 --rounds 1 --records 400",
        11,
        environment="train",
        note=OF_ROUNDS.format(
            "0.999, 0.998, 1.003, 0.953 and 1.026 of jax from memory, 0.979, 0.983, 0.998, 1.008 "
            "and 0.944 of pytorch, 1.001, 0.997, 0.989, 0.992 and 0.960 of tensorflow"
        ),
    ),
    "two_processes": Program(
        "--model lenet5 --batch 8 --steps 4 --rounds 1 --strategies horovod",
        8,
        environment="train",
        note=OF_TWO_PROCESSES,
    ),
    "planning": Program("--combinations 20", 7, note=OF_PLANNING),
    "tf_cnn_benchmarks": Program(
        "",
        10,
        environment="train",
        needs="a checkout of it",
        given="CHECKOUT --python PYTHON",
        note=OF_ROUNDS.format("1.002 (nine rounds), 0.934 and 1.107"),
    ),
    "containers": Program(
        "", 2, needs="prepared images", given="results/images/train/apptainer.json"
    ),
    "slurm": Program("", 30, needs="root and the scripts that start a Slurm"),
}


def command(name: str, words: Iterable[Any]) -> list[Any]:
    """What starts a program with such arguments, in the folder of the repository."""
    module = f"tests.performance.{FILES[name].parent.name}.{name}"
    return [PROGRAMS[name].python, "-m", module, *words]
