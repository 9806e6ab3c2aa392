"""Collectives beside all-reduce: nccl-tests' sizes and bandwidths by hand, and what is lacking."""

from types import SimpleNamespace

import pytest

from dlbench.baselines import all_reduce, collectives, rounds

GRADIENTS = [4096 + 4]  # which neither two nor three devices can divide


def gather(values):  # one operation takes all of a round on the slowest process
    return [[rounds.ROUND_S]] if values != [0.0] else [[0.0]]


def exchange(**operations):
    return SimpleNamespace(__name__="exchanges.mine", **operations)


def measured(library, devices=2):
    made = []

    def make(operation, values):
        made.append(values)
        return operation(values)

    return list(collectives.rows(library, make, gather, devices, GRADIENTS)), made


def instant(values):
    return lambda count: None


@pytest.mark.parametrize(
    ("measure", "devices", "share"),
    [
        ("all_gather", 2, 1 / 2),
        ("all_gather", 8, 7 / 8),
        ("reduce_scatter", 4, 3 / 4),
        ("sendrecv", 2, 1),
        ("sendrecv", 8, 1),
    ],
)
def test_the_bandwidth_of_the_bus_is_that_of_nccl_tests(measure, devices, share):
    rows, _ = measured(exchange(**{measure: instant}), devices)
    rows = [row for row in rows if row["measure"] == measure]
    assert len(rows) == 4
    for row in rows:
        expected = row["size_bytes"] / row["time_s"] * share / 1e9
        assert row["value"] == pytest.approx(expected)


def test_sizes_are_those_of_the_all_reduce_rounded_up_to_equal_parts():
    as_reduced = all_reduce.sizes_bytes(GRADIENTS)
    assert as_reduced == [1024, 2048, 4096, 4100]
    for devices, expected in ((2, [1024, 2048, 4096, 4104]), (3, [1032, 2052, 4104, 4104])):
        rows, made = measured(exchange(all_gather=instant), devices)
        assert [row["size_bytes"] for row in rows[:4]] == expected
        assert made == [size // 4 for size in expected]
        assert not any(values % devices for values in made)
    rows, _ = measured(exchange(sendrecv=instant), 3)
    assert [row["size_bytes"] for row in rows[2:]] == as_reduced


def test_what_a_library_lacks_is_a_row_with_the_reason_and_the_rest_is_measured():
    def without(values):
        raise RuntimeError("Backend gloo does not support reduce_scatter")

    library = exchange(
        all_gather=instant, reduce_scatter=without, LACKS={"sendrecv": "it only sums"}
    )
    rows, _ = measured(library)
    unknown = {row["measure"]: row["unknown"] for row in rows if "unknown" in row}
    assert unknown == {
        "reduce_scatter": "Backend gloo does not support reduce_scatter",
        "sendrecv": "it only sums",
    }
    assert sum(row["measure"] == "all_gather" for row in rows) == 4


def test_a_file_of_ones_own_with_an_all_reduce_alone_says_what_it_does_not_define():
    rows, _ = measured(exchange())
    assert {row["unknown"] for row in rows} == {"exchanges.mine does not define it"}
    assert [row["measure"] for row in rows] == list(collectives.OTHERS)


def test_an_error_that_is_about_the_machine_ends_the_measurement():
    def broken(values):
        raise RuntimeError("connection closed by peer")

    with pytest.raises(RuntimeError, match="closed by peer"):
        measured(exchange(all_gather=broken))


def test_an_error_at_a_larger_size_ends_the_measurement():
    """Which is then no lack of the library: it had done the smaller ones."""

    def for_small_messages(values):
        if values > 256:
            raise NotImplementedError("not supported")
        return instant(values)

    with pytest.raises(NotImplementedError):
        measured(exchange(all_gather=for_small_messages))


def test_one_device_has_nobody_to_exchange_with():
    with pytest.raises(ValueError, match="sendrecv needs two devices or more, found 1"):
        collectives.bus_bytes("sendrecv", 1024, devices=1)
