"""networks: names that cannot be resolved, interfaces, and hosts exempt from proxies."""

import re
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import networks


def test_names_that_lead_nowhere_are_told_with_the_reason():
    found = networks.unresolved_names(["localhost", "127.0.0.1", "no-such-node.invalid", "a" * 300])
    assert sorted(found) == ["a" * 300, "no-such-node.invalid"]
    assert all(found.values())


def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(60))
    begin = time.monotonic()
    found = networks.unresolved_names(["a", "b"], 0.2)
    assert found == dict.fromkeys("ab", "no answer within 0.2 s")
    assert time.monotonic() - begin < 5


def test_this_machine_listens_at_an_address_of_its_name_if_that_has_one(monkeypatch):
    for name, addresses in (("localhost", {"127.0.0.1", "::1"}), ("none.invalid", {None})):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        assert networks.listening_address() in addresses


def test_the_interface_towards_this_machine_is_loopback():
    assert networks.interface_towards("127.0.0.1") == "lo"
    assert networks.interface_towards("no-such-node.invalid") is None


PROXY = {"HTTPS_PROXY": "http://proxy:8080"}
OF_GRPC = {"grpc_proxy": "x", "no_grpc_proxy": "y"}
BOTH = ["no_proxy", "NO_PROXY"]


@pytest.mark.parametrize(
    ("environ", "names", "text"),
    [
        ({"no_proxy": "ours"}, [], None),
        (PROXY, BOTH, "localhost,127.0.0.1,::1,n1"),
        (PROXY | {"NO_PROXY": "n1,x"}, BOTH, "n1,x,localhost,127.0.0.1,::1"),
        (OF_GRPC, [*BOTH, "no_grpc_proxy"], "y,localhost,127.0.0.1,::1,n1"),
    ],
)
def test_hosts_are_added_to_those_that_need_no_proxy(environ, names, text):
    assert networks.no_proxy_variables(["n1"], environ) == dict.fromkeys(names, text)


HERE = [name for _, name in socket.if_nameindex()]


def test_interfaces_that_are_there_are_accepted():
    for text in ("", "nosuch,l", "=lo", "^docker,nosuch"):
        networks.check_interfaces("NCCL_SOCKET_IFNAME", {"NCCL_SOCKET_IFNAME": text})
    networks.check_interfaces("GLOO_SOCKET_IFNAME", {"GLOO_SOCKET_IFNAME": "lo"})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("NCCL_SOCKET_IFNAME", "nosuch"),
        ("NCCL_SOCKET_IFNAME", "=l"),
        ("NCCL_SOCKET_IFNAME", f"^{','.join(HERE)}"),
        ("GLOO_SOCKET_IFNAME", "l"),
    ],
)
def test_a_library_that_would_find_no_interface_is_refused_with_those_there_are(variable, text):
    with pytest.raises(Error) as error:
        networks.check_interfaces(variable, {variable: text})
    message = str(error.value)
    assert message.startswith(f"{variable}={text} leaves none of the network interfaces")
    assert all(name in message for name in HERE)


# Few prefixes and numbers, so that ranges, leading zeros and gaps come up.
NUMBERS = st.integers(0, 30).map(str) | st.integers(0, 120).map(lambda n: f"{n:03d}")
NAMES = st.builds(str.__add__, st.sampled_from(["n", "gpu-", "r1n", "9x.", "n0a"]), NUMBERS)
OTHERS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,8}\Z")


@given(st.lists(NAMES | OTHERS))
def test_names_that_became_a_list_come_back_each_once(names):
    text = networks.compact_hosts(names)
    found = networks.expand_hosts(text)
    assert sorted(found) == sorted(set(names))
    assert networks.compact_hosts(reversed(found)) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["n10", "n9", "n8"], "n[8-10]"),
        (["n09", "n10", "n12"], "n[09-10,12]"),
        (["n1", "n01"], "n[1,01]"),
        (["r1n2", "r1n1", "r2n1"], "r1n[1-2],r2n1"),
        (["17", "18"], "17,18"),
        (["n1.cluster.org", "n2.cluster.org"], "n1.cluster.org,n2.cluster.org"),
        (["n", "n1", "n2"], "n,n[1-2]"),
        ([f"gpu{n:03d}" for n in range(1, 501)], "gpu[001-500]"),
    ],
)
def test_a_list_is_as_short_as_slurms(names, text):
    assert networks.compact_hosts(names) == text


@pytest.mark.parametrize("name", ["", "n[1-2]", "n1,n2", "-x", "n 1", "n1\n"])
def test_what_is_no_name_of_a_node_is_refused(name):
    with pytest.raises(Error, match=re.escape(f"as in n1, found {name!r}")):
        networks.compact_hosts(["n1", name])
