"""The flags of train.py: the fields of a run, then where it lies and how it is watched.

A test compares them with the fields of study/runs.py, which the trainer does not import.
"""

import argparse

from dlbench.common import flag_types, plugins
from dlbench.machine import binding
from dlbench.trainer import calibration, engine, profiling, schedule
from dlbench.trainer.reading import inputs

PLACES = (
    "log",
    "data",
    "device",
    "site_binding",
    "share_gpus",
    "image_id",
    "model_folder",
    "checkpoint",
    "checkpoint_every_min",
    "sample_every_s",
    "packages",
    "calibrations",
    "calibration_s",
)


def parse(
    description: str | None, words: list[str] | None = None
) -> tuple[argparse.Namespace, argparse.Namespace]:
    """The fields of the run, and what no result depends on (PLACES).

    Args:
        description: of the program.
        words: of the command line; None: those of this process.
    """
    spec = parser(description).parse_args(words)
    spec.environment = spec.environment or engine.environment(spec.framework)
    return spec, argparse.Namespace(**{key: spec.__dict__.pop(key) for key in PLACES})


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """The parser of both groups of flags."""
    program = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_run(program.add_argument_group("the run"))
    _add_places(program.add_argument_group("where and how"))
    return program


def _add_run(run: argparse._ArgumentGroup) -> None:
    run.add_argument("--framework", default="tensorflow", choices=engine.names())
    run.add_argument("--model", required=True, metavar="M", help=", ".join(_names("models")))
    datasets = ", ".join(plugins.names("datasets"))
    run.add_argument(
        "--dataset", type=flag_types.name_of("datasets"), required=True, metavar="D", help=datasets
    )
    run.add_argument("--batch-per-device", type=flag_types.whole(1), required=True, metavar="N")
    run.add_argument(
        "--sequence-length",
        type=flag_types.whole(1),
        metavar="N",
        help="tokens of an item of text; not given: those that the model was designed for",
    )
    run.add_argument(
        "--precision", default="float32", choices=["float32", "tf32", "bfloat16", "float16"]
    )
    run.add_argument(
        "--xla",
        type=_boolean,
        default=False,
        metavar="True|False",
        help="compile forward and backward pass with XLA",
    )
    run.add_argument(
        "--compile",
        type=_boolean,
        default=False,
        metavar="True|False",
        help="compile forward and backward pass with torch.compile",
    )
    run.add_argument(
        "--deterministic",
        type=_boolean,
        default=False,
        metavar="True|False",
        help="only operations that give the same bits each time; slower",
    )
    run.add_argument(
        "--recompute",
        type=_boolean,
        default=False,
        metavar="True|False",
        help="compute activations of a transformer's blocks again in the backward pass",
    )
    run.add_argument(
        "--profile",
        type=_boolean,
        default=False,
        metavar="True|False",
        help=f"trace {profiling.STEPS} steps after the run, in trace.json.gz beside the log",
    )
    run.add_argument(
        "--mode", default="train", choices=["train", "forward", "forward_backward", "input"]
    )
    length = run.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=flag_types.whole(1), metavar="N", help="measured steps")
    length.add_argument(
        "--epochs", type=flag_types.whole(1), metavar="E", help="passes over the data"
    )
    run.add_argument("--warmup-steps", type=flag_types.whole(0), default=10, metavar="K")
    run.add_argument(
        "--steps-per-sync",
        type=flag_types.whole(1, most=schedule.MOST_LENGTH),
        metavar="N",
        help="steps that are timed as one and waited for once; not given: 1 on CPUs, on GPUs as "
        f"many as keep the wait under {schedule.MOST_WAIT:.0%}% of the time",
    )
    run.add_argument(
        "--evaluate",
        default="auto",
        choices=["auto", "yes", "no"],
        help="score held-out items after each epoch; auto: with --epochs",
    )
    run.add_argument(
        "--optimizer", default="sgd", choices=["sgd", "momentum", "rmsprop", "adam", "adamw"]
    )
    run.add_argument(
        "--weight-decay",
        type=flag_types.real(0),
        default=0.0,
        help="of adamw, which needs one; weights with one axis do not decay",
    )
    run.add_argument(
        "--clip-norm",
        type=flag_types.real(0),
        default=0.0,
        help="shorten gradients whose common norm is larger; 0: none",
    )
    run.add_argument(
        "--accumulate-steps",
        type=flag_types.whole(1),
        default=1,
        metavar="N",
        help="compute the batch of a device in so many parts, one after the other",
    )
    run.add_argument("--learning-rate", type=flag_types.real(above=0), default=0.01)
    run.add_argument(
        "--learning-rate-scaling",
        default="none",
        choices=["none", "linear", "sqrt"],
        help="with global batch / learning-rate-batch, or its root",
    )
    run.add_argument(
        "--learning-rate-batch",
        type=flag_types.whole(1),
        default=256,
        metavar="N",
        help="global batch for which the learning rate is meant",
    )
    run.add_argument(
        "--learning-rate-warmup-steps", type=flag_types.whole(0), default=0, metavar="K"
    )
    run.add_argument(
        "--learning-rate-decay",
        default="none",
        choices=["none", "cosine"],
        help="cosine: to zero behind the last step, after the warm-up",
    )
    run.add_argument(
        "--augment",
        type=_boolean,
        default=True,
        metavar="True|False",
        help="vary the training items, where the dataset has a way to",
    )
    run.add_argument(
        "--cache",
        default="auto",
        choices=["auto", "memory", "none"],
        help="keep the training items in memory; auto: up to 1 GiB",
    )
    run.add_argument(
        "--input",
        default=inputs.AUTO,
        choices=[inputs.AUTO, *inputs.names()],
        help="what reads the items; auto: the framework's usual reader",
    )
    run.add_argument(
        "--input-workers",
        type=flag_types.whole(1, most=inputs.MOST_WORKERS),
        metavar="N",
        help="processes or threads that make items ready; not given: as many as the reader takes",
    )
    run.add_argument(
        "--prefetch",
        type=flag_types.whole(0, most=inputs.MOST_AHEAD),
        metavar="N",
        help="batches that are made ready ahead; not given: as many as the reader takes",
    )
    run.add_argument(
        "--page-cache",
        default=inputs.AS_FOUND,
        choices=inputs.PAGE_CACHES,
        help="cold: drop the dataset's files from the system's memory first; warm: read them once",
    )
    run.add_argument("--seed", type=flag_types.whole(0), default=1)
    run.add_argument("--nodes", type=flag_types.whole(1), default=1, metavar="N")
    run.add_argument("--devices-per-node", type=flag_types.whole(1), default=1, metavar="N")
    run.add_argument(
        "--threads-per-device", type=flag_types.whole(1), default=1, help="cores of a CPU device"
    )
    run.add_argument(
        "--power-limit-w",
        type=flag_types.whole(1),
        metavar="W",
        help="of each GPU, set by start_run.py; recorded only",
    )
    run.add_argument("--strategy", default="single", choices=_names("strategies"))
    run.add_argument(
        "--strategy-options", default="", metavar="A=1,B=x", help="see the file of the strategy"
    )
    run.add_argument("--launcher", default="none", choices=plugins.names("launchers"))
    run.add_argument("--runtime", default="bare", choices=plugins.names("runtimes"))
    run.add_argument("--runtime-options", default="", metavar="A=1,B=x", help="recorded only")
    run.add_argument(
        "--copies-per-node",
        type=flag_types.whole(1),
        default=1,
        metavar="N",
        help="trained at once; each is started by start_processes.py --copies N",
    )
    run.add_argument("--node", metavar="NAME", help="that the run was sent to; recorded only")
    run.add_argument("--environment", help="recorded only")
    run.add_argument(
        "--repeat", type=flag_types.whole(1), default=1, help="is added to the seed, less 1"
    )
    run.add_argument("--sentinel", type=flag_types.whole(0), default=0, help="recorded only")
    run.add_argument(
        "--probe",
        default="",
        choices=["stored", "synthetic"],
        help="a run of no statistics: with its items, or with made-up ones of their shape",
    )


def _add_places(where: argparse._ArgumentGroup) -> None:
    where.add_argument("--log", required=True, help="event log; must not hold a run already")
    where.add_argument("--data", help="folder of the converted dataset, unless it is synthetic")
    where.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    where.add_argument(
        "--site-binding",
        default=binding.AUTO,
        choices=binding.MODES,
        help="of processes to cores; auto: near their GPUs; cores: by their numbers alone",
    )
    where.add_argument(
        "--share-gpus", action="store_true", help="let several processes compute on one GPU"
    )
    where.add_argument("--image-id", help="what the marker says of the image that this is in")
    where.add_argument("--model-folder", help="folder with a file of your own for --model")
    where.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="write checkpoints here, and go on from the newest one; also on SIGTERM and SIGUSR1",
    )
    where.add_argument(
        "--checkpoint-every-min", type=flag_types.real(above=0), default=10.0, metavar="MINUTES"
    )
    where.add_argument(
        "--sample-every-s",
        type=flag_types.real(0),
        default=1.0,
        metavar="SECONDS",
        help="sample CPU, memory and GPUs; 0: never",
    )
    where.add_argument(
        "--packages", metavar="FOLDER", help="keep the list of installed packages here"
    )
    where.add_argument(
        "--calibrations",
        metavar="FOLDER",
        help="measure what a device of no known peak attains, once for each kind, and keep it here",
    )
    where.add_argument(
        "--calibration-s",
        type=flag_types.real(above=0),
        default=calibration.SECONDS,
        metavar="SECONDS",
        help="how long it is measured; in less, what disturbs for seconds counts",
    )


def _names(kind: str) -> list[str]:
    """The names of a kind that any framework has."""
    return sorted({n for name in engine.names() for n in plugins.names(engine.kind(name, kind))})


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"expected True or False, found {text}")
    return text == "True"
