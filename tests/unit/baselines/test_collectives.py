"""Collectives: nccl-tests' sizes and bandwidths by hand, and what is lacking."""

import pytest

from dlbench.baselines import collectives, rounds

GRADIENTS = [4096 + 4]  # which neither two nor three devices can divide
SIZES = [1024, 2048, 4096, 4100]


def gather(values):  # one operation takes all of a round on the slowest process
    return [[rounds.ROUND_S]] if values != [0.0] else [[0.0]]


def instant(values):
    return lambda count: None


def measured(devices=2, **different):
    """Rows of a library, and how many values it was asked to exchange: {measure: them}."""
    made = {}

    def collective(name, values):
        made.setdefault(name, []).append(values)
        return different.get(name, instant)(values)

    return list(collectives.rows(collective, gather, devices, GRADIENTS)), made


def test_sizes_go_from_a_kibibyte_to_the_largest_gradients_which_are_among_them():
    found = collectives.sizes_bytes([3_000_000, 100_000])
    assert found[0] == 1024 and found[-1] == 3_000_000 and 100_000 in found
    assert {1024 * 2**power for power in range(12)} == set(found) - {3_000_000, 100_000}
    assert collectives.sizes_bytes([12]) == [1024]  # no size of their own


@pytest.mark.parametrize(
    ("measure", "devices", "share"),
    [("all_reduce", 2, 1), ("all_reduce", 8, 7 / 4), ("all_gather", 2, 1 / 2),
     ("all_gather", 8, 7 / 8), ("reduce_scatter", 4, 3 / 4), ("sendrecv", 2, 1),
     ("sendrecv", 8, 1)],
)  # fmt: skip
def test_the_bandwidth_of_the_bus_is_that_of_nccl_tests(measure, devices, share):
    rows, _ = measured(devices)
    rows = [row for row in rows if row["measure"] == measure]
    assert len(rows) == 4
    for row in rows:
        assert row["time_s"] == rounds.ROUND_S
        assert row["rounds"] == (5 if measure == "all_reduce" else 3)
        expected = row["size_bytes"] / row["time_s"] * share / 1e9
        assert row["value"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("devices", "rounded"), [(2, [1024, 2048, 4096, 4104]), (3, [1032, 2052, 4104, 4104])]
)
def test_sizes_of_parts_are_those_of_the_all_reduce_rounded_up_to_equal_parts(devices, rounded):
    rows, made = measured(devices)
    for measure in collectives.MEASURES:
        found = [row["size_bytes"] for row in rows if row["measure"] == measure]
        assert found == (rounded if measure in collectives.IN_PARTS else SIZES)
        assert made[measure] == [size // 4 for size in found]  # numbers of four bytes


def test_what_a_library_lacks_is_a_row_with_the_reason_and_the_rest_is_measured():
    def without(values):
        raise RuntimeError("Backend gloo does not support reduce_scatter")

    def lacking(values):
        raise NotImplementedError("it only sums")

    rows, _ = measured(reduce_scatter=without, sendrecv=lacking)
    unknown = {row["measure"]: row["unknown"] for row in rows if "unknown" in row}
    assert unknown == {
        "reduce_scatter": "Backend gloo does not support reduce_scatter",
        "sendrecv": "it only sums",
    }
    assert sum(row["measure"] == "all_gather" for row in rows) == 4


def test_an_error_that_is_about_the_machine_ends_the_measurement():
    def broken(values):
        raise RuntimeError("connection closed by peer")

    with pytest.raises(RuntimeError, match="closed by peer"):
        measured(all_gather=broken)


def test_a_library_without_an_all_reduce_has_no_baseline():
    def lacking(values):
        raise NotImplementedError("not supported")

    with pytest.raises(NotImplementedError):
        measured(all_reduce=lacking)


def test_an_error_at_a_larger_size_ends_the_measurement():
    """Which is then no lack of the library: it had done the smaller ones."""

    def for_small_messages(values):
        if values > 256:
            raise NotImplementedError("not supported")
        return instant(values)

    with pytest.raises(NotImplementedError):
        measured(all_gather=for_small_messages)


@pytest.mark.parametrize("measure", collectives.MEASURES)
def test_one_device_has_nobody_to_exchange_with(measure):
    with pytest.raises(ValueError, match=f"{measure} needs two devices or more, found 1"):
        collectives.bus_bytes(measure, 1024, devices=1)
