"""cluster: the processes of a run and the rank of this one, by TF_CONFIG or Slurm's variables."""

import itertools
import json
import os
import socket
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import networks
from dlbench.trainer import cluster
from dlbench.trainer.cluster import Cluster, check_names

SPEC = SimpleNamespace(strategy="multiworker", nodes=1)
TWO = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}


# Slurm's short forms.


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ["a", "b"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1,3,5-6]", ["n1", "n3", "n5", "n6"]),
        ("n[1-2,010-011]", ["n1", "n2", "n010", "n011"]),
        ("jwb[0001,0010-0012],jwc5", ["jwb0001", "jwb0010", "jwb0011", "jwb0012", "jwc5"]),
        ("r[1,3]c[0-1]s[7]", ["r1c0s7", "r1c1s7", "r3c0s7", "r3c1s7"]),
        ("a[1-2]-x,b,c[3]", ["a1-x", "a2-x", "b", "c3"]),
        ("gpu-a100-[07-08].cluster", ["gpu-a100-07.cluster", "gpu-a100-08.cluster"]),
        ("n[5]", ["n5"]),
    ],
)
def test_a_list_of_nodes_is_expanded_as_scontrol_does(text, names):
    assert networks.expand_hosts(text) == names


@pytest.mark.parametrize("text", ["n[a-b]", "n[1-b]", "n[]", "n[1,,2]", "n[-3]"])
def test_a_list_of_nodes_that_is_none_is_named(text):
    with pytest.raises(Error) as error:
        networks.expand_hosts(text)
    assert str(error.value) == f"expected a list of nodes as in n[1-3,5], found {text!r}"


@given(st.lists(st.tuples(st.integers(1, 128), st.integers(1, 9)), min_size=1, max_size=5))
def test_tasks_on_each_node_come_back(groups):
    text = ",".join(f"{tasks}(x{nodes})" if nodes > 1 else str(tasks) for tasks, nodes in groups)
    assert cluster.expand_tasks(text) == [tasks for tasks, nodes in groups for _ in range(nodes)]


@pytest.mark.parametrize("text", ["", "4(x2", "4x2", "a", "4(x2),"])
def test_tasks_in_another_form_are_named(text):
    with pytest.raises(Error) as error:
        cluster.expand_tasks(text)
    assert str(error.value) == f"expected tasks per node as in 4(x2),1, found {text!r}"


# TF_CONFIG.


def found(config, wanted=None):
    environ = {"TF_CONFIG": config if isinstance(config, str) else json.dumps(config)}
    return cluster.find(SPEC, wanted or {"worker": 2}, environ)


def test_tf_config_says_who_takes_part_and_who_this_is_also_within_slurm():
    expected = Cluster({"worker": ["a:1", "b:2"]}, "worker", 1)
    assert found(TWO) == expected
    environ = {"TF_CONFIG": json.dumps(TWO), "SLURM_PROCID": "0"}
    assert cluster.find(SPEC, {"worker": 2}, environ) == expected


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[]",
        {"cluster": TWO["cluster"]},
        TWO | {"cluster": ["a:1"]},
        TWO | {"cluster": {"worker": 2}},
        TWO | {"task": {"type": "worker", "index": 2}},
        TWO | {"task": {"type": "worker", "index": "x"}},
        TWO | {"task": {"type": "chief", "index": 0}},
        TWO | {"task": {"type": "worker"}},
        TWO | {"task": None},
    ],
)
def test_a_tf_config_that_is_none_is_shown_with_what_was_expected(config):
    with pytest.raises(Error) as error:
        found(config)
    text = config if isinstance(config, str) else json.dumps(config)
    assert str(error.value).startswith('TF_CONFIG: expected {"cluster": {"worker": ["host:port"')
    assert f"found {text!r}" in str(error.value)


def test_other_processes_than_the_run_needs_are_counted_in_the_message():
    for wanted, needs in (
        ({"chief": 1, "worker": 2, "ps": 1}, "1 chief, 2 worker, 1 ps"),
        ({"worker": 1}, "1 worker"),
    ):
        with pytest.raises(Error) as error:
            found(TWO, wanted)
        assert str(error.value) == f"the run needs the processes {needs}, found 2 worker"


def test_without_any_variable_the_launchers_are_named():
    with pytest.raises(Error) as error:
        cluster.find(SPEC, {"worker": 2}, {})
    assert str(error.value) == (
        "strategy multiworker needs to know its other processes, but neither TF_CONFIG nor "
        "Slurm's variables are set: start it with --launcher local or srun"
    )


def test_the_local_rank_counts_tasks_of_this_kind_on_this_host_only():
    addresses = {"chief": ["a:0"], "worker": ["a:1", "b:1", "a:2", "b:2", "b:3"], "ps": ["b:0"]}
    local = [Cluster(addresses, "worker", task).local_rank for task in range(5)]
    assert local == [0, 0, 1, 1, 2]
    assert Cluster(addresses, "ps", 0).local_rank == 0


# Slurm.


@pytest.fixture(scope="module", autouse=True)
def known_names():
    """All names of nodes are known here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "check_names", lambda names: None)
        yield


def task(node, local, hosts="gpu[01-02]", tasks="3(x2)", **variables):
    return {
        "SLURM_PROCID": "0", "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local),
        "SLURM_STEP_NODELIST": hosts, "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
    } | variables  # fmt: skip


def everyone(wanted, nodes, tasks, **variables):
    """What each task of a step finds out."""
    counts = cluster.expand_tasks(tasks)
    hosts = f"gpu[01-{len(counts):02}]"
    fields = SimpleNamespace(strategy="parameter_server", nodes=nodes)
    return {
        (node, local): cluster.find(fields, wanted, task(node, local, hosts, tasks, **variables))
        for node, count in enumerate(counts)
        for local in range(count)
    }


@pytest.mark.parametrize(
    ("wanted", "nodes", "tasks"),
    [
        ({"worker": 4}, 1, "4"),
        ({"worker": 12}, 3, "4(x3)"),
        ({"chief": 1, "worker": 4, "ps": 1}, 2, "3(x2)"),
        ({"chief": 1, "worker": 4, "ps": 2}, 2, "4,3"),
        ({"chief": 1, "worker": 4, "ps": 1}, 4, "2(x2),1(x2)"),
        ({"chief": 1, "worker": 3, "ps": 5}, 3, "3(x3)"),
        ({"chief": 1, "worker": 6, "ps": 3}, 2, "6,4"),
    ],
)
def test_all_tasks_of_a_step_agree_and_each_has_a_role_of_its_own(wanted, nodes, tasks):
    found = everyone(wanted, nodes, tasks)
    (addresses,) = {json.dumps(one.addresses) for one in found.values()}
    addresses = json.loads(addresses)
    assert {job: len(places) for job, places in addresses.items()} == wanted
    everywhere = [place for places in addresses.values() for place in places]
    assert len(set(everywhere)) == len(everywhere) == len(found)
    roles = {(one.job, one.task) for one in found.values()}
    assert roles == {(job, index) for job, count in wanted.items() for index in range(count)}
    # On one node no name is needed.
    hosts = [f"gpu{node + 1:02}" if nodes > 1 else "127.0.0.1" for node in range(nodes)]
    for (node, _), one in found.items():
        assert addresses[one.job][one.task].startswith(f"{hosts[node]}:")
    # As many workers on each node, and numbered along it.
    workers = [address.partition(":")[0] for address in addresses["worker"]]
    per_node = wanted["worker"] // nodes
    assert workers == [host for host in hosts for _ in range(per_node)]
    for one in found.values():
        if one.job == "worker":
            assert one.local_rank == one.task % per_node


def ports(**variables):
    (one,) = everyone({"worker": 1}, 1, "1", **variables).values()
    return int(one.addresses["worker"][0].rpartition(":")[2])


def test_jobs_and_steps_side_by_side_use_other_ports():
    jobs = [ports(SLURM_JOB_ID=str(number)) for number in range(4711, 4811)]
    steps = [ports(SLURM_STEP_ID=str(number)) for number in range(100)]
    for found in (jobs, steps):
        assert len(set(found)) == 100
        nearest = min(abs(one - other) for one, other in itertools.combinations(found, 2))
        assert nearest >= cluster.PORTS_PER_JOB


@given(st.integers(1, 2**32 - 3), st.integers(0, 2**31))
def test_all_ports_of_a_job_are_below_those_that_systems_give_away(job, step):
    first = ports(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step))
    assert first in cluster.PORTS
    assert first + cluster.PORTS_PER_JOB <= 32_768  # net.ipv4.ip_local_port_range begins there


def test_a_step_that_has_no_number_is_one_too():
    assert ports(SLURM_STEP_ID="interactive") == ports(SLURM_STEP_ID="0")


def test_what_the_job_has_stands_in_for_what_the_step_does_not_say():
    step = task(1, 0, tasks="1(x2)")
    job = {
        "SLURM_JOB_NODELIST": step.pop("SLURM_STEP_NODELIST"),
        "SLURM_TASKS_PER_NODE": step.pop("SLURM_STEP_TASKS_PER_NODE"),
    }
    del step["SLURM_STEP_ID"]
    one = cluster.find(SimpleNamespace(strategy="x", nodes=2), {"worker": 2}, step | job)
    assert (one.job, one.task) == ("worker", 1)
    assert [address.partition(":")[0] for address in one.addresses["worker"]] == ["gpu01", "gpu02"]


def test_a_variable_that_is_missing_is_named():
    for variable, named in {
        "SLURM_NODEID": "SLURM_NODEID",
        "SLURM_LOCALID": "SLURM_LOCALID",
        "SLURM_STEP_NODELIST": "SLURM_JOB_NODELIST",
        "SLURM_STEP_TASKS_PER_NODE": "SLURM_TASKS_PER_NODE",
        "SLURM_JOB_ID": "SLURM_JOB_ID",
    }.items():
        environ = task(0, 0)
        del environ[variable]
        with pytest.raises(Error) as error:
            cluster.find(SPEC, {"worker": 6}, environ)
        assert str(error.value) == f"{named} is not set: was the trainer started by srun?"


@pytest.mark.parametrize(
    ("wanted", "tasks", "words"),
    [
        (
            {"chief": 1, "worker": 2, "ps": 1},
            "2,1",
            "1 chief, 2 worker, 1 ps, found 1 chief, 2 worker, 0 ps",
        ),
        ({"worker": 4}, "3,1", "4 worker, found 3 worker"),  # as many workers on each node
        ({"worker": 2}, "1,2", "2 worker on 2 node(s), found the Slurm tasks 1 + 2"),
    ],
)
def test_tasks_that_are_too_few_too_many_or_uneven_are_counted(wanted, tasks, words):
    with pytest.raises(Error) as error:
        everyone(wanted, 2, tasks)
    assert str(error.value) == f"the run needs the processes {words}"


def test_nodes_that_are_not_reached_by_their_names_have_the_addresses_that_are_given():
    given = {cluster.NODE_ADDRESSES: json.dumps({"gpu01": "10.0.0.1", "gpu02": "gpu02-ib0"})}
    (one, *_) = everyone({"worker": 6}, 2, "3(x2)", **given).values()
    assert one.hosts == ["10.0.0.1", "gpu02-ib0"]


def test_a_name_that_a_node_does_not_know_is_said_with_the_node_and_what_to_do():
    begin = time.monotonic()
    with pytest.raises(cluster.Unreachable) as error:
        check_names(["localhost", "no-such-node.invalid"])
    assert time.monotonic() - begin < 10
    message = str(error.value)
    assert message.startswith(f"node {socket.gethostname()} does not know no-such-node.invalid (")
    assert "localhost" not in message and "/etc/hosts" in message and "node_address" in message


def test_the_processes_of_a_run_are_reached_past_a_proxy(monkeypatch):
    for name in (*networks.PROXIES, *networks.NO_PROXY_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    found(TWO)
    assert "no_proxy" not in os.environ
    monkeypatch.setenv("http_proxy", "http://proxy:8080")
    monkeypatch.setenv("no_proxy", "ours")
    monkeypatch.setenv("NO_PROXY", "")  # so that it is put back
    found(TWO)
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"]
    assert os.environ["no_proxy"].split(",") == ["ours", "localhost", "127.0.0.1", "::1", "a", "b"]
