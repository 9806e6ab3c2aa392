"""Plain processes on this machine: one tf.distribute cluster, or copies of one run.

- Each process of a cluster gets its TF_CONFIG, with free ports of the loopback interface.
- In the pods of an indexed Job of Kubernetes each pod starts its part of a cluster. The manifest
  sets DLBENCH_POD_HOSTS, the names of all pods, and DLBENCH_POD_PORT, the first of their ports; the
  pods tell one another how they ended by files in DLBENCH_POD_FOLDER, on a volume that they share.
- Each copy gets its number as DLBENCH_COPY, and cores and GPUs that no other copy has.
- When one fails, all others are ended: they would wait for it for ever.
"""

import contextlib
import functools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common.files import atomic_write
from dlbench.machine import gpus
from dlbench.starting import processes

LOOPBACK = "127.0.0.1"
POLL_S = 0.05
TERM_TIMEOUT_S = 5.0  # between SIGTERM and SIGKILL
EXIT_TIMEOUT_S = 60.0  # for the others to end once the first process has completed
PODS_S = 60.0  # for other pods to end, and to see files of one another on their volume
FORWARDED = tuple(getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "USR1", "USR2"))


def run(jobs: dict[str, int], command: list[str]) -> int:
    """Start `command` once per task and wait for all.

    `jobs`: number of tasks of each kind of job, as in {"chief": 1, "worker": 2}.

    Returns the exit code of the first task that failed, 0 if none did.
    """
    hosts = os.environ.get("DLBENCH_POD_HOSTS", LOOPBACK).split(",")
    pod = int(os.environ["JOB_COMPLETION_INDEX"]) if "DLBENCH_POD_HOSTS" in os.environ else 0
    tasks = layout(jobs, len(hosts))
    places = [(host, name) for host, names in zip(hosts, tasks, strict=True) for name in names]
    first = int(os.environ.get("DLBENCH_POD_PORT", 0))
    count = len(places)
    ports = range(first, first + count) if first else free_ports(count, LOOPBACK)
    addresses = {name: f"{host}:{port}" for (host, name), port in zip(places, ports, strict=True)}
    cluster = {job: [addresses[job, i] for i in range(count)] for job, count in jobs.items()}
    configs = {
        (job, index): json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        for job, index in tasks[pod]
    }
    popen_options = {
        name: {"env": os.environ | {"TF_CONFIG": config}} for name, config in configs.items()
    }
    if len(hosts) == 1:
        return supervise(popen_options, command, EXIT_TIMEOUT_S)
    return _among_pods(popen_options, command, pod, len(hosts))


def layout(jobs: dict[str, int], nodes: int) -> list[list[tuple[str, int]]]:
    """The tasks of each node as (job, index): equally many workers in each, the others in turn.

    >>> layout({"chief": 1, "worker": 2, "ps": 1}, nodes=2)
    [[('chief', 0), ('worker', 0)], [('ps', 0), ('worker', 1)]]
    """
    each = jobs.get("worker", 0) // nodes
    others = [(job, i) for job, count in jobs.items() if job != "worker" for i in range(count)]
    return [
        others[node::nodes] + [("worker", node * each + i) for i in range(each)]
        for node in range(nodes)
    ]


def _among_pods(popen_options, command, pod, pods):
    """`supervise` the processes of one pod of several, which end if those of another fail.

    Pod 0 writes the record, so it ends last: it waits for the others, and these, if they failed,
    give it time, since the Job ends all pods once one has failed.
    """
    folder = Path(os.environ["DLBENCH_POD_FOLDER"])
    others = [folder / f"exit-{index}" for index in range(pods) if index != pod]

    def codes():
        return {path.name: int(path.read_text()) for path in others if path.exists()}

    def failed():
        found = ((name, code) for name, code in codes().items() if code)
        return next(((code, f"{name} of another pod is {code}") for name, code in found), None)

    code = supervise(popen_options, command, EXIT_TIMEOUT_S, failed)
    with atomic_write(folder / f"exit-{pod}") as part:
        part.write_text(str(code))
    deadline = time.monotonic() + PODS_S
    if pod:
        time.sleep(PODS_S if code else 0)
        return code
    while not code and len(codes()) < len(others):
        if time.monotonic() > deadline:
            print(f"other pods have not ended {PODS_S:g} s after this one", file=sys.stderr)
            return 1
        time.sleep(POLL_S)
    return code or max(codes().values())


def run_copies(count: int, command: list[str], cores_each: int = 0, gpus_each: int = 0) -> int:
    """Start `command` once for each copy and wait for all.

    Args:
        cores_each: cores of each copy, of those that this process may use; 0: all.
        gpus_each: GPUs that each copy sees, of those in this process's CUDA_VISIBLE_DEVICES, or of
            all in order if it is unset; 0: those that this process sees.

    Returns the exit code of the first copy that failed, 0 if none did.

    Raises Error: there are too few cores or GPUs.
    """
    popen_options: dict[tuple[str, int], dict[str, Any]] = {
        ("copy", index): {"env": os.environ | {"DLBENCH_COPY": str(index)}}
        for index in range(count)
    }
    if cores_each:
        cores = _shares(sorted(os.sched_getaffinity(0)), count, cores_each, "core")
        for options, share in zip(popen_options.values(), cores, strict=True):
            options["preexec_fn"] = functools.partial(os.sched_setaffinity, 0, share)
    if gpus_each:
        visible = [str(name) for name in gpus.visible_gpus(0, count * gpus_each)]
        shares = _shares(visible, count, gpus_each, "GPU")
        for options, share in zip(popen_options.values(), shares, strict=True):
            options["env"]["CUDA_VISIBLE_DEVICES"] = ",".join(share)
            if len({name for each in shares for name in each}) < count * gpus_each:
                # Copies share GPUs, and JAX would preallocate 3/4 of a GPU for the first copy.
                options["env"].setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # No timeout for the last copies: how much later they end is what is measured.
    return supervise(popen_options, command, math.inf)


def supervise(
    popen_options: dict[tuple[str, int], dict[str, Any]],
    command: list[str],
    last_s: float,
    failed_elsewhere: Callable[[], tuple[int, str] | None] = lambda: None,
) -> int:
    """Start `command` once per name in `popen_options` and wait for all.

    Args:
        popen_options: {(job, index): options of subprocess.Popen}.
        last_s: seconds for the others to end once the first has completed.
        failed_elsewhere: returns (exit code, message) if processes elsewhere, which these need,
            have failed; else None.

    Returns the exit code of the first that failed, 0 if none did.
    """
    received: list[int] = []
    before = {n: signal.signal(n, lambda number, _: received.append(number)) for n in FORWARDED}
    tasks: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    try:
        for name, options in popen_options.items():
            tasks[name] = subprocess.Popen(command, **options)
        code, message = _wait(tasks, received, last_s, failed_elsewhere)
    finally:
        _end(tasks.values())
        for number, handler in before.items():
            signal.signal(number, handler)
    if message:
        # After the messages of the processes that were ended.
        print(message, file=sys.stderr)
    return code


def _wait(tasks, received, last_s, failed_elsewhere):
    """Wait until all have ended, one has failed here or elsewhere, or the first ended long ago.

    Returns (exit code, message).
    """
    first_ended, parent = None, os.getppid()
    while True:
        if os.getppid() != parent:
            return 128 + signal.SIGTERM, "what started these processes is gone; they are ended"
        while received:
            number = received.pop(0)
            for process in tasks.values():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
        codes = {name: process.poll() for name, process in tasks.items()}
        for (job, index), code in codes.items():
            if code:
                reason = processes.describe_exit(code)
                message = f"{job} {index} failed ({reason}); the others are ended"
                return (code if code > 0 else 128 - code), message
        if None not in codes.values():
            return 0, ""
        if failed := failed_elsewhere():
            return failed
        if next(iter(codes.values())) == 0:
            first_ended = first_ended or time.monotonic()
            if time.monotonic() - first_ended > last_s:
                left = [f"{job} {index}" for (job, index), code in codes.items() if code is None]
                return 1, f"still there {last_s:g} s after the first ended: {', '.join(left)}"
        time.sleep(POLL_S)


def _end(tasks):
    """End all processes that still run, by SIGTERM, then SIGKILL."""
    for number, patience_s in ((signal.SIGTERM, TERM_TIMEOUT_S), (signal.SIGKILL, TERM_TIMEOUT_S)):
        left = [process for process in tasks if process.poll() is None]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
        deadline = time.monotonic() + patience_s
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def free_ports(count: int, host: str = "") -> list[int]:
    """Ports of a host's interface (by default of all) on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind((host, 0))
        return [free.getsockname()[1] for free in sockets]


def _shares(all_, count, each, noun):
    """Equal parts of a list, in its order.

    >>> _shares([0, 1, 2, 5, 6], count=2, each=2, noun="core")
    [[0, 1], [2, 5]]
    """
    if count * each > len(all_):
        raise Error(
            f"{count} copies of {each} {noun}{'s' if each > 1 else ''} each need {count * each}; "
            f"found {len(all_)}"
        )
    return [all_[index * each : (index + 1) * each] for index in range(count)]
