"""The power limit of a run's GPUs: set before its trainer starts, restored once that has ended.

- nvidia-smi, which comes with the driver, reads limits and sets them for root. A site may name
  another command that sets them (`site.power_limit_command`).
- The limit that a GPU had is written into a note before it is changed. If the supervisor is killed,
  the next start on that machine restores it before it trains. A limit that somebody else has
  changed in between is left alone.
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
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import files, terminal
from dlbench.machine import gpu_readings, redaction
from dlbench.starting import leftovers

PROGRAM = "nvidia-smi"
FOLDER = Path("results/power_limits")  # a note for each GPU whose limit was changed
QUERY_FIELDS = (
    *("index", "uuid", "persistence_mode", "power.limit", "enforced.power.limit"),
    *("power.min_limit", "power.max_limit"),
)
# What engines leave in their containers: Docker, podman, Apptainer and Singularity; the variable is
# set by podman and systemd.
CONTAINER_PATHS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
CONTAINER_VARIABLES = ("container",)
TIMEOUT_S = 60.0  # without persistence mode the driver starts each GPU anew
TOLERANCE_W = 1.0  # nvidia-smi prints hundredths of a watt, and drivers may round a requested limit


class Refused(Error):
    """The limit cannot be set here; another attempt would fail too."""


class Limits:
    """A context manager that sets the power limit of some GPUs.

    Args:
        limit_w: of each GPU, in watts.
        count: GPUs of the run on this machine, the first that CUDA shows this process.
        log: of the run.
        command: sets a limit, given `-i UUID -pl WATTS`, without a shell. None: nvidia-smi.

    Attributes:
        changed: which limit differed at the end of the run; "" if none did.
    """

    def __init__(self, limit_w: int, count: int, log: Path, command: str | None = None) -> None:
        self.changed = ""
        self._limit_w, self._count, self._log = limit_w, count, log
        self._command = command or PROGRAM
        self._reports: list[dict[str, Any]] = []
        self._trouble: list[str] = []

    def __enter__(self) -> "Limits":
        """Set the limit of all GPUs, or leave all as they are.

        Raises:
            Refused: with the requested limit, what is allowed, and who may set it.
            Error: another run has set the limit of one of them.
        """
        try:
            gpus = _select_gpus(self._count)
            for gpu in gpus:
                self._check(gpu)
            for gpu in gpus:
                self._set(gpu)
        except BaseException as error:
            self._restore()
            if isinstance(error, Refused):
                raise Refused(f"power_limit_w {self._limit_w}: {error}") from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

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
        note = files.read_json(_note(gpu.uuid)) or {}
        if leftovers.is_supervisor_running(str(note.get("supervisor"))):
            raise Error(
                f"power_limit_w {self._limit_w}: another run has set the limit of {gpu.uuid} "
                f"({_note(gpu.uuid)}): runs that are timed do not share a GPU"
            )

    def _set(self, gpu):
        supervisor = leftovers.mark(self._log).get(leftovers.VARIABLE, "")
        note = {"uuid": gpu.uuid, "found_w": gpu.limit_w, "set_w": self._limit_w}
        note |= {"command": self._command, "supervisor": supervisor}
        files.write_json(_note(gpu.uuid), note)
        report = {"uuid": gpu.uuid, "found_w": gpu.limit_w, "enforced_w": gpu.enforced_w}
        self._reports.append(report)
        code, output = _request_limit(self._command, gpu.uuid, self._limit_w)
        now = _by_uuid(gpu.uuid)
        if not now or not _is_close(now.enforced_w, self._limit_w):
            raise Refused(
                f"{gpu.uuid} takes from {gpu.least_w:g} to {gpu.most_w:g} W and enforces "
                f"{_format_watts(now and now.enforced_w)} now; {self._command} said: {output}"
                f"{_missing_rights() if code else ''}"
            )
        report["enforced_w"] = now.enforced_w

    def _restore(self):
        """Restore the limit of each GPU. Failures are printed and recorded, and fail no run."""
        for report in self._reports[::-1]:
            uuid = report["uuid"]
            report["restored"] = False
            try:
                now = _by_uuid(uuid)
                report["enforced_last_w"] = now and now.enforced_w
                if not _is_close(report["enforced_last_w"], report["enforced_w"]):
                    self.changed = (
                        f"the power limit of {uuid} was {_format_watts(report['enforced_w'])} at "
                        f"the start and {_format_watts(report['enforced_last_w'])} at the end"
                    )
                report["restored"] = _restored(files.read_json(_note(uuid)) or {}, now)
            except (Error, OSError) as error:
                self._trouble.append(str(error))
                print(error, file=sys.stderr, flush=True)


def restore_leftover_limits() -> None:
    """Restore the limits of this machine's GPUs that killed attempts left.

    Raises:
        Error: one cannot be restored, so that times would be wrong.
    """
    for path in sorted(FOLDER.glob("*.json")):
        note = files.read_json(path) or {}
        if not leftovers.is_supervisor_gone(str(note.get("supervisor"))):
            continue  # of another machine, or at work
        try:
            restored = _restored(note, _by_uuid(note.get("uuid")))
        except Refused as error:
            message = f"a killed attempt may have left a power limit, see {path}: {error}"
            raise Error(message) from None
        if restored:
            print(
                f"{note['uuid']}: the power limit that a killed attempt left is restored, "
                f"{note['found_w']:g} W",
                file=sys.stderr,
            )


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
    selectors = gpu_readings.visible_gpus(0, count)
    if len(selectors) < count:
        raise Refused(f"the run has {count} GPUs, and CUDA_VISIBLE_DEVICES names {len(selectors)}")
    all_gpus, chosen = _gpus(), []
    for selector in selectors:
        if str(selector).startswith("MIG-"):
            raise Refused(f"{selector} is a part of a GPU, and a limit is that of the whole GPU")
        # CUDA takes the beginning of a UUID, too.
        fitting = [
            gpu
            for gpu in all_gpus
            if gpu.number == str(selector) or gpu.uuid.startswith(f"{selector}")
        ]
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


def _request_limit(command, uuid, limit_w):
    """Run the command that sets a limit. Returns (its exit code, a text with its output)."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise Refused(f"site.power_limit_command {command!r}: {error}") from error
    code, output = _output([*arguments, "-i", uuid, "-pl", f"{limit_w:g}"])
    return code, f"{_plain(output) or 'nothing'} (exit code {code})"


def _missing_rights():
    """Who may set a limit, what this process is, and what to do."""
    found, remedy = f"this process is of user {os.geteuid()}", "name such a command"
    if mark := _container():
        found += f" in a container ({mark}), whose root lacks the rights of the host's"
        remedy = "start the workflow on the host"
    return (
        ". Only root may set it, and whom the site lets by site.power_limit_command "
        f"(docs/training.md); {found}: {remedy}, or leave power_limit_w out and have the site set "
        "the limit before the job, as by nvidia-smi -pl in the scheduler's prolog"
    )


def _container(environ: Mapping[str, str] = os.environ) -> str | None:
    """What shows that this process is in a container; None if nothing does."""
    variables = [f"{n}={environ[n]}" for n in CONTAINER_VARIABLES if environ.get(n)]
    return next(iter([*filter(os.path.exists, CONTAINER_PATHS), *variables]), None)


def _restored(note, gpu):
    """Restore a limit, if it is still the one that we set. Returns whether it is as before the run.

    Args:
        note: of a GPU; {} if it is gone.
        gpu: its current _Gpu; None if it is gone.

    Raises:
        Error: it cannot be restored; the note stays.
    """
    uuid, found_w, set_w = (note.get(name) for name in ("uuid", "found_w", "set_w"))
    if gpu and _is_close(gpu.limit_w, set_w) and gpu.limit_w != found_w:
        _, output = _request_limit(note["command"], uuid, found_w)
        gpu = _by_uuid(uuid)
        if gpu and not _is_close(gpu.limit_w, found_w):
            raise Error(
                f"the power limit of {uuid} is {_format_watts(gpu.limit_w)}, set for a run, and "
                f"cannot be restored: {note['command']} said: {output}. Have root run nvidia-smi "
                f"-i {uuid} -pl {found_w:g}, then remove {_note(uuid)}"
            )
    if uuid:
        _note(uuid).unlink(missing_ok=True)
    return bool(gpu and _is_close(gpu.limit_w, found_w))


def _note(uuid):
    return FOLDER / f"{uuid}.json"


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
