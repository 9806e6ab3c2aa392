"""Run a program in a network namespace that has only the loopback interface.

The servers of TensorFlow, JAX, Horovod and Open MPI listen on all interfaces, without a password
and without a setting for one. In such a namespace nobody else can reach them. Gloo listens at the
address of the machine's own name, so in the namespace the host name is localhost. Linux only; needs
the standard library only. See unshare(2), user_namespaces(7), uts_namespaces(7) and netdevice(7).
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from dlbench.common import networks
from dlbench.machine import hardware

CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWNET = 0x04000000, 0x10000000, 0x40000000  # linux/sched.h
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914  # of linux/sockios.h
IFF_UP = 0x1  # of linux/if.h
REQUEST = "16sh14x"  # struct ifreq: a name and flags

PROGRAM = Path(__file__).parents[2] / "start_unreachable.py"


def enter() -> None:
    """Move this process, and all that it will start, into a new network namespace.

    User and group ids stay; without root it is done in a new user namespace. hardware.host() still
    returns the machine's name. Raises OSError: the kernel refuses it.
    """
    user, group = os.geteuid(), os.getegid()
    os.environ[hardware.HOST] = hardware.host()
    libc, new = ctypes.CDLL(None, use_errno=True), CLONE_NEWNET | CLONE_NEWUTS
    if libc.unshare(new):
        if libc.unshare(CLONE_NEWUSER | new):
            raise OSError(ctypes.get_errno(), "unshare(NEWUSER | NEWNET | NEWUTS)")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack(REQUEST, b"lo", 0))
        name, flags = struct.unpack(REQUEST, request)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack(REQUEST, name, flags | IFF_UP))
    socket.sethostname("localhost")


def possible() -> bool:
    """Whether `enter` works here and servers could listen then; tried in a child process."""
    child = os.fork()
    if not child:
        try:
            enter()
            os._exit(not networks.listening_address())
        except BaseException:  # whatever it is, the caller's code must not run in the child
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def command(program: Sequence[str]) -> list[str]:
    """The command that starts a program in a network namespace of its own."""
    return [sys.executable, os.path.relpath(PROGRAM), "--", *program]
