"""start_unreachable: a run's own network, which nobody else reaches, where the kernel lets us."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.machine import hardware
from dlbench.starting import start_unreachable
from support.machines.node_names import NAME, as_node
from support.machines.node_names import node as node

PROGRAMS = Path(__file__).parents[3] / "workflow_scripts"
ALLOWED = pytest.mark.skipif(
    not start_unreachable.possible(), reason="this kernel lets us make no network"
)
# A process that listens on all interfaces and reaches itself there.
LISTENS = """
import json, os, socket
with socket.create_server(("0.0.0.0", {port})) as server:
    with socket.create_connection(("127.0.0.1", {port}), 5):
        names = [name for _, name in socket.if_nameindex()]
        print(json.dumps([names, os.getuid(), os.getgid(), os.getppid()]), flush=True)
    {then}
"""


def unprivileged(program):
    """The command that does the same without the right to make networks, which root has."""
    return ["setpriv", "--bounding-set=-sys_admin", "--", *start_unreachable.command(program)]


BOTH = pytest.mark.parametrize(
    "start",
    [
        start_unreachable.command,
        pytest.param(
            unprivileged,
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="nobody here has that right"),
        ),
    ],
)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listener(then, start=start_unreachable.command):
    port = free_port()
    program = start([sys.executable, "-c", LISTENS.format(port=port, then=then)])
    return port, subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@BOTH
@ALLOWED
def test_what_is_started_reaches_itself_and_has_nothing_but_loopback(start):
    _, process = listener("pass", start)
    names, *who, parent = json.loads(process.communicate()[0])
    assert process.returncode == 0
    # Tunnels that some kernels put into every new network are down, without an address.
    assert "lo" in names and not {name for _, name in socket.if_nameindex()} & set(names) - {"lo"}
    assert (*who, parent) == (os.getuid(), os.getgid(), os.getpid())


def is_reached(start):
    """Whether we reach a process that listens on all interfaces."""
    port, process = listener("input()", start)
    assert process.stdout.readline()
    with socket.socket() as client:
        client.settimeout(5)
        reached = client.connect_ex(("127.0.0.1", port)) == 0
    process.communicate("\n")
    return reached


@BOTH
@ALLOWED
def test_nobody_else_reaches_what_listens_on_a_network_of_its_own(start):
    assert is_reached(list)
    assert not is_reached(start)


def test_it_is_possible_where_the_kernel_lets_us_make_a_network_and_a_name():
    ways = [["unshare", *users, "--net", "--uts", "true"] for users in ([], ["--user"])]
    lets = [subprocess.run(way, check=False, capture_output=True).returncode == 0 for way in ways]
    assert start_unreachable.possible() == any(lets)


LIBRARY = (
    "from dlbench.common import networks; from dlbench.machine import hardware; "
    "from dlbench.starting import start_unreachable"
)


def python(program):
    """The command of a program that says something of loopback as JSON."""
    begins = f"import json, socket, sys; sys.path.insert(0, {str(PROGRAMS)!r})\n"
    return [sys.executable, "-c", f"{begins}{LIBRARY}\n{program}"]


def said(command):
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


# A user who may make no namespaces, not even one of users.
REFUSED = [
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-sys_admin "$@"', "-",
]  # fmt: skip


@pytest.mark.skipif(
    subprocess.run([*REFUSED, "true"], check=False, capture_output=True).returncode != 0,
    reason="this kernel gives us no right that we could take away",
)
def test_where_the_kernel_refuses_it_is_known_and_nothing_else_happens():
    arguments = (
        "print(json.dumps([start_unreachable.possible(), hardware.host(), socket.gethostname()]))"
    )
    name = socket.gethostname()
    assert said([*REFUSED, *python(arguments)]) == [False, name, name]


# The machine's own name: servers that listen at what is behind it need an address of their own.

NAMES = "print(json.dumps([socket.gethostname(), hardware.host(), networks.listening_address()]))"


@BOTH
@ALLOWED
def test_in_there_the_name_is_loopbacks_and_the_real_one_is_known(start, node):
    name, real, address = said(node(start(python(NAMES))))
    assert (name, real) == ("localhost", NAME)
    assert address in ("127.0.0.1", "::1")
    assert said(node(python("print(json.dumps(start_unreachable.possible()))")))


def test_a_name_that_leads_to_no_address_of_this_machine_is_noticed(node, tmp_path):
    assert said(node(python(NAMES))) == [NAME, NAME, None]
    here = as_node(f"127.0.0.1 {NAME}\n", tmp_path)
    assert said(here(python(NAMES))) == [NAME, NAME, "127.0.0.1"]


@ALLOWED
def test_our_own_name_stays_as_it_is():
    before = socket.gethostname()
    assert start_unreachable.possible()
    assert (socket.gethostname(), hardware.host()) == (before, before)
    assert hardware.HOST not in os.environ


@BOTH
@ALLOWED
@pytest.mark.parametrize(("code", "status"), [("exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)])
def test_exit_codes_and_signals_come_through(start, code, status):
    ended = subprocess.run(start([sys.executable, "-c", f"import os; {code}"]), check=False)
    assert ended.returncode == status


@BOTH
@ALLOWED
def test_it_ends_with_what_started_it(start):
    program = start([sys.executable, "-uc", "import time; print('there'); time.sleep(60)"])
    starts = (
        "import os, subprocess, sys; from dlbench.common import orphans; parent = os.getpid()\n"
        "subprocess.run(sys.argv[1:], preexec_fn=lambda: orphans.end_with_parent(parent))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starts, *program],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(PROGRAMS)},
    )
    assert parent.stdout.readline() == b"there\n"
    parent.kill()
    # Until nobody has the pipe any more.
    assert parent.communicate(timeout=20) == (b"", None)


def test_a_command_that_is_missing_is_said_so():
    program = [sys.executable, PROGRAMS / "start_unreachable.py"]
    ended = subprocess.run([*program, "--"], capture_output=True, text=True)
    assert ended.returncode == 2 and "expected a command after --" in ended.stderr
    ended = subprocess.run([*program, "--", "no-such"], capture_output=True, text=True)
    assert ended.returncode == 1 and "no-such" in ended.stderr
