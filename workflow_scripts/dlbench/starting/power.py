"""The power of a run's GPUs, limited by nvidia-smi, and that of its node, read by a meter.

Limits are set before the trainer starts, and restored once it has ended:
- nvidia-smi, which comes with the driver, reads limits and sets them for root. A site may name
  another command that sets them (`site.power_limit_command`).
- If the supervisor is killed, the limit stays. One that somebody else has changed is left alone.
- Without persistence mode the driver forgets a limit whenever no program uses the GPU, also before
  the trainer does.
- Some GPUs accept a limit silently and do not enforce it. So the enforced limit is read after it
  was set, and again before it is restored.

A meter is a command that prints watts:
- It runs on the node of the process that supervises the run, from before the trainer starts until
  it has ended, and prints the power of that whole node: one number a line, in W. The time of a
  reading is that at which its line arrives.
- Energy is the integral of power (trapezoidal rule) from run_start to the end of the work. Missing
  readings at both ends are replaced by the nearest one. If readings cover less than half of the
  time, there is no energy.
- Instead of a command, a site may name a file in power_meters/ and its arguments.
- A meter that does not start, ends, hangs, or prints something else does not affect the run: the
  event `power_meter` of the log has the reason.

Needs the standard library only.
"""

import contextlib
import csv
import functools
import itertools
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import orphans, plugins, terminal
from dlbench.log import event_log
from dlbench.machine import energy, gpus, redaction
from dlbench.starting import processes

PROGRAM = "nvidia-smi"
QUERY_FIELDS = (
    *("index", "uuid", "persistence_mode", "power.limit", "enforced.power.limit"),
    *("power.min_limit", "power.max_limit"),
)
TIMEOUT_S = 60.0  # without persistence mode the driver starts each GPU anew
TOLERANCE_W = 1.0  # nvidia-smi prints hundredths of a watt, and drivers may round a requested limit


class Refused(Error):
    """The limit cannot be set here; another attempt would fail too."""


class Limits:
    """The power limit of some GPUs, in watts; `held` sets it.

    `count`: GPUs of the run on this machine, the first that CUDA shows this process; `command`:
    sets a limit, given `-i UUID -pl WATTS`, without a shell, None: nvidia-smi; `changed`: which
    limit differed at the end of the run, "" if none did.
    """

    def __init__(self, limit_w: int, count: int, command: str | None = None) -> None:
        self.changed = ""
        self._limit_w, self._count, self._command = limit_w, count, command or PROGRAM
        self._reports: list[dict[str, Any]] = []
        self._trouble: list[str] = []

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Set the limit of all GPUs during the `with` block, or leave all as they are.

        Raises Refused: with the requested limit, what is allowed, and who may set it.
        """
        try:
            try:
                gpus = _select_gpus(self._count)
                for gpu in gpus:
                    self._check(gpu)
                for gpu in gpus:
                    self._set(gpu)
            except Refused as error:
                raise Refused(f"power_limit_w {self._limit_w}: {error}") from error
            yield
        finally:
            for report in self._reports[::-1]:
                self._restore(report)

    def fields(self) -> dict[str, Any]:
        """The event `power_limit`, once the limits are restored."""
        trouble = "; ".join(self._trouble) or None
        return {"asked_w": self._limit_w, "gpus": self._reports, "trouble": trouble}

    def _check(self, gpu):
        """Check that a GPU reports a range that includes the limit, and keeps limits."""
        if None in (gpu.limit_w, gpu.enforced_w, gpu.least_w, gpu.most_w):
            raise Refused(f"{gpu.uuid} tells no power limit that could be set")
        if not gpu.least_w <= self._limit_w <= gpu.most_w:
            raise Refused(f"{gpu.uuid} takes from {gpu.least_w:g} to {gpu.most_w:g} W")
        if not gpu.persists:
            raise Refused(
                f"{gpu.uuid} is without persistence mode: its driver would forget the limit before "
                "the trainer starts; root turns the mode on by nvidia-smi -pm 1"
            )

    def _set(self, gpu):
        report = {"uuid": gpu.uuid, "found_w": gpu.limit_w, "enforced_w": gpu.enforced_w}
        self._reports.append(report)
        code, said = self._request(gpu.uuid, self._limit_w)
        now = _by_uuid(gpu.uuid)
        if not now or not _is_close(now.enforced_w, self._limit_w):
            rights = (
                ". Only root of the host may set it, and whom the site lets by "
                f"site.power_limit_command (docs/training.md); this process is of user "
                f"{os.geteuid()}: name such a command, start the workflow outside of containers, "
                "or leave power_limit_w out and have the site set the limit before the job, as by "
                "nvidia-smi -pl in the scheduler's prolog"
            )
            raise Refused(
                f"{gpu.uuid} takes from {gpu.least_w:g} to {gpu.most_w:g} W and enforces "
                f"{_format_watts(now and now.enforced_w)} now; {self._command} said: {said}"
                f"{rights if code else ''}"
            )
        report["enforced_w"] = now.enforced_w

    def _restore(self, report):
        """Restore the limit of a GPU. Failures are printed and recorded, and fail no run."""
        uuid, found_w = report["uuid"], report["found_w"]
        report["restored"] = False
        try:
            now = _by_uuid(uuid)
            report["enforced_last_w"] = now and now.enforced_w
            if not _is_close(report["enforced_last_w"], report["enforced_w"]):
                self.changed = (
                    f"the power limit of {uuid} was {_format_watts(report['enforced_w'])} at "
                    f"the start and {_format_watts(report['enforced_last_w'])} at the end"
                )
            if now and _is_close(now.limit_w, self._limit_w) and now.limit_w != found_w:
                _, said = self._request(uuid, found_w)
                now = _by_uuid(uuid)
                if now and not _is_close(now.limit_w, found_w):
                    raise Error(
                        f"the power limit of {uuid} is {_format_watts(now.limit_w)}, set for a "
                        f"run, and cannot be restored: {self._command} said: {said}. Have root run "
                        f"nvidia-smi -i {uuid} -pl {found_w:g}"
                    )
            report["restored"] = bool(now and _is_close(now.limit_w, found_w))
        except Error as error:
            self._trouble.append(str(error))
            print(error, file=sys.stderr, flush=True)

    def _request(self, uuid, limit_w):
        """Run the command that sets a limit. Returns (its exit code, a text with its output)."""
        try:
            arguments = shlex.split(self._command)
        except ValueError as error:
            raise Refused(f"site.power_limit_command {self._command!r}: {error}") from error
        code, output = _output([*arguments, "-i", uuid, "-pl", f"{limit_w:g}"])
        return code, f"{_plain(output) or 'nothing'} (exit code {code})"


class _Gpu(NamedTuple):
    """A GPU as nvidia-smi lists it; limits in watts, None if it has none."""

    number: str
    uuid: str
    persists: bool
    limit_w: float | None
    enforced_w: float | None
    least_w: float | None
    most_w: float | None


def _select_gpus(count):
    """The first `count` GPUs that CUDA shows this process. Raises Refused if there are fewer."""
    selectors = gpus.visible_gpus(0, count)
    if len(selectors) < count:
        raise Refused(f"the run has {count} GPUs, and CUDA_VISIBLE_DEVICES names {len(selectors)}")
    all_gpus, chosen = _gpus(), []
    for selector in map(str, selectors):
        if selector.startswith("MIG-"):
            raise Refused(f"{selector} is a part of a GPU, and a limit is that of the whole GPU")
        # CUDA takes the beginning of a UUID, too.
        fitting = [g for g in all_gpus if g.number == selector or g.uuid.startswith(selector)]
        if len(fitting) != 1:
            raise Refused(f"GPU {selector} is not among the {len(all_gpus)} that nvidia-smi lists")
        chosen += fitting
    return chosen


def _by_uuid(uuid):
    """The current state of a GPU; None if it is gone."""
    return next((gpu for gpu in _gpus() if gpu.uuid == uuid), None)


def _gpus():
    """All GPUs that nvidia-smi lists. Raises Refused if it fails."""
    query = f"--query-gpu={','.join(QUERY_FIELDS)}"
    code, output = _output([PROGRAM, query, "--format=csv,noheader,nounits"])
    rows = [row for row in csv.reader(output.splitlines(), skipinitialspace=True) if row]
    if code or any(len(row) != len(QUERY_FIELDS) for row in rows):
        raise Refused(
            f"nvidia-smi, which comes with NVIDIA's driver, lists no GPUs here: {_plain(output)}"
        )
    return [_Gpu(row[0], row[1], row[2] == "Enabled", *map(_watts, row[3:])) for row in rows]


def _watts(text):
    """A number of nvidia-smi; None for other texts, as [N/A]."""
    with contextlib.suppress(ValueError):
        return float(text)
    return None


def _format_watts(watts):
    return "an unknown limit" if watts is None else f"{watts:g} W"


def _is_close(one_w, other_w):
    return one_w is not None and other_w is not None and abs(one_w - other_w) <= TOLERANCE_W


def _output(command):
    """(exit code, output) of a command; (127, reason) if it cannot be started or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def _plain(text):
    """A text for records: one line, without secrets."""
    return terminal.message(redaction.redact(" ".join(text.split())), 200)


MIN_COVERAGE = 0.5  # of the run that readings must cover
MIN_GAP_S = 1.0  # meters that print in bursts
MAX_LINES_PER_S = 100.0  # more would disturb the run
FREE_LINES = 1000
MAX_LINE_BYTES = 256
GRACE_S = 2.0
Point = tuple[float, float]  # seconds, watts


class Meter:
    """A running meter, or the reason why there is none. It raises no errors.

    The command is run without a shell. A meter reads one node. `source`: the domain that it
    measures, and its name.
    """

    def __init__(
        self, command: str, log: Path, nodes: int = 1, source: str = "node: power meter"
    ) -> None:
        self._log, self._source = log, source
        self._command: list[str] = []
        self._points: list[Point] = []  # one a second at most: the mean of its readings
        self._readings_in_last = 0  # readings in the last point
        self._readings = self._unreadable = self._lines = 0
        self._trouble = self._first_unreadable = ""
        self._ended = False
        self._started_utc, self._started_s = event_log.utc_now(), time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        if nodes > 1:
            self._trouble = (
                f"the run has {nodes} nodes, and the meter is read on the first one only"
            )
            return
        try:
            self._command = shlex.split(command)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=functools.partial(orphans.end_with_parent, os.getpid()),
                env=os.environ | processes.mark(log) | processes.BESIDE,
            )
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            self._trouble = f"it could not be started: {_plain(str(error))}"
            return
        self._thread = threading.Thread(target=self._read, name="power meter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Kill the command and all processes of its session."""
        if not self._process or self._ended:
            return
        if (code := self._process.poll()) is not None:
            self._thread.join(GRACE_S)  # what it printed last
            self._trouble = self._trouble or f"it ended during the run, exit code {code}"
        self._ended = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        self._thread.join(GRACE_S)

    def fields(self) -> dict[str, Any]:
        """The event `power_meter`, once the trainer has ended."""
        points = self._points[:]
        fields = {
            "scope": "node",
            "command": redaction.redact_command(self._command),
            "trouble": self._problem() or None,
        }
        span, reason = self._span(), ""
        if isinstance(span, str):
            reason = span
        elif len(points) < 2:
            reason = self._problem() or f"it printed {self._readings} numbers: two are needed"
        else:
            joules, share, seen = integral(points, *span)
            if share < MIN_COVERAGE:
                problem = f": {self._problem()}" if self._problem() else ""
                reason = f"its readings cover {100 * share:.0f} % of the run{problem}"
        if reason:
            return fields | energy.fields("node_", None, None, reason)
        watts = [power_w for _, power_w in points]
        readings = round(self._readings * seen / len(points))
        counted_j = (event_log.last_run_end(self._log) or {}).get("node_energy_j") or 0.0
        return fields | {
            "power_least_w": round(min(watts), 3),
            "power_mean_w": round(joules / (span[1] - span[0]), 3),
            "power_most_w": round(max(watts), 3),
            **energy.fields(
                "node_",
                joules,
                self._source,
                samples=readings,
                sampled_share=share,
                resolution_s=(span[1] - span[0]) / max(1, readings),
                note=energy.disagreement(counted_j, joules, "the power meter's"),
            ),
        }

    def _read(self):
        """In a thread: take each line as it arrives."""
        with contextlib.suppress(OSError, ValueError):
            while line := self._process.stdout.readline(MAX_LINE_BYTES):
                now_s = time.monotonic() - self._started_s
                self._lines += 1
                if self._lines > FREE_LINES + MAX_LINES_PER_S * now_s:
                    self._trouble = f"it printed more than {MAX_LINES_PER_S:g} lines a second"
                    os.killpg(self._process.pid, signal.SIGKILL)
                    return
                power_w = _watts_on_line(line)
                if power_w is not None:
                    self._add(now_s, power_w)
                elif line.strip():
                    self._unreadable += 1
                    if self._unreadable == 1:
                        self._first_unreadable = _plain(line.decode(errors="replace"))

    def _add(self, now_s, power_w):
        self._readings += 1
        if self._points and int(self._points[-1][0]) == int(now_s):
            self._readings_in_last += 1
            before_s, before_w = self._points[-1]
            mean_s = before_s + (now_s - before_s) / self._readings_in_last
            self._points[-1] = mean_s, before_w + (power_w - before_w) / self._readings_in_last
        else:
            self._readings_in_last = 1
            self._points.append((now_s, power_w))

    def _span(self):
        """(start, end) of the run in seconds since the meter started; a text says why unknown."""
        start: dict[str, Any] = {}
        with contextlib.suppress(Exception):  # a log that cannot be read is reported elsewhere
            events = event_log.read(self._log)
            start = next(event for event in events if event["event"] == "run_start")
        end = event_log.last_run_end(self._log) or {}
        if not start or "t_s" not in end:
            return "the run did not come to its end"
        begin_s = event_log.seconds_between(self._started_utc, start["t_utc"])
        if begin_s < 0:
            return "the run went on from a checkpoint: the meter saw a part of it"
        if end["t_s"] <= 0:
            return "the run took no time"
        return begin_s, begin_s + end["t_s"]

    def _problem(self):
        """What went wrong; "" if nothing did."""
        problems = [self._trouble] if self._trouble else []
        if self._unreadable:
            lines = "line was" if self._unreadable == 1 else "lines were"
            problems.append(
                f"{self._unreadable} {lines} no number of watts, the first: "
                f"{self._first_unreadable!r}"
            )
        return "; ".join(problems)


@contextlib.contextmanager
def reading(command: str | None, log: Path, nodes: int) -> Iterator[Any]:
    """Run a meter during the `with` block, if there is a command; see `Meter`."""
    name, *arguments = (command or "").split() or [""]
    if plugins.is_known("power_meters", name):
        meter = plugins.load("power_meters", name).open_meter(arguments, log, nodes)
    else:
        meter = Meter(command, log, nodes) if command else None
    try:
        yield meter
    finally:
        if meter:
            meter.stop()


def integral(points: Sequence[Point], begin_s: float, end_s: float) -> tuple[float, float, int]:
    """Joules from `begin_s` to `end_s`, the share of that time that points cover, and their number.

    Two points farther apart than twice the median distance do not cover the time between them; its
    energy is interpolated linearly all the same.

    `points`: seconds and watts, in the order of time; two or more.

    >>> integral([(0, 100), (2, 200), (4, 200)], 1, 4)
    (575.0, 1.0, 2)
    >>> integral([(0, 100), (1, 100), (2, 100)], 1, 5)
    (400.0, 0.25, 2)
    """
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(points)]
    longest_s = energy.LONGEST_GAP * max(MIN_GAP_S, statistics.median(gaps))
    joules = covered_s = 0.0
    for (before_s, before_w), (after_s, after_w) in itertools.pairwise(points):
        low, high = max(before_s, begin_s), min(after_s, end_s)
        if low < high:
            slope = (after_w - before_w) / (after_s - before_s)
            joules += (high - low) * (before_w + slope * ((low + high) / 2 - before_s))
            covered_s += high - low if after_s - before_s <= longest_s else 0.0
    first, last = points[0], points[-1]
    joules += first[1] * max(0.0, min(first[0], end_s) - begin_s)
    joules += last[1] * max(0.0, end_s - max(last[0], begin_s))
    seen = sum(begin_s <= at_s <= end_s for at_s, _ in points)
    return joules, covered_s / (end_s - begin_s), seen


def _watts_on_line(line):
    """The power on a line; None if the line has none."""
    try:
        power_w = float(line)
    except ValueError:
        return None
    return power_w if math.isfinite(power_w) and power_w >= 0 else None
