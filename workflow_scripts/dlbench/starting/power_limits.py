"""The power limit of a run's GPUs: set before its trainer starts, restored once that has ended.

- nvidia-smi, which comes with the driver, reads limits and sets them for root. A site may name
  another command that sets them (`site.power_limit_command`).
- If the supervisor is killed, the limit stays. One that somebody else has changed is left alone.
- Without persistence mode the driver forgets a limit whenever no program uses the GPU, also before
  the trainer does.
- Some GPUs accept a limit silently and do not enforce it. So the enforced limit is read after it
  was set, and again before it is restored.

Needs the standard library only.
"""

import contextlib
import csv
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import terminal
from dlbench.machine import gpus as gpus_module
from dlbench.machine import redaction

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

    Args:
        count: GPUs of the run on this machine, the first that CUDA shows this process.
        command: sets a limit, given `-i UUID -pl WATTS`, without a shell. None: nvidia-smi.

    Attributes:
        changed: which limit differed at the end of the run; "" if none did.
    """

    def __init__(self, limit_w: int, count: int, command: str | None = None) -> None:
        self.changed = ""
        self._limit_w, self._count, self._command = limit_w, count, command or PROGRAM
        self._reports: list[dict[str, Any]] = []
        self._trouble: list[str] = []

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Set the limit of all GPUs during the `with` block, or leave all as they are.

        Raises:
            Refused: with the requested limit, what is allowed, and who may set it.
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
    selectors = gpus_module.visible_gpus(0, count)
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
