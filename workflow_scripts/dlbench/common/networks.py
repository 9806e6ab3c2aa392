"""Names, addresses and proxies: what processes of one run need to find one another.

Needs the standard library only, and Linux. See getaddrinfo(3) and netdevice(7).
"""

import contextlib
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

LOOPBACK = "127.0.0.1"
PATIENCE_S = 8.0  # with a name: a resolver may try for minutes
SIOCGIFADDR = 0x8915  # of linux/sockios.h
# Variables that name proxies, in small letters or capitals, and those that keep hosts from them.
# gRPC reads small letters only, and no_proxy only without a no_grpc_proxy.
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY", "no_grpc_proxy")


def unresolved_names(names: Iterable[str], patience_s: float = PATIENCE_S) -> dict[str, str]:
    """Names and addresses that lead nowhere from this machine: {name: why}.

    All are looked up at once, and none for longer than `patience_s`.
    """
    answers = _look_up(names, patience_s)
    return {name: answer for name, answer in answers.items() if isinstance(answer, str)}


def listening_address() -> str | None:
    """The first address behind this machine's own name that one can listen at, or None.

    As Gloo looks for it (gloo/transport/tcp/device.cc, lookupAddrForHostname), which aborts if
    there is none.
    """
    (found,) = _look_up([socket.gethostname()], PATIENCE_S).values()
    for family, kind, protocol, _, address in [] if isinstance(found, str) else found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as one:
            one.bind(address)
            return str(address[0])
    return None


def interface_towards(host: str) -> str | None:
    """Name of the interface by which this machine reaches a host, as in ib0; None if unknown.

    IPv4 only.
    """
    try:
        found = socket.getaddrinfo(host, 1, socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(found[0][4])  # of datagrams: nothing is sent
            own = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # it has no such address
                    request = struct.pack("16s16x", os.fsencode(name))
                    # struct ifreq: a name, then family, port and address.
                    if fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24] == own:
                        return name
    except (OSError, UnicodeError):
        pass
    return None


def no_proxy_variables(
    hosts: Iterable[str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Variables by which this machine and some hosts are reached without a proxy.

    {} where no proxy is set.
    """
    if not any(environ.get(name) or environ.get(name.upper()) for name in PROXIES):
        return {}
    exempt = [
        name for text in NO_PROXY_VARIABLES for name in environ.get(text, "").split(",") if name
    ]
    text = ",".join(dict.fromkeys([*exempt, "localhost", LOOPBACK, "::1", *hosts]))
    return {n: text for n in NO_PROXY_VARIABLES if n != "no_grpc_proxy" or n in environ}


def _look_up(names, patience_s):
    """What getaddrinfo says of each name, or in words why it says nothing."""
    answers: dict[str, list[Any] | str] = {}

    def look_up(name):
        try:
            answers[name] = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answers[name] = getattr(error, "strerror", None) or str(error)

    # Daemons, since one that waits for its resolver must not keep the program from its end.
    threads = {n: threading.Thread(target=look_up, args=(n,), daemon=True) for n in names}
    deadline = time.monotonic() + patience_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: answers.get(name, f"no answer within {patience_s:g} s") for name in threads}
