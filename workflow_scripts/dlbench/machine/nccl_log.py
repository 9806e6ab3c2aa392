"""What NCCL uses in a run, read from the file that NCCL writes for each process.

With NCCL_DEBUG=INFO it prints its version, its network, how each channel reaches its peer, and
whether NVLink SHARP (NVLS) is available, once when a communicator is made. Which algorithm and
protocol a collective takes it prints for each call, within the steps: that is read if the user asks
for it (NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,TUNING), and not asked for otherwise. Over Slingshot
and EFA the plugin aws-ofi-nccl prints the provider of libfabric.

Source: NCCL's user guide, "Environment Variables"; the messages are those of NCCL 2.4 to 2.31, of
RCCL, which writes the same lines, and of aws-ofi-nccl 1.4 to 1.21 as in the logs of
https://github.com/NVIDIA/nccl/issues/527, its issue 1597 and https://github.com/aws/aws-ofi-nccl.
"""

import collections
import os
import re
import socket
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any

LEVEL, FILE = "NCCL_DEBUG", "NCCL_DEBUG_FILE"
NAME = "nccl.%h.%p.txt"  # NCCL puts the name of the host and the id of the process there
MAX_BYTES = 16 << 20  # that are read; what is asked for is below 1 MB for each process
_VERSION = re.compile(r"\b[NR]CCL version (\d[\w.+\-]*)")
_NETWORK = re.compile(r"[NR]CCL INFO Using network (.+)")
_CHANNEL = re.compile(
    r"[NR]CCL INFO Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[\w+\])? via "
    r"(.+?)(?: comm 0x\w+.*)?$"
)
_PLUGIN = re.compile(r"NET/OFI (?:Using|Initializing) (aws-ofi-[nr]ccl \S+)")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is \1(?!\S)|, (fabric is \S+))?"
    r"(?: \(found (\d+ nics?)\))?"
)
_NVLS = re.compile(r"[NR]CCL INFO NVLS multicast support is (not )?available")
_CALL = re.compile(r"[NR]CCL INFO (?:(\w+): )?\d+ Bytes -> Algo (\w+) proto (\w+)")
# Older versions print numbers instead of these names.
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
# Of a transport: numbers of devices, and details of one connection.
_DETAIL = re.compile(r"\d+(?:\(\d+\))?|flush=.*|\(.*\)")


def enable(folder: Path, environ: MutableMapping[str, str] = os.environ) -> None:
    """Have NCCL write what it uses into a folder, unless the user has asked for something else.

    It must be called before the first communicator is made.
    """
    if LEVEL not in environ and FILE not in environ:
        environ.update({LEVEL: "INFO", FILE: str(folder / NAME)})


def clear(folder: Path) -> None:
    """Remove the files of earlier attempts from the folder of a run."""
    for path in folder.glob("nccl.*.txt"):
        path.unlink(missing_ok=True)


def of_process() -> dict[str, Any] | None:
    """What NCCL has written for this process, as by `parse`; None if there is nothing."""
    pattern = os.environ.get(FILE)
    if not pattern:
        return None
    host = socket.gethostname().partition(".")[0]
    path = Path(pattern.replace("%h", host).replace("%p", str(os.getpid())))
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return None  # NCCL was not used, or could not write there
    return parse(text.splitlines())


def parse(lines: Iterable[str]) -> dict[str, Any] | None:
    """What some lines of NCCL say; None if they say nothing.

    Returns:
        version, network: as NCCL writes them, with what the plugin of the network says;
        transports: {how a channel reaches its peer: number of its ends}; nvls: whether NVLink SHARP
        is available; algorithms: {collective, algorithm and protocol: number of calls}. None for
        what no line says.

    >>> parse([
    ...     "n1:7:9 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
    ...     "n1:7:9 [0] NCCL INFO Using network IB",
    ...     "n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/3/GDRDMA",
    ... ])["transports"]
    {'NET/IB/GDRDMA': 1}
    """
    version = network = nvls = plugin = provider = None
    transports, algorithms = collections.Counter[str](), collections.Counter[str]()
    for line in lines:
        if found := _CALL.search(line):
            algorithm, protocol = _name(found[2], ALGORITHMS), _name(found[3], PROTOCOLS)
            algorithms[f"{found[1] or 'any'} {algorithm}/{protocol}"] += 1
        elif found := _CHANNEL.search(line):
            parts = found[1].strip().split("/")
            transports["/".join(part for part in parts if not _DETAIL.fullmatch(part))] += 1
        elif found := _VERSION.search(line):
            version = found[1]
        elif found := _NETWORK.search(line):
            network = found[1].strip()
        elif found := _PLUGIN.search(line):
            plugin = found[1]
        elif found := _PROVIDER.search(line):
            provider = found.groups()
        elif found := _NVLS.search(line):
            nvls = not found[1] and nvls is not False
    if version is None and network is None and nvls is None and not (transports or algorithms):
        return None
    if network and provider and re.search("Libfabric|OFI", network):  # else it was not taken
        network += f" ({'; '.join(filter(None, (*provider, plugin)))})"
    return {
        "version": version,
        "network": network,
        "transports": dict(sorted(transports.items())),
        "nvls": nvls,
        "algorithms": dict(algorithms.most_common()),
    }


def _name(text, names):
    """The name of an algorithm or a protocol that is printed by name or by number."""
    number = int(text) if text.isdecimal() else len(names)
    return names[number] if number < len(names) else text.upper()


def columns(processes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Columns of a run, from what `parse` returned for its processes.

    gpudirect_rdma is true if all ends of channels between nodes use it, but for those over sockets,
    false if one does not, None if there are none.
    """
    found = list(processes)
    transports, algorithms = collections.Counter[str](), collections.Counter[str]()
    for one in found:
        transports.update(one.get("transports") or {})
        algorithms.update(one.get("algorithms") or {})
    rdma = [name for name in transports if re.match("NET/(?!Socket)", name)]
    kinds = [f"{name} {count}" for name, count in sorted(transports.items())]
    if nvls := [one["nvls"] for one in found if one.get("nvls") is not None]:
        kinds.append("NVLink SHARP" if all(nvls) else "no NVLink SHARP")
    return {
        "nccl_version": _distinct(found, "version"),
        "nccl_network": _distinct(found, "network"),
        "nccl_transports": ", ".join(kinds) or None,
        "nccl_algorithms": ", ".join(f"{name} {n}" for name, n in algorithms.most_common()) or None,
        "gpudirect_rdma": all("GDRDMA" in name for name in rdma) if rdma else None,
    }


def _distinct(found, name):
    """The values of a field, joined where processes differ."""
    return ", ".join(sorted({one[name] for one in found if one.get(name)})) or None
