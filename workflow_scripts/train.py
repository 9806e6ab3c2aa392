"""Train one combination and write its event log.

Usable by hand, without Snakemake and inside an image that has only Python and
TensorFlow:

    python train.py --model lenet5 --dataset synthetic --batch-per-device 64 \\
        --steps 100 --log log.jsonl

Exit code 0 means that the run trained to its end, 75 that it was stopped after a
checkpoint and goes on when started again; otherwise the last event of the log says
what happened.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from dlbench import Error
from dlbench.common import flag_types, plugins, terminal
from dlbench.log import event_log
from dlbench.machine import redaction
from dlbench.trainer import checkpoints, copies, engine, loop

IMAGE_MARKER = Path("/etc/dlbench-image.json")


def parser():
    """The flags: the fields of a run, then what no result depends on."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    run = made.add_argument_group("the run")
    run.add_argument("--framework", default="tensorflow", choices=engine.names())
    run.add_argument("--model", required=True, metavar="M", help=", ".join(plugins.names("models")))
    run.add_argument("--dataset", required=True, choices=plugins.names("datasets"))
    run.add_argument("--batch-per-device", type=flag_types.whole(1), required=True, metavar="N")
    run.add_argument(
        "--precision", default="float32", choices=["float32", "tf32", "bfloat16", "float16"]
    )
    run.add_argument(
        "--xla", type=_boolean, default=False, metavar="True|False",
        help="compile forward and backward pass with XLA",
    )  # fmt: skip
    run.add_argument(
        "--deterministic", type=_boolean, default=False, metavar="True|False",
        help="only operations that give the same bits each time; slower",
    )  # fmt: skip
    run.add_argument("--mode", default="train", choices=["train", "forward", "forward_backward"])
    length = run.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=flag_types.whole(1), metavar="N", help="measured steps")
    length.add_argument(
        "--epochs", type=flag_types.whole(1), metavar="E", help="passes over the data"
    )
    run.add_argument("--warmup-steps", type=flag_types.whole(0), default=10, metavar="K")
    run.add_argument(
        "--evaluate", default="auto", choices=["auto", "yes", "no"],
        help="score held-out items after each epoch; auto: with --epochs",
    )  # fmt: skip
    run.add_argument("--optimizer", default="sgd", choices=["sgd", "momentum", "rmsprop", "adam"])
    run.add_argument("--learning-rate", type=flag_types.real(above=0), default=0.01)
    run.add_argument(
        "--learning-rate-scaling", default="none", choices=["none", "linear", "sqrt"],
        help="with global batch / learning-rate-batch, or its root",
    )  # fmt: skip
    run.add_argument(
        "--learning-rate-batch", type=flag_types.whole(1), default=256, metavar="N",
        help="global batch for which the learning rate is meant",
    )  # fmt: skip
    run.add_argument(
        "--learning-rate-warmup-steps", type=flag_types.whole(0), default=0, metavar="K"
    )
    run.add_argument(
        "--augment", type=_boolean, default=True, metavar="True|False",
        help="vary the training items, where the dataset has a way to",
    )  # fmt: skip
    run.add_argument(
        "--cache", default="auto", choices=["auto", "memory", "none"],
        help="keep the training items in memory; auto: up to 1 GiB",
    )  # fmt: skip
    run.add_argument("--seed", type=flag_types.whole(0), default=1)
    run.add_argument("--nodes", type=flag_types.whole(1), default=1, metavar="N")
    run.add_argument("--devices-per-node", type=flag_types.whole(1), default=1, metavar="N")
    run.add_argument(
        "--threads-per-device", type=flag_types.whole(1), default=1, help="cores of a CPU device"
    )
    run.add_argument("--strategy", default="single", choices=plugins.names("strategies"))
    run.add_argument(
        "--strategy-options", default="", metavar="A=1,B=x", help="see the file of the strategy"
    )
    run.add_argument("--launcher", default="none", choices=plugins.names("launchers"))
    run.add_argument("--runtime", default="bare", choices=plugins.names("runtimes"))
    run.add_argument("--runtime-options", default="", metavar="A=1,B=x", help="recorded only")
    run.add_argument(
        "--copies-per-node", type=flag_types.whole(1), default=1, metavar="N",
        help="trained at once; each is started by start_processes.py --copies N",
    )  # fmt: skip
    run.add_argument("--environment", default="train", help="recorded only")
    run.add_argument(
        "--repeat", type=flag_types.whole(1), default=1, help="is added to the seed, less 1"
    )
    run.add_argument("--sentinel", type=flag_types.whole(0), default=0, help="recorded only")
    where = made.add_argument_group("where and how")
    where.add_argument("--log", required=True, help="event log; must not hold a run already")
    where.add_argument("--data", help="folder of the converted dataset, unless it is synthetic")
    where.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    where.add_argument("--image-id", help="what the marker says of the image that this is in")
    where.add_argument("--model-folder", help="folder with a file of your own for --model")
    where.add_argument(
        "--checkpoint", metavar="FOLDER",
        help="write checkpoints here, and go on from the newest one; also on SIGTERM and SIGUSR1",
    )  # fmt: skip
    where.add_argument(
        "--checkpoint-every-min", type=flag_types.real(above=0), default=10.0, metavar="MINUTES"
    )
    where.add_argument(
        "--sample-every-s", type=flag_types.real(0), default=1.0, metavar="SECONDS",
        help="sample CPU, memory and GPUs; 0: never",
    )  # fmt: skip
    where.add_argument(
        "--packages", metavar="FOLDER", help="keep the list of installed packages here"
    )
    return made


PLACES = (
    "log", "data", "device", "image_id", "model_folder", "checkpoint", "checkpoint_every_min",
    "sample_every_s", "packages",
)  # fmt: skip


def main():
    begun = event_log.utc_now()  # what came before is the start of the container, or of Python
    spec = parser().parse_args()
    where = argparse.Namespace(**{key: spec.__dict__.pop(key) for key in PLACES})
    asked = _Asked(where.checkpoint is not None)
    # CUDA's order of devices must be that of NVML, which samples them.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    strategy, copy, log = None, None, None
    try:
        if where.model_folder:
            plugins.use_folder("models", where.model_folder)
        plugins.path("models", spec.model)
        containment = _check_containment(spec.runtime, where.image_id)
        copy = _copy(spec, where)
        strategy = plugins.load("strategies", spec.strategy).Strategy(
            spec, where.device, Path(where.log).parent
        )
        before = event_log.last_run_end(where.log)  # of an earlier part of the run
        if strategy.serve(lambda: event_log.last_run_end(where.log) not in (None, before)):
            return
        resumes = where.checkpoint and checkpoints.latest(where.checkpoint)
        log = _open(_own_log(where.log, strategy, copy), resumes)
        log.write("begin", t_utc=begun, containment=containment)
        checkpointing = None
        if where.checkpoint:
            every_s = 60 * where.checkpoint_every_min
            checkpointing = {"folder": where.checkpoint, "every_s": every_s, "asked": asked}
        # Loaded late: it imports the framework, which must see the strategy's set-up first.
        trained = plugins.load(spec.framework, "engine").Engine(spec, strategy, where.data)
        end = loop.train(
            spec, trained, copy, log, checkpointing, where.sample_every_s, where.packages
        )
    except checkpoints.Stopped as stopped:
        # No end: started again with the same words, the run goes on.
        print(stopped, file=sys.stderr)
        sys.exit(checkpoints.STOPPED_EXIT_CODE)
    except BaseException as error:
        # TensorFlow may make another exception of it.
        status, message = _outcome(_Signal() if asked.ended else error, spec.framework)
        path = _own_log(where.log, strategy, copy)
        if log is None and not _holds_run(path):
            log = event_log.EventLog(path)
        if log:
            log.write("run_end", t_utc=event_log.utc_now(), status=status, message=message)
        print(f"{status}: {message}", file=sys.stderr)
        if asked.ended or isinstance(error, (Error, KeyboardInterrupt)):
            sys.exit(1)
        raise
    log.write("run_end", t_utc=event_log.utc_now(), **end)
    if end["status"] != "ok":
        sys.exit(f"{end['status']}: {end['message']}")


def _copy(spec, where):
    """Which of the run's copies this process is.

    Raises:
        Error: the run cannot have copies, or was not started as one.
    """
    strategy = plugins.load("strategies", spec.strategy).Strategy
    reason = copies.unsupported(spec, strategy)
    if not reason and where.checkpoint and spec.copies_per_node > 1:
        reason = copies.NO_CHECKPOINTS
    if reason:
        raise Error(reason)
    return copies.mine(spec, where.device, where.log)


def _own_log(path, strategy, copy):
    """The log of this process: one that knows neither rank nor copy has the first one's."""
    rank = strategy.rank if strategy else 0
    return event_log.rank_path(path, rank or (copy.number if copy else 0))


def _open(path, resumes):
    """The log at `path`, refused where it holds a run already that does not go on."""
    if not resumes and _holds_run(path):
        raise Error(f"{path} holds a run already; move it away or name another --log")
    return event_log.EventLog(path)


def _holds_run(path):
    return Path(path).is_file() and any(e["event"] == "run_start" for e in event_log.read(path))


def _check_containment(runtime, image_id):
    """See that the trainer is where the run says. Returns the proof, for the log.

    Our images carry a marker file with the identity of the image; bare metal does not.

    Raises:
        Error: it is elsewhere.
    """
    try:
        marker = json.loads(IMAGE_MARKER.read_text(encoding="utf-8"))
        found = marker["image_id"]
    except FileNotFoundError:
        marker = found = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Error(f"{IMAGE_MARKER} is not the marker of an image of ours: {error!r}") from error
    if not plugins.constants("runtimes", runtime)["CONTAINED"]:
        if marker:
            raise Error(
                f"runtime {runtime} was asked for, but this is inside the image {found}: "
                f"{IMAGE_MARKER} is there"
            )
        return None
    if not marker:
        raise Error(
            f"runtime {runtime} was asked for, but this is not in an image: {IMAGE_MARKER} is "
            "missing. Either nothing entered the container (Snakemake without "
            "--software-deployment-method apptainer, for one), or the runtime lets the host's "
            "files through"
        )
    if found != image_id:
        raise Error(
            f"runtime {runtime} was to be in the image {image_id}, but this is the image {found}"
        )
    return marker


def _outcome(error, framework):
    """Status and message of run_end for what ended the run early."""
    out_of_memory = plugins.constants(framework, "engine")["OUT_OF_MEMORY"]
    if isinstance(error, MemoryError) or type(error).__name__ in out_of_memory:
        return "oom", f"out of memory: {_said(error)}"
    if isinstance(error, (KeyboardInterrupt, _Signal)):
        return "failed", event_log.STOPPED_BY_SIGNAL
    if isinstance(error, Error):
        return "failed", redaction.text(terminal.plain(str(error)))
    return "failed", f"{type(error).__name__}: {_said(error)}"


def _said(error):
    """What an exception says, without secrets, in one line: its beginning and its end."""
    return terminal.message(redaction.text(str(error)))


class _Signal(BaseException):
    """SIGTERM or SIGUSR1 arrived."""


class _Asked:
    """Says which signal asked the run to stop; "" as long as none did.

    Where checkpoints are written the run ends after one; else at once.
    """

    def __init__(self, later):
        self._reason, self._later = "", later
        self.ended = False  # a signal ended the run at once
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._receive)

    def __call__(self):
        return self._reason

    def _receive(self, number, frame):
        if not self._later or self._reason:
            self.ended = True
            raise _Signal
        self._reason = signal.Signals(number).name


def _boolean(text):
    if text not in ("True", "False"):
        raise argparse.ArgumentTypeError(f"expected True or False, found {text}")
    return text == "True"


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
