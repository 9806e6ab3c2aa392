"""All-reduce: its sizes, and nccl-tests' bandwidth of the bus by hand."""

import pytest

from dlbench.baselines import all_reduce, rounds


def test_sizes_go_from_a_kibibyte_to_the_largest_gradients_which_are_among_them():
    found = all_reduce.sizes_bytes([3_000_000, 100_000])
    assert found[0] == 1024 and found[-1] == 3_000_000 and 100_000 in found
    assert {1024 * 2**power for power in range(12)} == set(found) - {3_000_000, 100_000}


def test_gradients_smaller_than_the_smallest_message_have_no_size_of_their_own():
    assert all_reduce.sizes_bytes([12]) == [1024]


@pytest.mark.parametrize(("devices", "share"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_the_bandwidth_of_the_bus_is_that_of_nccl_tests(devices, share):
    made = []

    def make(numbers):
        made.append(numbers)
        return lambda number: None

    def gather(values):  # one takes all of a round on the slowest process
        return [[rounds.ROUND_S]] if values != [0.0] else [[0.0]]

    found = list(all_reduce.rows(make, gather, devices, [4096]))
    assert made == [256, 512, 1024]  # numbers of four bytes
    for row in found:
        assert row["time_s"] == rounds.ROUND_S
        expected = row["size_bytes"] / row["time_s"] * share / 1e9
        assert row["value"] == pytest.approx(expected)


def test_one_device_has_nobody_to_exchange_with():
    with pytest.raises(ValueError, match="two devices or more, found 1"):
        all_reduce.bus_bytes(1024, devices=1)
