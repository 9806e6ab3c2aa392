"""Train one combination and write its event log.

Usable by hand, without Snakemake and inside an image that has only Python and
TensorFlow:

    python train.py --model lenet5 --dataset synthetic --batch-per-device 64 \\
        --steps 100 --log log.jsonl

Exit code 0 means that the run trained to its end; otherwise the last event of
the log says what happened.
"""

import argparse
import os
import re
import signal
import sys
from pathlib import Path

from dlbench import Error, eventlog, plugins

IMAGE_MARKER = Path("/etc/dlbench-image.json")


def parser():
    """The flags: the fields of a run, then what no result depends on."""
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    run = flags.add_argument_group("the run")
    run.add_argument("--framework", default="tensorflow", choices=["tensorflow"])
    run.add_argument("--model", required=True, choices=plugins.names("models"))
    run.add_argument("--dataset", required=True, choices=plugins.names("datasets"))
    run.add_argument("--batch-per-device", type=_at_least(1), required=True, metavar="N")
    run.add_argument("--precision", default="float32", choices=["float32", "bfloat16", "float16"])
    run.add_argument("--mode", default="train", choices=["train", "forward", "forward_backward"])
    length = run.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=_at_least(1), metavar="N", help="measured steps")
    length.add_argument("--epochs", type=_at_least(1), metavar="E", help="passes over the data")
    run.add_argument("--warmup-steps", type=_at_least(0), default=10, metavar="K")
    run.add_argument("--optimizer", default="sgd", choices=["sgd", "momentum", "rmsprop", "adam"])
    run.add_argument("--learning-rate", type=float, default=0.01)
    run.add_argument(
        "--augment", type=_boolean, default=True, metavar="True|False",
        help="vary the training items, where the dataset has a way to",
    )  # fmt: skip
    run.add_argument(
        "--cache", default="auto", choices=["auto", "memory", "none"],
        help="keep the training items in memory; auto: up to 1 GiB",
    )  # fmt: skip
    run.add_argument("--seed", type=_at_least(0), default=1)
    run.add_argument("--nodes", type=_at_least(1), default=1, metavar="N")
    run.add_argument("--devices-per-node", type=_at_least(1), default=1, metavar="N")
    run.add_argument(
        "--threads-per-device", type=_at_least(1), default=1, help="cores of a CPU device"
    )
    run.add_argument("--strategy", default="single", choices=plugins.names("strategies"))
    run.add_argument("--launcher", default="none", choices=plugins.names("launchers"))
    run.add_argument("--runtime", default="bare", choices=plugins.names("runtimes"))
    run.add_argument("--environment", default="train", help="recorded only")
    run.add_argument("--repeat", type=_at_least(1), default=1, help="is added to the seed, less 1")
    where = flags.add_argument_group("where")
    where.add_argument("--log", required=True, help="event log; must not hold a run already")
    where.add_argument("--data", help="folder of the converted dataset, unless it is synthetic")
    where.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    return flags


def main():
    spec = parser().parse_args()
    log_path, data, device = (spec.__dict__.pop(key) for key in ("log", "data", "device"))
    signal.signal(signal.SIGTERM, _stop)
    strategy, log = None, None
    try:
        _check_containment(spec.runtime)
        strategy = plugins.load("strategies", spec.strategy).Strategy(
            device, spec.devices_per_node, spec.threads_per_device
        )
        log = _open(eventlog.rank_path(log_path, strategy.rank))
        # Imported late: it imports TensorFlow, which must see the strategy's set-up first.
        from dlbench import training

        end = training.train(spec, strategy, log, data)
    except BaseException as error:
        log = log or _open(log_path)
        status, message = _outcome(error)
        log.write("run_end", t_utc=eventlog.utc_now(), status=status, message=message)
        print(f"{status}: {message}", file=sys.stderr)
        if isinstance(error, Error):
            sys.exit(1)
        raise
    log.write("run_end", t_s=round(log.now(), 6), t_utc=eventlog.utc_now(), **end)
    if end["status"] != "ok":
        sys.exit(f"{end['status']}: {end['message']}")


def _open(path):
    """The log at `path`, refused where it holds a run already."""
    if Path(path).is_file() and any(e["event"] == "run_start" for e in eventlog.read(path)):
        sys.exit(f"error: {path} holds a run already; move it away or name another --log")
    return eventlog.EventLog(path)


def _check_containment(runtime):
    """Refuse to run where the run does not say it is.

    Our images carry a marker file; bare metal does not.
    """
    inside = IMAGE_MARKER.is_file()
    if inside != plugins.load("runtimes", runtime).MARKED:
        raise Error(
            f"runtime {runtime} was asked for, but {IMAGE_MARKER} "
            f"{'exists: this is inside an image' if inside else 'is missing: not in our image'}"
        )


def _outcome(error):
    """Status and message of run_end for what ended the run early."""
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return "oom", f"out of memory: {_first_lines(error)}"
    if isinstance(error, (KeyboardInterrupt, _Stopped)):
        return "failed", "stopped by a signal"
    if isinstance(error, Error):
        return "failed", str(error)
    return "failed", f"{type(error).__name__}: {_first_lines(error)}"


def _first_lines(error):
    return re.sub(r"\s+", " ", str(error))[:500]


class _Stopped(BaseException):
    """SIGTERM arrived."""


def _stop(number, frame):
    raise _Stopped


def _boolean(text):
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"expected True or False, found {text}")
    return text == "True"


def _at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, found {value}")
        return value

    return number


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
