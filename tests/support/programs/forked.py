"""Run Python programs to their end without the seconds for importing their packages.

A process of the same Python imports the packages once (forking.py). Each program is a fork of it:
a process of its own, with its own arguments, folder, environment, output and exit code, in which
nothing but the imports is done already. What differs: its command line as others see it, and all
of them have one seed of hashes. Where one of these is what a test is about, it starts a process.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FORKING = Path(__file__).with_name("forking.py")
# What takes the programs that read tables and draw most of their time.
OF_TABLES = ("matplotlib.pyplot", "pandas", "pyarrow.parquet", "scipy.stats", "yaml", "jsonschema")
_forking = {}  # by Python, packages and environment


def run(
    command,
    packages,
    *,
    cwd=None,
    env=None,
    timeout=None,
    settings=(),
    together=False,
    cores=None,
    deep=False,
):
    """Run a Python program to its end, as subprocess.run does with text=True and its output kept.

    Args:
        command: a Python, and a program or `-m` and a module, with their arguments.
        packages: names of the modules to import before.
        settings: variables of the environment that the program sets before it imports them.
        together: errors go to the output.
        cores: numbers of those that it may use; None: as this process.
        deep: the programs of the same Python that it starts are forks, too.

    Returns:
        subprocess.CompletedProcess.
    """
    how = {"cwd": cwd, "env": env, "settings": settings, "together": together}
    process = start(command, packages, **how, cores=cores, deep=deep)
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def start(
    command, packages, *, cwd=None, env=None, settings=(), together=False, cores=None, deep=False
):
    """Start a Python program, as subprocess.Popen does with text=True and its output kept.

    Args: as those of `run`.

    Returns:
        subprocess.Popen, or what has the same args, pid, returncode, poll, wait, communicate,
        send_signal and kill.
    """
    python, *arguments = map(str, command)
    environment = dict(os.environ if env is None else env)
    cores = sorted(cores or os.sched_getaffinity(0))
    forking = _started(python, tuple(packages), environment, dict(settings))
    if not forking:
        return subprocess.Popen(
            [python, *arguments],
            cwd=cwd,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            preexec_fn=functools.partial(os.sched_setaffinity, 0, cores),
        )
    request = {"arguments": arguments, "folder": str(cwd or os.getcwd())}
    request |= {"environment": environment, "cores": cores, "deep": deep}
    return forking.start([python, *arguments], request, together)


def _lasting(environment):
    """An environment without the variable that pytest sets for each test."""
    return {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}


def _started(python, packages, environment, settings):
    """The process that has imported some packages in an environment; None at the first request.

    What is run once would gain nothing by it. None, too, while it waits for another program.
    """
    key = python, packages, tuple(sorted(_lasting(environment).items()))
    if key not in _forking:
        _forking[key] = None
    elif not (_forking[key] and _forking[key].alive()):
        _forking[key] = _Forking(python, packages, environment | settings)
        atexit.register(_forking[key].end)
    forking = _forking[key]
    return forking if forking and not forking.busy() else None


class _Forking:
    """A process that forks programs; it ends when this process closes their socket."""

    def __init__(self, python, packages, environment):
        self._program = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [python, FORKING, str(number), *packages],
                pass_fds=[number],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def alive(self):
        return self._process.poll() is None

    def end(self):
        """Wait for its end, so that its resources count as those of this process's children."""
        self._socket.close()
        self._process.wait()

    def busy(self):
        return self._program is not None and self._program.poll() is None

    def start(self, command, request, together):
        pipes = [os.pipe() for _ in range(1 if together else 2)]
        ends = [end for _, end in pipes]
        self._socket.settimeout(None)
        socket.send_fds(self._socket, [json.dumps(request).encode()], ends * (2 if together else 1))
        for end in ends:
            os.close(end)
        pid = int(self._socket.recv(99))
        self._program = _Program(command, pid, self._socket, [beginning for beginning, _ in pipes])
        return self._program


class _Program:
    """A forked program with the methods of subprocess.Popen that tests use."""

    def __init__(self, command, pid, answers, outputs):
        self.args, self.pid, self.returncode = command, pid, None
        self._answers = answers
        self._threads = ThreadPoolExecutor(len(outputs))
        self._outputs = [self._threads.submit(_read, output) for output in outputs]

    def wait(self, timeout=None):
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                status = int(self._answers.recv(99))
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(self.args, timeout) from error
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout=None):
        """(output, errors) after the end of the program and of its children."""
        self.wait(timeout)
        with self._threads:
            return (*(each.result() for each in self._outputs), None)[:2]

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _read(descriptor):
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
