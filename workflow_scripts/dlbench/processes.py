"""Plain processes on this machine that are one tf.distribute cluster.

- Each gets a TF_CONFIG of its own, on free ports of the loopback interface.
- When one fails, all others are ended: those that wait for it would wait for ever.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

POLL_S = 0.05
PATIENCE_S = 5.0  # between SIGTERM and SIGKILL
LAST_S = 60.0  # for the others to end once the first process has ended well
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def run(jobs, command):
    """Start `command` once per task and wait for all.

    Args:
        jobs: number of tasks of each kind of job, as in {"chief": 1, "worker": 2}.
        command: list of strings.

    Returns:
        Exit code of the first task that failed, 0 where none did.
    """
    names = [(job, index) for job, count in jobs.items() for index in range(count)]
    addresses = dict(zip(names, _free_addresses(len(names)), strict=True))
    cluster = {job: [addresses[job, i] for i in range(count)] for job, count in jobs.items()}
    received = []
    before = {n: signal.signal(n, lambda number, _: received.append(number)) for n in FORWARDED}
    processes = {}
    try:
        for job, index in names:
            config = {"cluster": cluster, "task": {"type": job, "index": index}}
            environment = os.environ | {"TF_CONFIG": json.dumps(config)}
            processes[job, index] = subprocess.Popen(command, env=environment)
        code, message = _wait(processes, received)
    finally:
        _end(processes.values())
        for number, handler in before.items():
            signal.signal(number, handler)
    if message:
        # After what the others say of their end.
        print(message, file=sys.stderr)
    return code


def _wait(processes, received):
    """(exit code, message) once all have ended, one has failed, or the first ended long ago."""
    first_ended = None
    while True:
        while received:
            number = received.pop(0)
            for process in processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
        codes = {name: process.poll() for name, process in processes.items()}
        for (job, index), code in codes.items():
            if code:
                how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                message = f"{job} {index} failed ({how}); the others are ended"
                return (code if code > 0 else 128 - code), message
        if None not in codes.values():
            return 0, ""
        if next(iter(codes.values())) == 0:
            first_ended = first_ended or time.monotonic()
            if time.monotonic() - first_ended > LAST_S:
                left = [f"{job} {index}" for (job, index), code in codes.items() if code is None]
                return 1, f"still there {LAST_S:g} s after the first ended: {', '.join(left)}"
        time.sleep(POLL_S)


def _end(processes):
    """End those that run; none is left."""
    for number, patience_s in ((signal.SIGTERM, PATIENCE_S), (signal.SIGKILL, PATIENCE_S)):
        left = [process for process in processes if process.poll() is None]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
        deadline = time.monotonic() + patience_s
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def _free_addresses(count):
    """Addresses on the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
