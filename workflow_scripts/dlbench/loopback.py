"""A network of a run's own, in which there is nothing but the loopback interface.

The servers of TensorFlow, Horovod and Open MPI listen on all interfaces, without a password and
without a setting for it; in such a network namespace nobody else can reach them. Linux only; needs
the standard library only. See unshare(2), user_namespaces(7) and netdevice(7).
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # of linux/sched.h
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914  # of linux/sockios.h
IFF_UP = 0x1  # of linux/if.h
REQUEST = "16sh14x"  # struct ifreq: a name and flags

PROGRAM = Path(__file__).parents[1] / "start_unreachable.py"


def enter():
    """Give this process, and all that it will start, a network of their own.

    User and groups stay; an ordinary user does it within a user namespace.

    Raises:
        OSError: the kernel does not let us.
    """
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER | CLONE_NEWNET)")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        request = fcntl.ioctl(one, SIOCGIFFLAGS, struct.pack(REQUEST, b"lo", 0))
        name, flags = struct.unpack(REQUEST, request)
        fcntl.ioctl(one, SIOCSIFFLAGS, struct.pack(REQUEST, name, flags | IFF_UP))


def possible():
    """Whether `enter` would do it, tried by a process that ends at once."""
    child = os.fork()
    if not child:
        try:
            enter()
        except BaseException:  # whatever it is, our caller's code must not go on in here
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def command(program):
    """The command that starts another one in a network of its own."""
    return [sys.executable, os.path.relpath(PROGRAM), "--", *program]
