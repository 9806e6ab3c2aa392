"""binding: the GPUs and cores of each process of a node, on topologies that were written as data.

What is expected was worked out by hand from the pictures of the nodes, not by the program.
"""

import json
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Error
from dlbench.common import own_code
from dlbench.log import event_log
from dlbench.machine import binding, gpus
from dlbench.machine.binding import Place, Request, Topology
from dlbench.machine.hardware import Files
from support.machines import topologies
from support.machines.topologies import H100_UUIDS, expanded
from support.runs.parsed_runs import parsed, write


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A function that gives the root of a node's files; hundreds of them, so each node once."""
    roots = {}

    def write(files):
        key = frozenset(files.items())
        if key not in roots:
            roots[key] = tmp_path_factory.mktemp("node")
            topologies.write(roots[key], files)
        return Files(roots[key])

    return write


@pytest.fixture
def node(written, monkeypatch):
    """A function that makes this a node and gives the Binding of each process.

    Its arguments: the node; the variables of each process; the CPUs that each may use.
    """

    def make(made, environs, masks=None, mode="auto", each=1, quota=None, shared=False):
        files, nvml = made
        monkeypatch.setitem(sys.modules, "pynvml", nvml)  # None: there is no such package
        count, root = len(environs), written(files)
        online = expanded(files["sys/devices/system/cpu/online"])
        visible = [gpus.visible_places(root, environ) for environ in environs]
        topology = binding.read_topology(root)
        return [
            binding.decide(
                Request(mode, index, count, each, shared),
                masks or [online] * count,
                visible,
                topology,
                quota,
            )
            for index in range(count)
        ]

    return make


def cpus(bound):
    return [sorted(one.cpus) for one in bound]


def ranges(*texts):
    return [sorted(expanded(text)) for text in texts]


def alone(number):
    return {"CUDA_VISIBLE_DEVICES": str(number)}


def test_eight_h100_on_eight_numa_nodes_have_one_each(node):
    bound = node(topologies.h100_x8(), [{}] * 8)
    assert cpus(bound) == ranges(
        *("0-13,112-125", "14-27,126-139", "28-41,140-153", "42-55,154-167"),
        *("56-69,168-181", "70-83,182-195", "84-97,196-209", "98-111,210-223"),
    )
    assert [one.numa_nodes for one in bound] == [(n,) for n in range(8)]
    assert sum(one.threads for one in bound) == 224  # as many workers as hardware threads
    assert [one.first for one in bound] == list(range(8))
    assert [one.gpus[0].pci for one in bound][:2] == ["0000:1b:00.0", "0000:43:00.0"]
    assert bound[3].describe() == {
        "mode": "auto", "threads": 28, "numa_nodes": [3], "far_cpus": 0, "left_over_cpus": 0,
        "gpus": [{"uuid": H100_UUIDS[3], "pci": "0000:61:00.0", "numa_node": 3}],
    }  # fmt: skip


def test_four_gh200_have_the_cores_of_their_own_grace(node):
    bound = node(topologies.gh200_x4(), [{}] * 4)
    assert cpus(bound) == ranges("0-71", "72-143", "144-215", "216-287")
    assert [one.gpus[0].pci for one in bound] == [f"000{n}9:01:00.0"[-12:] for n in range(4)]


def test_two_a100_on_a_socket_share_its_cores_and_then_those_of_another_socket(node):
    one_socket = node(topologies.a100_x2_on_one_socket(), [{}] * 2)
    assert cpus(one_socket) == ranges("0-15,32-47", "16-31,48-63")
    bound = node(topologies.a100_x2_on_one_socket(sockets=2), [{}] * 2)
    assert cpus(bound) == ranges("0-15,64-79,32-47,96-111", "16-31,80-95,48-63,112-127")
    assert [one.describe()["far_cpus"] for one in bound] == [32, 32]


def test_mig_slices_share_the_cores_near_their_board_and_one_core_is_left_over(node):
    slices = [{"CUDA_VISIBLE_DEVICES": f"MIG-{n}{n}{n}{n}-0000"} for n in range(3)]
    bound = node(topologies.mig_slices(), slices)
    # Sixteen cores make five each: of the eight near ones two each, then the two that are left.
    assert cpus(bound) == ranges("8,9,14,15,0", "10,11,1-3", "12,13,4-6")
    assert bound[0].left_over == (7,)
    assert [one.gpus[0].uuid for one in bound] == [f"MIG-{n}{n}{n}{n}-0000" for n in range(3)]


def test_eight_mi300x_have_a_quarter_of_their_socket_each(node):
    bound = node(topologies.mi300x_x8(), [{}] * 8)
    assert cpus(bound)[0] == ranges("0-23,192-215")[0]
    assert cpus(bound)[3:5] == ranges("72-95,264-287", "96-119,288-311")
    assert cpus(bound)[7] == ranges("168-191,360-383")[0]
    assert bound[1].gpus[0].uuid == "GPU-000000000000ab01"


def test_in_a_group_with_half_of_the_cores_the_other_gpus_have_far_cores(node):
    mask = expanded("0-55,112-167")  # the first socket
    bound = node(topologies.h100_x8(), [{}] * 8, [mask] * 8)
    near = ranges("0-6,112-118", "14-20,126-132", "28-34,140-146", "42-48,154-160")
    far = ranges("7-13,119-125", "21-27,133-139", "35-41,147-153", "49-55,161-167")
    assert cpus(bound) == near + far
    assert [one.describe()["far_cpus"] for one in bound] == [0] * 4 + [14] * 4


def test_one_gpu_visible_for_each_task_is_as_good_as_all(node):
    every = node(topologies.h100_x8(), [{}] * 8)
    own = node(topologies.h100_x8(), [alone(number) for number in range(8)])
    assert cpus(every) == cpus(own)
    assert [one.gpus for one in every] == [one.gpus for one in own]
    assert [one.first for one in own] == [0] * 8


def test_the_gpu_that_a_task_sees_decides_and_not_its_rank(node):
    bound = node(topologies.h100_x8(), [alone(3), alone(2)])
    for number, one in zip((3, 2), bound, strict=True):
        assert one.gpus[0].uuid == H100_UUIDS[number]
        assert set(expanded(topologies.H100_NUMA[number])) <= set(one.cpus)


def test_gpus_of_no_known_numa_node_have_blocks_by_number_and_nothing_is_called_far(node):
    bound = node(topologies.no_numa_known(), [{}] * 4, quota=9.5)
    assert cpus(bound) == ranges("0-7", "8-15", "16-23", "24-31")
    assert bound[0].describe()["far_cpus"] is None
    assert [one.threads for one in bound] == [2] * 4  # a quota limits workers and not cores
    assert node(topologies.no_numa_known(), [{}] * 3)[0].left_over == (30, 31)


def test_what_nvml_says_is_near_is_taken_where_the_firmware_says_nothing(node):
    affinity = {0: [0xFFFF << 16], 1: [0xFFFF << 16], 2: [0xFFFF], 3: [0xFFFF]}
    bound = node(topologies.no_numa_known(affinity), [{}] * 4)
    assert cpus(bound) == ranges("16-23", "24-31", "0-7", "8-15")


def test_a_process_that_drives_all_gpus_has_all_cores(node):
    (bound,) = node(topologies.h100_x8(), [{}], each=8)
    assert bound.cpus == tuple(range(224)) and bound.left_over == ()
    assert bound.describe()["far_cpus"] == 0


def test_what_a_scheduler_has_bound_before_stays(node):
    masks = [expanded("0-3"), expanded("8-11")]
    bound = node(topologies.no_numa_known(), [{}] * 2, masks)
    assert cpus(bound) == masks


def test_by_numbers_alone_shares_follow_one_another_wherever_the_gpus_are(node):
    bound = node(topologies.h100_x8(), [alone(7), alone(0)], mode="cores")
    assert cpus(bound) == ranges("0-55,112-167", "56-111,168-223")
    assert bound[0].describe()["far_cpus"] == 112


def test_more_processes_than_cores_share_the_threads_of_a_core(node):
    bound = node(topologies.a100_x2_on_one_socket(), [{}] * 2, [expanded("4,36")] * 2)
    assert cpus(bound) == [[4], [36]]


def test_uuids_may_be_cut_short_and_tasks_that_see_two_take_their_own(node):
    pairs = [f"{H100_UUIDS[0][:12]},1", f"{H100_UUIDS[0][:12]},1", "2,3", "2,3"]
    bound = node(topologies.h100_x8(), [{"CUDA_VISIBLE_DEVICES": pair} for pair in pairs])
    assert [one.gpus[0].uuid for one in bound] == H100_UUIDS[:4]
    assert [one.first for one in bound] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("environ", "numbers"),
    [
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, [4, 5]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000000000ab06,2"}, [6, 2]),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, [5]),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "0,-1,2"}, [0]),
    ],
)
def test_rocms_variables_leave_the_gpus_that_they_name(environ, numbers, written, monkeypatch):
    files, nvml = topologies.mi300x_x8()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    seen = gpus.visible_places(written(files), environ)
    assert [one.uuid for one in seen] == [f"GPU-000000000000ab{n:02x}" for n in numbers]


def test_without_nvml_or_rocm_nobody_knows_and_cores_are_divided_all_the_same(node):
    files = topologies.cpus(["0-7"], topologies.alone)
    bound = node((files, None), [{}] * 2)
    assert cpus(bound) == ranges("0-3", "4-7")
    assert bound[1].first is None and bound[1].describe()["gpus"] == []


def refused(node, *arguments, **more):
    with pytest.raises(Error) as error:
        node(*arguments, **more)
    return str(error.value)


def test_fewer_cores_than_processes_are_refused_unless_they_are_not_bound(node):
    message = refused(node, topologies.h100_x8(), [{}] * 8, [[0, 1, 2]] * 8)
    assert "8 processes" in message and "3 CPU(s)" in message and "binding: none" in message
    quota = refused(node, topologies.h100_x8(), [{}] * 8, quota=4.0)
    assert "4 CPUs, by the quota of a control group" in quota
    # Without binding they share them, and each starts as many workers as a share has.
    shared = node(topologies.h100_x8(), [{}] * 8, [[0, 1, 2]] * 8, mode="none")
    assert [one.threads for one in shared] == [1] * 8
    unbound = node(topologies.h100_x8(), [{}] * 8, mode="none")
    assert [(one.threads, len(one.cpus)) for one in unbound] == [(28, 224)] * 8


def test_a_gpu_asked_for_twice_is_refused_unless_it_is_to_be_shared(node):
    same = refused(node, topologies.h100_x8(), [alone(2)] * 2)
    assert "2 local ranks that see the same need 2 GPUs" in same and H100_UUIDS[2] in same
    listed = [{"CUDA_VISIBLE_DEVICES": "1,2"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    twice = refused(node, topologies.h100_x8(), listed)
    assert f"local ranks 0 and 1 would both compute on {H100_UUIDS[1]}" in twice
    listed_twice = {"CUDA_VISIBLE_DEVICES": f"1,{H100_UUIDS[1][:12]}"}
    one = refused(node, topologies.h100_x8(), [listed_twice], each=2)
    assert f"names {H100_UUIDS[1]} twice" in one
    for environs in ([alone(2)] * 2, listed):
        bound = node(topologies.h100_x8(), environs, shared=True)
        assert bound[0].gpus == bound[1].gpus


def test_a_uuid_that_is_not_there_is_named_with_those_that_are(node):
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-dead0000-0000"}
    message = refused(node, topologies.a100_x2_on_one_socket(), [environ])
    assert "GPU-dead0000-0000 is not on this node" in message
    assert "GPU-a1000000-0000, GPU-a1000001-0000" in message
    rocr = {"ROCR_VISIBLE_DEVICES": "GPU-00000000dead0000"}
    assert "is not on this node" in refused(node, topologies.mi300x_x8(), [rocr])


def test_mig_devices_beside_whole_gpus_and_too_few_gpus_are_refused(node):
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-a1000000-0000,MIG-1111-0000"}
    message = refused(node, topologies.mig_slices(), [environ])
    assert "MIG devices beside whole GPUs" in message
    message = refused(node, topologies.a100_x2_on_one_socket(), [{}], each=4)
    assert "needs 4 GPU(s); seen: GPU-a1000000-0000, GPU-a1000001-0000 (no var" in message


GPU = {"uuid": "GPU-1", "pci": "0000:1b:00.0", "numa_node": 0}


def bound_start(cpus, far, node=0, host="n1", gpu=GPU, **more):
    return {
        "host": host,
        "cores": cpus,
        "binding": {
            **{"mode": "auto", "threads": len(cpus or range(4)), "numa_nodes": [node]},
            **{"gpus": [gpu], "far_cpus": far, "left_over_cpus": 0, **more},
        },
    }


def ranks(*starts):
    return binding.from_starts(starts)


def test_cores_numa_node_and_address_of_each_rank_are_named():
    other = {**GPU, "pci": "0000:43:00.0", "numa_node": None}
    known = ranks(
        bound_start([0, 1, 8, 9], 0), bound_start([2, 3, 4], 0, gpu=other, left_over_cpus=1)
    )
    assert binding.describe_ranks(known) == (
        "rank 0: CPUs 0-1,8-9 at NUMA node 0, GPU 0000:1b:00.0 at NUMA node 0; "
        "rank 1: CPUs 2-4 at NUMA node 0, GPU 0000:43:00.0; 1 CPU of a node left over"
    )
    assert binding.describe_ranks(ranks(bound_start(None, 0))).startswith(
        "rank 0: not bound, 4 threads"
    )
    assert binding.describe_ranks(ranks({"cores": [0]})) == ""


def test_ranks_with_far_cores_are_counted():
    said = binding.caveat(ranks(bound_start([0, 1], 0), bound_start([2, 3], 2, node=1)))
    assert said.startswith("1 of 2 ranks had cores far from their GPUs (rank 1: CPUs 2-3 at NUMA")


def test_half_of_the_cores_may_be_far_and_one_alone_may_have_the_whole_node():
    assert binding.caveat(ranks(bound_start([0, 1], 1), bound_start([2, 3], 1))) == ""
    assert binding.caveat(ranks(bound_start(list(range(8)), 7))) == ""
    assert binding.caveat(ranks(bound_start(list(range(8)), 8))) != ""
    assert binding.caveat(ranks(bound_start([0, 1], None))) == ""
    assert binding.caveat(ranks(bound_start(None, 4), bound_start(None, 4))) == ""


def test_a_record_has_the_binding_of_its_rank(tmp_path):
    write(tmp_path, [1.0, 0.5, 0.5])
    path = tmp_path / "train.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    events[0] |= bound_start([0, 1], 0)
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert next(event["event"] for event in event_log.read(path)) == "run_start"
    (kept,) = parsed(tmp_path)["provenance"]["bindings"]
    assert (kept["cpus"], kept["host"], kept["gpus"]) == ([0, 1], "n1", [GPU])


@st.composite
def nodes(draw):
    """(topology, places): cores of one or two threads, a random mask for all, random near CPUs."""
    threads, count = draw(st.integers(1, 2)), draw(st.integers(2, 24))
    cores = tuple(tuple(core + count * t for t in range(threads)) for core in range(count))
    mask = draw(st.sets(st.sampled_from([c for core in cores for c in core]), min_size=2))
    half = count // 2
    numa = {
        0: frozenset(c for core in cores[:half] for c in core),
        1: frozenset(c for core in cores[half:] for c in core),
    }
    sides = draw(st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=len(mask)))
    near = {side: (cpus, (side,)) for side, cpus in numa.items()} | {None: (frozenset(), ())}
    places = [Place(frozenset(mask), *near[side]) for side in sides]
    return Topology(cores, numa, {0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}}), places


@given(nodes())
def test_shares_are_equally_many_cores_do_not_overlap_and_are_all_but_what_is_left(node):
    topology, places = node
    division = binding.divide(topology, places)
    taken = [cpu for share in division.shares for cpu in share]
    assert len(taken) == len(set(taken)) and all(division.shares)
    assert {*taken, *division.left_over} == places[0].cpus
    of_core = {cpu: core for core in topology.cores for cpu in core}
    cores = [len({of_core[cpu] for cpu in share}) for share in division.shares]
    assert len(set(cores)) == 1
    there = len({of_core[cpu] for cpu in places[0].cpus})
    if there >= len(places):
        assert cores[0] == there // len(places)
        owners = {}
        for number, share in enumerate(division.shares):
            for cpu in share:
                assert owners.setdefault(of_core[cpu], number) == number


@given(nodes())
def test_nobody_has_far_cores_while_near_ones_are_left_over(node):
    topology, places = node
    division = binding.divide(topology, places)
    for place, share in zip(places, division.shares, strict=True):
        if place.near and set(share) - place.near:
            assert not place.near & set(division.left_over)


def test_a_kernel_without_topology_has_a_core_for_each_cpu(tree):
    files = tree({"sys/devices/system/cpu/online": "0-3"})
    topology = binding.read_topology(files)
    assert topology.cores == ((0,), (1,), (2,), (3,)) and topology.numa_cpus == {}
    division = binding.divide(topology, [Place(frozenset({0, 1, 2, 3}))] * 2)
    assert division.shares == ((0, 1), (2, 3))


def test_where_there_is_no_sys_each_cpu_is_a_core(tree):
    topology = binding.read_topology(tree({}))
    division = binding.divide(topology, [Place(frozenset({4, 5, 6}))] * 2)
    assert (division.shares, division.left_over) == (((4,), (5,)), (6,))


def test_everyone_stays_in_a_mask_of_its_own():
    places = [Place(frozenset({0})), Place(frozenset({1, 2, 3}))]
    shares = binding.divide(Topology(((0,), (1,), (2,), (3,))), places).shares
    assert shares == ((0,), (1, 2))


PROGRAM = """
import json, pathlib, sys, time
from dlbench.machine import binding
folder, index, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
time.sleep(0.2 * (count - index))
print(json.dumps(binding.all_gather(pathlib.Path(folder), index, count, {"cpus": [index]})))
"""


def start(folder, index, count):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, folder, str(index), str(count)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(own_code.project_path("workflow_scripts"))},
        text=True,
    )


def test_each_learns_what_all_say_in_their_order(tmp_path):
    processes = [start(tmp_path, index, 4) for index in range(4)]
    said = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert said == [[{"cpus": [index]} for index in range(4)]] * 4
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_start_left_is_not_taken_for_fresh(tmp_path):
    for index in (0, 1):
        old = {"number": f"old{index}", "seen": {str(1 - index): "old"}, "facts": {"cpus": [99]}}
        path = tmp_path / f".local-rank-{index}-{binding._node()}.json"
        path.write_text(json.dumps(old))
    first = start(tmp_path, 0, 2)
    time.sleep(1)
    second = start(tmp_path, 1, 2)
    for process in (first, second):
        assert json.loads(process.communicate(timeout=60)[0]) == [{"cpus": [0]}, {"cpus": [1]}]


def test_who_does_not_come_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(binding, "PATIENCE_S", 0.1)
    with pytest.raises(Error, match=r"local rank 1 waited 0.1 s for local rank 0 and 2 of 3"):
        binding.all_gather(tmp_path, 1, 3, {})


def test_one_alone_writes_nothing(tmp_path):
    assert binding.all_gather(tmp_path / "absent", 0, 1, "me") == ["me"]
    assert not (tmp_path / "absent").exists()
