"""Names, addresses, proxies and lists of hosts: what processes need to connect to one another.

Needs the standard library only, and Linux. See getaddrinfo(3) and netdevice(7).
"""

import contextlib
import fcntl
import itertools
import math
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dlbench import Error

LOOPBACK = "127.0.0.1"
PATIENCE_S = 8.0  # for resolving a name: a resolver may retry for minutes
SIOCGIFADDR = 0x8915  # of linux/sockios.h
# Variables that name proxies, in lower or upper case, and those that exempt hosts. gRPC reads lower
# case only, and no_proxy only if no_grpc_proxy is not set.
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY", "no_grpc_proxy")


def unresolved_names(names: Iterable[str], patience_s: float = PATIENCE_S) -> dict[str, str]:
    """The names that this machine cannot resolve: {name: why}.

    All are looked up in parallel, each for at most `patience_s`.
    """
    answers = _look_up(names, patience_s)
    return {name: answer for name, answer in answers.items() if isinstance(answer, str)}


def listening_address() -> str | None:
    """The first address of this machine's host name at which it can listen, or None.

    Gloo chooses this address (gloo/transport/tcp/device.cc, lookupAddrForHostname), and aborts if
    there is none.
    """
    (answer,) = _look_up([socket.gethostname()], PATIENCE_S).values()
    for family, kind, protocol, _, address in [] if isinstance(answer, str) else answer:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as server:
            server.bind(address)
            return str(address[0])
    return None


def interface_towards(host: str) -> str | None:
    """Name of the interface by which this machine reaches a host, as in ib0; None if unknown.

    IPv4 only.
    """
    try:
        answers = socket.getaddrinfo(host, 1, socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(answers[0][4])  # a datagram socket: nothing is sent
            local_address = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # it has no such address
                    request = struct.pack("16s16x", os.fsencode(name))
                    # struct ifreq: a name, then family, port and address.
                    if fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24] == local_address:
                        return name
    except (OSError, UnicodeError):
        pass
    return None


def check_interfaces(variable: str, environ: Mapping[str, str] = os.environ) -> None:
    """Check that this machine has an interface that NCCL or Gloo is told to use.

    NCCL takes prefixes of names, after `=` whole names, and after `^` those to avoid; Gloo takes
    whole names. `variable`: NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME. Raises Error: it has none.
    """
    text = environ.get(variable, "")
    avoided, names = text.startswith("^"), text.lstrip("^=").split(",")
    is_prefix = variable.startswith("NCCL") and not text.lstrip("^").startswith("=")
    found = [name for _, name in socket.if_nameindex()]
    fitting = [
        interface
        for interface in found
        if any(interface.startswith(name) if is_prefix else interface == name for name in names)
    ]
    if text and (len(fitting) == len(found) if avoided else not fitting):
        raise Error(
            f"{variable}={text} leaves none of the network interfaces of this machine, which are "
            f"{', '.join(found)}: name one of them, or leave the variable out (in a container: is "
            "the network of the host seen there?)"
        )


def no_proxy_variables(
    hosts: Iterable[str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Environment variables that exempt this machine and some hosts from proxies.

    {} if no proxy is set.
    """
    if not any(environ.get(name) or environ.get(name.upper()) for name in PROXIES):
        return {}
    exempt = [
        name for text in NO_PROXY_VARIABLES for name in environ.get(text, "").split(",") if name
    ]
    text = ",".join(dict.fromkeys([*exempt, "localhost", LOOPBACK, "::1", *hosts]))
    return {n: text for n in NO_PROXY_VARIABLES if n != "no_grpc_proxy" or n in environ}


def _look_up(names, patience_s):
    """The answer of getaddrinfo for each name, or the reason why there is none."""
    answers: dict[str, list[Any] | str] = {}

    def look_up(name):
        try:
            answers[name] = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answers[name] = getattr(error, "strerror", None) or str(error)

    # Daemon threads, because one that waits for its resolver must not delay the program's exit.
    threads = {n: threading.Thread(target=look_up, args=(n,), daemon=True) for n in names}
    deadline = time.monotonic() + patience_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: answers.get(name, f"no answer within {patience_s:g} s") for name in threads}


MAX_HOSTS = 100_000


def expand_hosts(text: str) -> list[str]:
    """The names in Slurm's list of nodes, as `scontrol show hostnames` prints them.

    Raises Error: the list is not written as Slurm writes it, or has more than MAX_HOSTS names.

    >>> expand_hosts("gpu[01-03,7],login")
    ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    parts = [_segments(part) for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\]?)+", text)]
    count = sum(math.prod(sum(map(_length, spans)) for spans in segments) for segments in parts)
    if count > MAX_HOSTS:
        raise Error(f"{text[:100]} names {count} nodes; expected at most {MAX_HOSTS}")
    return [
        "".join(pieces)
        for segments in parts
        for pieces in itertools.product(*(map(_expanded, segments)))
    ]


def _segments(part):
    """The segments of one element of a list of nodes, which may have several brackets.

    Returns a list of lists of ranges: (text before the number, first, last, digits).
    """
    segments, rest = [], part
    while rest:
        before, bracket, rest = rest.partition("[")
        if not bracket:
            segments.append([(before, None, None, 0)])
            break
        ranges, closing, rest = rest.partition("]")
        pieces = [re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", piece) for piece in ranges.split(",")]
        spans = [
            (int(piece[1]), int(piece[2] or piece[1]), len(piece[1])) for piece in pieces if piece
        ]
        if not closing or None in pieces or any(last < first for first, last, _ in spans):
            raise Error(f"expected a list of nodes as in n[1-3,5], found {part!r}")
        segments.append([(before, *span) for span in spans])
    return segments


def _length(span):
    _, first, last, _ = span
    return 1 if first is None else last - first + 1


def _expanded(spans):
    """The texts in some ranges."""
    for before, first, last, digits in spans:
        if first is None:
            yield before
        else:
            yield from (before + str(n).zfill(digits) for n in range(first, last + 1))


def compact_hosts(names: Iterable[str]) -> str:
    """Names of nodes as a list that Slurm's --nodelist and --exclude take, each once, in order.

    Only digits at the end of a name become ranges, as not all of Slurm's programs take others.
    Raises Error: a name has other characters than names of nodes have.

    >>> compact_hosts(["gpu10", "gpu9", "gpu11", "login", "gpu9"])
    'gpu[9-11],login'
    """
    numbered: dict[str, list[str]] = {}
    for name in set(names):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise Error(f"expected the name of a node as in n1, found {name[:100]!r}")
        match = re.fullmatch(r"(.*?[^0-9])([0-9]{1,18})", name)
        prefix, digits = match.groups() if match else (name, "")
        numbered.setdefault(prefix, []).append(digits)
    return ",".join(_compacted(prefix, numbered[prefix]) for prefix in sorted(numbered))


def _compacted(prefix, numbers):
    """The names of one prefix, of which one may have no number."""
    alone, ranges = [prefix] if "" in numbers else [], []
    for digits in sorted(set(numbers) - {""}, key=lambda digits: (int(digits), len(digits))):
        # A range counts on from its first number, which says how wide all are.
        if ranges and digits == str(int(ranges[-1][1]) + 1).zfill(len(ranges[-1][0])):
            ranges[-1][1] = digits
        else:
            ranges.append([digits, digits])
    pieces = [first if first == last else f"{first}-{last}" for first, last in ranges]
    several = len(pieces) > 1 or "-" in "".join(pieces)
    text = f"[{','.join(pieces)}]" if several else "".join(pieces)
    return ",".join([*alone, *([prefix + text] if pieces else [])])
