"""Log the steps of any training loop for dlbench. One file: copy it beside your program.

    import dlbench_log

    log = dlbench_log.Log()                  # right after all imports
    for batch in log.data(batches):          # times the waits for data
        with log.step():
            log.loss(train(batch))           # a number, or an array or tensor with one
    log.evaluation(loss=0.3, top1=0.9)       # when it is done
    with log.checkpoint():
        save()
    log.metric("bandwidth", 11.5, "GB/s", better="higher")
    log.close()                              # or leave it to the end of the program

dlbench names the file in the environment variable DLBENCH_LOG, and the number of steps that are
warm-up in DLBENCH_WARMUP_STEPS. Elsewhere the file is Log's `path`; without one nothing is logged.

- A step lasts from the end of the one before to its own end: waiting for data is part of it.
  Evaluations and checkpoints are not; everything else between steps is.
- A GPU still works when the host has ended a step. With `synchronize=torch.cuda.synchronize`, or
  another function that waits for the device, times are those of the device. With `log.window(10)`
  it is called once in ten steps, and a step's time is the mean over the ten. An evaluation or the
  end within a window ends that window without waiting.
- Each rank logs to a file of its own and calls what the others call: the slowest one counts. The
  rank comes from the launcher's variables, or from `rank`.
- The logger ends no training: what goes wrong is printed once on stderr, and noted in the log.

Its lines are events of dlbench's training log (dlbench/log/event_log.py in dlbench). Needs Python
3.6 or newer and the standard library only.
"""

import atexit
import contextlib
import itertools
import json
import math
import os
import platform
import re
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

VERSION = 1
PATH, WARMUP_STEPS = "DLBENCH_LOG", "DLBENCH_WARMUP_STEPS"
# The variables of launchers with the rank and the number of ranks, the innermost launcher first.
RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
PACKAGES = ("tensorflow", "jax", "keras", "lightning", "transformers", "accelerate", "numpy")
SCORES = ("top1", "top5", "iou", "perplexity")  # of evaluations; others are metrics
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}\Z")
FLUSH_EVERY_S = 0.1  # of the steps before are written together, which disturbs the caches less
_imported_s, _clock = time.time(), time.perf_counter


class Log:
    """The log of one process.

    Args:
        path: of the file, if DLBENCH_LOG names none. An earlier file is renamed.
        synchronize: waits until the device has done its work; called at the end of each window.
        warmup_steps: number of steps that are not measured; None: DLBENCH_WARMUP_STEPS, or 0.
        rank: of this process; None: that of the launcher's variables, or 0.
        stated: what is known of the run, by names of dlbench's columns, as global_batch=64; also
            total_steps, and model_flops_per_item, of a training step. dlbench compares it with
            what was asked for.
    """

    def __init__(self, path=None, synchronize=None, warmup_steps=None, rank=None, **stated):
        found, self._size = _rank_and_size(os.environ)
        self.rank = found if rank is None else int(rank)
        path = os.environ.get(PATH) or path
        self._path = _rank_path(Path(path).absolute(), self.rank) if path else None
        if warmup_steps is None:
            warmup_steps = os.environ.get(WARMUP_STEPS) or 0
        self._warmup_steps, self._synchronize = int(warmup_steps), synchronize
        self._stated, self._created_s = stated, time.time()
        self._file, self._closed, self._said = None, False, set()
        self._step, self._steps = _Step(self), 0  # that were taken
        self._depth, self._open_step = 0, False  # of steps in steps; whether one is logged
        # The steps of a window, and of the open one; when that began, and its last step ended.
        self._window, self._in_window, self._since, self._last_end = 1, 0, None, 0.0
        self._losses, self._parts_s = [], {}  # of it: (step, loss, learning rate); seconds
        self._windows, self._flushed = [], 0.0  # that are not written; the time of writing
        self._epoch = None
        atexit.register(self._end_of_program)
        if not path and self.rank == 0:
            self._remark(f"{PATH} is not set and no path is given, so nothing is logged")

    def step(self):
        """A block, for `with`, that is one step. If an exception ends it, it does not count."""
        return self._step

    def begin_step(self):
        """A step begins; for callbacks, which cannot have a block."""
        self._depth += 1
        if self._depth > 1:
            self._remark("a step inside a step: only the outer one counts")
        elif self._ready():
            self._open_step = True
            if self._since is None:
                self._since = _clock()
            elif self._since - self._flushed >= FLUSH_EVERY_S:
                self._flush()

    def end_step(self, failed=False):
        """The step has ended."""
        self._depth = max(0, self._depth - 1)
        if self._depth or not self._open_step:
            return
        self._open_step = False
        if not failed:
            self._steps += 1
            self._in_window += 1
            self._last_end = _clock()
            if self._in_window >= self._window:
                self._end_window()

    def loss(self, value, learning_rate=None):
        """The loss of the step that is open or, outside of one, of the last one.

        `value` is a number, or what float() takes; it is converted when the window has ended.
        """
        step, losses = self._steps + self._open_step, self._losses
        if not (self._open_step or self._in_window):
            if not self._ready():
                return
            if not self._windows:
                self._remark("a loss outside of steps is left out: log it within its step")
                return
            losses = self._windows[-1][-1]
        if losses and losses[-1][0] == step:
            losses.pop()
        losses.append((step, value, learning_rate))

    def window(self, steps):
        """From the next window on, time this many steps together, and wait for the device once."""
        if type(steps) is not int or steps < 1:
            self._remark(f"window: expected a number of steps, found {steps!r}")
            return
        self._window = steps
        if self._file is not None:
            self._write("windows", step=self._steps, steps_per_sync=steps)

    def epoch(self, number):
        """The number, from 1, of the epoch to which the next steps belong."""
        self._epoch = self._number("epoch", number, int)

    def evaluation(self, loss=None, split="validation", examples=None, **scores):
        """An evaluation was done, which took the time since the last step.

        Args:
            loss: mean over its items.
            examples: number of its items.
            scores: top1, top5 and iou from 0 to 1, perplexity; others become metrics.
        """
        if not self._ready():
            return
        self._end_steps()
        t_s, values = self._t_s(_clock()), {n: scores.pop(n) for n in SCORES if n in scores}
        values = {n: self._known(n, value) for n, value in dict(values, loss=loss).items()}
        values.update(epoch=self._epoch, examples=self._known("examples", examples, int))
        self._write("eval", step=self._steps, t_s=t_s, split=str(split), **values)
        for name, value in scores.items():
            self.metric(name, value)
        self._restart()

    @contextlib.contextmanager
    def checkpoint(self):
        """A block, for `with`, that writes a checkpoint. It is no part of a step."""
        if not self._depth and self._ready():
            self._end_steps(wait=True)
            self._restart()
        yield
        self.checkpointed()

    def checkpointed(self):
        """A checkpoint was written, which took the time since the last step."""
        if self._depth:
            self._remark("a checkpoint inside a step: its time counts as the step's")
        elif self._ready():
            self._end_steps()
            began = _clock() if self._since is None else self._since
            self._write("checkpoint", step=self._steps, t_s=self._t_s(began))
            self._restart()

    @contextlib.contextmanager
    def part(self, name):
        """A block, for `with`, that is part of a step, as "exchange"; dlbench's metric NAME_s.

        It may be inside the step or before it. Its time is that of the host.
        """
        self._ready()  # waiting for the first item is part of the log's time
        began = _clock()
        yield
        if not NAME.match(str(name)):
            self._remark(f"part: expected a name of letters, digits and _, found {name!r}")
        elif self._since is not None:
            self._parts_s[name] = self._parts_s.get(name, 0.0) + _clock() - began

    def wait_for_data(self):
        """A block, for `with`, that waits for data: the part data_wait."""
        return self.part("data_wait")

    def data(self, items):
        """Yield the items; the waits for them are the part data_wait."""
        iterator = iter(items)
        while True:
            with self.wait_for_data():
                item = next(iterator, self)  # which is no item
            if item is self:
                return
            yield item

    def metric(self, name, value, unit="", better=""):
        """A number of the run; the last value of a name counts.

        `better` is "higher", "lower", or "" if neither is.
        """
        number = self._number(f"metric {name}", value)
        if not NAME.match(str(name)):
            self._remark(f"metric: expected a name of letters, digits and _, found {name!r}")
        elif better not in ("higher", "lower", ""):
            self._remark(f'metric {name}: expected better to be "higher", "lower" or ""')
        elif number is not None and not math.isfinite(number):
            self._remark(f"metric {name}: expected a finite number, found {number!r}")
        elif number is not None and self._ready():
            self._write("metric", name=name, value=number, unit=str(unit), better=better)

    def close(self, status="ok", message=""):
        """End the log. What comes later is left out."""
        if self._file is not None:
            self._end_steps()
            t_s = None if self._since is None else self._t_s(self._since)
            self._write("run_end", t_s=t_s, t_utc=_utc(time.time()), status=status, message=message)
        self._end_file()
        self._closed = True

    def _end_of_program(self):
        error = getattr(sys, "last_value", None)  # the exception that ended the program
        self.close(*(("failed", f"{type(error).__name__}: {error}") if error else ()))

    def _end_window(self, wait=True):
        """Time the open window; its last step ended, for the host, at _last_end."""
        if wait and self._synchronize is not None:
            self._synchronize()
            self._last_end = _clock()
        if wait and self._losses and type(self._losses[-1][1]) is not float:
            self._losses = self._converted(self._losses)  # which waits for the device, too
            self._last_end = _clock()
        seconds, steps, parts_s = self._last_end - self._since, self._in_window, self._parts_s
        window = (steps, self._steps, self._last_end, seconds, self._epoch, parts_s, self._losses)
        self._windows.append(window)
        self._since, self._in_window, self._parts_s, self._losses = self._last_end, 0, {}, []

    def _converted(self, losses):
        """The losses as floats; one that is no number is left out."""
        numbers = [(step, self._number("loss", loss), rate) for step, loss, rate in losses]
        return [one for one in numbers if one[1] is not None]

    def _flush(self):
        """Write the windows that are not written yet."""
        windows, self._windows, self._flushed = self._windows, [], _clock()
        self._append("".join([self._lines(*window) for window in windows]))

    def _lines(self, steps, last, end, seconds, epoch, parts_s, losses):
        """The lines of a window, in half the time of json."""
        losses, more = self._converted(losses), ""
        if losses:
            more += f', "loss": {_json(losses[-1][1])}'
            rate = self._known("learning rate", losses[-1][2])
            more += "" if rate is None else f', "learning_rate": {_json(rate)}'
        if epoch is not None:
            more += f', "epoch": {epoch}'
        if steps > 1:
            more += f', "window_steps": {steps}'
            if len(losses) == steps:
                more += f', "losses": [{", ".join(_json(loss) for _, loss, _ in losses)}]'
        warm_up = "true" if last - steps < self._warmup_steps else "false"
        lines = (
            f'{{"event": "step", "step": {last}, "t_s": {end - self._zero:.7f}, '
            f'"step_time_s": {seconds / steps:.7f}, "warm_up": {warm_up}{more}}}\n'
        )
        if parts_s:
            parts = ", ".join(f'"{name}": {spent_s:.7f}' for name, spent_s in parts_s.items())
            lines += f'{{"event": "parts", "step": {last}, "seconds": {{{parts}}}}}\n'
        return lines

    def _end_steps(self, wait=False):
        """End the open window and write all: what follows is no step."""
        if self._in_window:
            self._end_window(wait)
        self._flush()

    def _restart(self):
        """The next step begins here, or later."""
        self._parts_s = {}
        if self._since is not None:
            self._since = _clock()

    def _number(self, what, value, kind=float):
        """A float, or an int; None, after a remark, if the value is no number."""
        if type(value) is kind:
            return value
        try:
            return kind(None if isinstance(value, (str, bytes)) else value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            self._remark(f"{what}: expected a number, found {repr(value)[:80]}")

    def _known(self, what, value, kind=float):
        return None if value is None else self._number(what, value, kind)

    def _t_s(self, now):
        return round(now - self._zero, 7)

    def _ready(self):
        """Whether this process logs; opens the file for the first event."""
        if self._file is None and self._path is not None:
            try:
                self._open()
            except OSError as error:
                self._give_up(error)
        if self._closed:
            self._remark("the log is closed: what comes after it is left out")
        return self._file is not None

    def _open(self):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(str(self._path), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        if not _lock(file):
            os.close(file)
            raise OSError(0, "another process writes it (does each have its rank?)")
        if os.fstat(file).st_size:  # of an earlier start
            os.close(file)
            _keep_aside(self._path)
            self._open()
            return
        self._file, self._process = file, os.getpid()
        self._write("begin", t_utc=_utc(_process_started_s()))
        self._write("stage", name="imports", t_utc=_utc(self._created_s))
        self._zero = _clock()
        self._write(
            "run_start",
            t_utc=_utc(time.time()),
            log_version=1,
            logger=f"dlbench_log {VERSION}",
            spec={"trainer": os.path.basename(sys.argv[0]) or "python"},
            stated={
                n: _plain(str(v) if isinstance(v, dict) else v) for n, v in self._stated.items()
            },
            rank=self.rank,
            size=self._size,
            host=platform.node(),
            versions=_versions(),
        )
        if self._window > 1:
            self._write("windows", step=0, steps_per_sync=self._window)

    def _write(self, event, **values):
        values = {name: _plain(value) for name, value in values.items() if value is not None}
        self._append(f'{{"event": "{event}", {json.dumps(values)[1:]}\n')

    def _append(self, lines):
        try:
            view = memoryview(lines.encode("utf-8"))
            # A forked process has the file of another, and leaves it alone.
            while view and self._file is not None and self._process == os.getpid():
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error):
        """Log no more; the training goes on."""
        path = self._path
        self._end_file()
        self._remark(f"{path}: {error.strerror or error}; nothing more is logged")

    def _end_file(self):
        if self._file is not None:
            os.close(self._file)
        self._file, self._path = None, None

    def _remark(self, text):
        """Print what went wrong, once, and note it in the log."""
        if text not in self._said:
            self._said.add(text)
            with contextlib.suppress(OSError, ValueError, AttributeError):  # there is no stderr
                sys.stderr.write(f"dlbench_log: {text}\n")
            if self._file is not None:
                self._write("remark", message=text)


class _Step:
    def __init__(self, log):
        self._log = log

    def __enter__(self):
        self._log.begin_step()

    def __exit__(self, kind, error, trace):
        self._log.end_step(kind is not None)


def _json(number):
    return repr(number) if math.isfinite(number) else f'"{number}"'


def _plain(value):
    """A value that JSON has: numbers that are not finite, and objects, as text."""
    is_text = isinstance(value, float) and not math.isfinite(value)
    is_plain = value is None or isinstance(value, (bool, int, float, str, dict))
    return value if is_plain and not is_text else str(value)


def _utc(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _versions():
    """Versions of the packages that are loaded, by dlbench's names of them."""
    names = dict({name: name for name in PACKAGES}, torch="pytorch")
    loaded = {names[name]: sys.modules[name] for name in names if name in sys.modules}
    found = {name: str(getattr(module, "__version__", None)) for name, module in loaded.items()}
    return dict(found, python=platform.python_version())


def _rank_and_size(variables):
    """The rank of this process, or 0, and the number of ranks, or None."""
    for rank, size in RANKS:
        if variables.get(rank, "").isdigit():
            count = variables.get(size, "")
            return int(variables[rank]), int(count) if count.isdigit() else None
    return 0, None


def _rank_path(path, rank):
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}") if rank else path


def _keep_aside(path):
    """Rename the log of an earlier start, as train.jsonl to train.attempt1.jsonl."""
    stem, _, rest = path.name.partition(".")
    names = (path.with_name(f"{stem}.attempt{number}.{rest}") for number in itertools.count(1))
    path.rename(next(name for name in names if not name.exists()))


def _lock(file):
    """Whether no other process writes a file, as far as the file system knows."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, ImportError):
        pass  # there are no such locks, as on Windows
    return True


def _process_started_s():
    """When this process was started, in seconds since 1970; else when this was imported."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        up_s = float(Path("/proc/uptime").read_text().split()[0])
        age_s = up_s - ticks / os.sysconf("SC_CLK_TCK")
        return min(time.time() - max(age_s, 0.0), _imported_s)
    return _imported_s
