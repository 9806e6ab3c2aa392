"""Fork programs from this process, which has imported their packages: see forked.py.

python forking.py SOCKET MODULE...: each message on the socket has a program's arguments, folder,
environment and cores, and whether what it starts by this Python is forked, too, with the ends of
the pipes for its output and its errors. The answers are its process id and, once it has ended, its
status as os.waitpid gives it.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback

MAX_BYTES = 1 << 20


def main(number, *modules):
    connection = socket.socket(fileno=int(number))
    connection.set_inheritable(False)
    # What is imported is not looked through for garbage, now or by each fork, whose pages it would
    # become.
    gc.disable()
    for name in modules:
        with contextlib.suppress(ImportError):  # the program will say what is missing
            importlib.import_module(name)
    gc.freeze()
    gc.enable()
    while True:
        message, ends, *_ = socket.recv_fds(connection, MAX_BYTES, 2)
        if not message:
            return
        pid = os.fork()
        if not pid:
            connection.close()
            become(ends=ends, **json.loads(message))
            return
        for end in ends:
            os.close(end)
        connection.send(b"%d" % pid)
        connection.send(b"%d" % os.waitpid(pid, 0)[1])


def become(arguments, folder, environment, cores, deep, ends):
    for number, end in enumerate(ends, 1):
        os.dup2(end, number)
    for end in ends:
        os.close(end)
    os.sched_setaffinity(0, cores)
    os.chdir(folder)
    if deep:
        subprocess.Popen = Forked
    do(arguments, environment)


def do(arguments, environment):
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.realpath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


class Forked(subprocess.Popen):
    """A subprocess.Popen that forks if the command is a program of this Python."""

    def __init__(self, command, *, env=None, preexec_fn=None, **options):
        self._program = None
        plain = not options and isinstance(command, list)
        if plain and command[0] == sys.executable and str(command[1]).endswith(".py"):
            self._program = [os.fspath(word) for word in command[1:]]
        super().__init__(command, env=env, preexec_fn=preexec_fn, **options)

    def _execute_child(self, args, executable, first, close_fds, pass_fds, cwd, env, *others):
        if not self._program:
            given = args, executable, first, close_fds, pass_fds, cwd, env
            super()._execute_child(*given, *others)
            return
        self.pid = os.fork()
        self._child_created = True
        if not self.pid:
            end_as(self._program, dict(os.environ if env is None else env), first)


def end_as(arguments, environment, first=None):
    """Run a program in a fork of another program, and exit as Python does."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        if first:
            first()
        do(arguments, environment)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    ctypes.pythonapi.Py_Exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
