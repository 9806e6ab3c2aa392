"""core_division: equal shares of a node's cores; whole topologies are in test_binding.py."""

from hypothesis import given
from hypothesis import strategies as st

from dlbench.machine import binding
from dlbench.machine.binding import Place, Topology


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
