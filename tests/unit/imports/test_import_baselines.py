"""Baselines from tables of nccl-tests and of the OSU Micro-Benchmarks."""

import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.imports import import_baselines
from dlbench.results import collect_baselines

FAR = {"site": "far", "nodes": 1, "devices_per_node": 2}
TITLE = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time"
    "   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)"
    "  (GB/s)  (GB/s)\n"
)
# Of dstack's page on its clusters: two ranks, and what mpirun writes before a line.
DSTACK = (
    "[1,0]<stdout>:      524288        131072     float     sum      -1    296.9    1.77    1.77"
    "      0    291.1    1.80    1.80      0\n"
    "[1,0]<stdout>:     1048576        262144     float     sum      -1    583.4    1.80    1.80"
    "      0    579.6    1.81    1.81      0\n"
)
RANKS = "".join(
    f"#  Rank {rank:2} Group  0 Pid 2002 on node{rank} device  0 [bb:00:00] NVIDIA H100\n"
    for rank in range(2)
)
# OSU v5.8 with two processes on one node, of a public log of osu_allreduce.
OSU = "# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n"
OSU_ROWS = "524288                110.83\n1048576               230.90\n"


@pytest.fixture
def rows(tmp_path):
    """The rows of the table of baselines after an import of a log."""

    def imported(content, **fields):
        (tmp_path / "log.txt").write_text(content)
        machine = tmp_path / "baselines" / "far"
        import_baselines.import_baselines([tmp_path / "log.txt"], machine, fields)
        collect_baselines.collect(machine.parent, tmp_path)
        return pq.read_table(tmp_path / "baselines.parquet").to_pylist()

    return imported


def test_tables_are_found_behind_much_output_of_the_library(rows):
    before = "node1:12:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/IPC\n" * 5000
    assert [row["size_bytes"] for row in rows(before + RANKS + TITLE + DSTACK, site="far")] == [
        524288,
        1048576,
    ]
    assert len(rows(before + OSU + OSU_ROWS, **FAR)) >= 2


def test_a_table_of_nccl_tests_becomes_all_reduces_with_its_ranks_and_its_meaning(rows):
    small, large = rows(RANKS + TITLE + DSTACK, site="far")
    assert (large["measure"], large["size_bytes"], large["unit"]) == ("all_reduce", 1048576, "GB/s")
    assert large["time_s"] == pytest.approx(583.4e-6)
    assert large["value"] == pytest.approx(1.797, abs=0.001)  # printed as 1.80
    assert (large["nodes"], large["devices"], large["device_model"]) == (2, 2, "NVIDIA H100")
    assert (large["low"], large["rounds"]) == (large["value"], 1)
    assert large["source"] == "log.txt: nccl-tests, out-of-place, float sum: means over iterations"
    assert (large["measured_at"], large["framework"], small["size_bytes"]) == (None, None, 524288)


def test_another_collective_is_named_by_the_log_and_has_the_printed_bandwidth(rows):
    content = "# Collective test starting: all_gather_perf\n" + RANKS + TITLE
    content += DSTACK.replace("sum", "none").replace("1.77    1.77", "1.77    0.88")
    first, _ = rows(content, site="far")
    assert (first["measure"], first["value"]) == ("all_gather", 0.88)


def test_sizes_that_are_measured_again_are_rounds_and_wrong_values_are_left_out(rows):
    again = DSTACK.replace("583.4", "483.4")
    wrong = DSTACK.replace("1.77      0", "1.77      3")
    only = DSTACK.splitlines(keepends=True)[1]
    (row,) = rows(RANKS + TITLE + only + again.splitlines(keepends=True)[1]
                  + wrong.splitlines(keepends=True)[0], site="far")  # fmt: skip
    assert row["rounds"] == 2
    assert (row["time_low_s"], row["time_high_s"]) == pytest.approx((483.4e-6, 583.4e-6))
    assert "1 sizes with wrong values left out" in row["source"]


def test_an_all_reduce_of_osu_needs_its_processes_and_has_the_bus_bandwidth(rows):
    small, large = rows(OSU + OSU_ROWS, **FAR)
    assert (large["measure"], large["time_s"]) == ("all_reduce", pytest.approx(230.9e-6))
    assert large["value"] == pytest.approx(1048576 / 230.9e-6 / 1e9)
    assert small["devices"] == 2
    with pytest.raises(Error, match="does not say nodes, devices_per_node: give them"):
        rows(OSU + OSU_ROWS, site="far")


def test_bandwidths_and_other_times_of_osu(rows):
    content = "# OSU MPI Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n"
    content += "268435456           12254.16\n# OSU MPI Barrier Latency Test v5.8\n"
    content += "# OSU MPI Allgather Latency Test v5.8\n# Size       Avg Latency(us)\n4    20.5\n"
    found = {row["measure"]: row for row in rows(content, **FAR)}
    assert found["send_bandwidth"]["value"] == pytest.approx(12.25416)
    assert found["allgather"]["time_s"] == pytest.approx(20.5e-6)
    assert found["allgather"]["value"] is None
    assert found["allgather"]["unknown"] == "the time alone is known"


def test_a_log_without_ranks_does_not_pass_for_an_all_reduce(rows):
    with pytest.raises(Error, match="does not name its collective"):
        rows(TITLE + DSTACK, **FAR)


@pytest.mark.parametrize(
    ("content", "fields", "why"),
    [
        ("hello\n", FAR, "nothing was imported: no log of nccl_tests, osu"),
        (RANKS + TITLE, FAR, "no size with a time in the table"),
        (OSU + OSU_ROWS[:12], FAR, "no size with a number below the title"),
        (RANKS + TITLE + DSTACK, FAR, "--fields says nodes is 1, the log says 2"),
        (OSU + OSU_ROWS, {**FAR, "model": "x"}, "no field model of baselines"),
        (OSU + OSU_ROWS, {**FAR, "devices_per_node": 1}, "an all-reduce needs two devices"),
    ],
)
def test_what_cannot_be_a_baseline_is_refused_and_nothing_written(
    tmp_path, rows, content, fields, why
):
    with pytest.raises(Error, match=why):
        rows(content, **fields)
    assert not (tmp_path / "baselines").exists()
