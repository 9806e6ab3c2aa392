"""Baselines from tables of nccl-tests and of the OSU Micro-Benchmarks."""

import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.imports import baseline_importers
from dlbench.results import collect_runs

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
        baseline_importers.import_baselines([tmp_path / "log.txt"], machine, fields)
        collect_runs.collect_baselines(machine.parent, tmp_path)
        return pq.read_table(tmp_path / "baselines.parquet").to_pylist()

    return imported


def test_tables_are_found_behind_much_output_of_the_library(rows):
    before = "node1:12:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/IPC\n" * 5000
    small, large = rows(before + RANKS + TITLE + DSTACK, site="far")
    assert (small["size_bytes"], large["size_bytes"]) == (524288, 1048576)
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
    (_, first), (_, second), (bad, _) = (t.splitlines(True) for t in (DSTACK, again, wrong))
    (row,) = rows(RANKS + TITLE + first + second + bad, site="far")
    assert row["rounds"] == 2
    assert (row["time_low_s"], row["time_high_s"]) == pytest.approx((483.4e-6, 583.4e-6))
    assert "1 sizes with wrong values left out" in row["source"]


def test_an_all_reduce_of_osu_needs_its_processes_and_has_the_bus_bandwidth(rows):
    # Of NCCL, too; sizes whose values are wrong are left out.
    checked = OSU_ROWS.replace("\n", "    Pass\n") + "2097152    310.00    Fail\n"
    small, large = rows(OSU.replace("MPI", "NCCL-CUDA") + checked, **FAR)
    assert "2097152 bytes left out: wrong values" in large["source"]
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


# A rack of 18 nodes with 4 devices: busbw / algbw is 2 x 71 / 72.
RACK = TITLE + (
    "   536870912     134217728     float     sum      -1   1806.7  297.16  586.06      0   1835.9"
    "  292.43  576.74      0\n"
)
LAST_RANK = "#  Rank 71 Group  0 Pid  148 on node-171 device  3 [0x01] NVIDIA GB200\n"
# As versions of 2018 to 2022 print an all-reduce on 8 devices: no root, the largest error.
OLD = (
    "#       size         count    type   redop     time   algbw   busbw  error     time   algbw\n"
    "  1073741824     268435456   float     sum   9100.0  118.00  206.49  4e-07   9110.0  117.86\n"
    "  2147483648     536870912   float     sum  18200.0  118.00  206.49  3e-02  18200.0  118.00\n"
)


@pytest.mark.parametrize("ranks", ["", LAST_RANK])
def test_devices_of_a_table_without_its_ranks_are_the_users(rows, ranks):
    (row,) = rows(ranks + RACK, site="far", nodes=18, devices_per_node=4)
    assert (row["measure"], row["nodes"], row["devices"]) == ("all_reduce", 18, 72)
    assert row["value"] == pytest.approx(586.06, abs=0.005)
    assert row["device_model"] == ("NVIDIA GB200" if ranks else None)


@pytest.mark.parametrize("fields", [{}, {"nodes": 9, "devices_per_node": 4}])
def test_a_table_does_not_pass_for_an_all_reduce_of_another_number_of_devices(rows, fields):
    with pytest.raises(Error, match="does not name its collective"):
        rows(RACK, site="far", **fields)


def test_the_user_may_name_the_collective_of_a_table(rows):
    fields = {"site": "far", "nodes": 2, "devices_per_node": 8}
    (row,) = rows(RACK, measure="all_gather", **fields)
    assert (row["measure"], row["value"]) == ("all_gather", 586.06)
    named = "# Collective test starting: all_reduce_perf\n"
    with pytest.raises(Error, match="--fields says measure is all_gather, the log says all_reduce"):
        rows(named + RANKS + TITLE + DSTACK, site="far", measure="all_gather")
    with pytest.raises(Error, match="expected the name of a collective, found 8"):
        rows(RACK, measure=8, **fields)


@pytest.mark.parametrize("name", ["/opt/build/all_reduce_perf_mpi", "all_reduce"])
def test_the_name_of_a_program_has_endings_and_a_folder(rows, name):
    first, _ = rows(f"# Collective test starting: {name}\n" + RANKS + TITLE + DSTACK, site="far")
    assert first["measure"] == "all_reduce"
    assert first["value"] == pytest.approx(524288 / 296.9e-6 / 1e9)  # not the printed 1.77


def test_tables_of_2018_to_2022_have_an_error_for_their_wrong_values(rows):
    (row,) = rows(OLD, site="far", nodes=1, devices_per_node=8)
    assert (row["measure"], row["size_bytes"]) == ("all_reduce", 1 << 30)
    assert row["value"] == pytest.approx(206.49, abs=0.01)
    assert "1 sizes with wrong values left out" in row["source"]


def test_ranks_that_are_missing_show_in_the_factor_of_an_all_reduce(rows):
    named = "# Collective test starting: all_reduce_perf\n" + RANKS + RACK
    with pytest.raises(Error, match=r"1.972, .* of 7\d; an all-reduce of 2 ranks has 1:"):
        rows(named, site="far")
    (row,) = rows(named, site="far", nodes=18, devices_per_node=4)
    assert row["devices"] == 72
    # Two programs that print into one log are refused.
    with pytest.raises(Error, match="rank 0 is listed twice"):
        rows(RANKS + RANKS.replace("Pid 2002", "Pid 2003") + TITLE + DSTACK, site="far")


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("label", ["[1,{}]<stdout>:", "{}: ", "[{}]: "])
def test_processes_that_all_print_are_told_apart_by_what_launchers_write(rows, label, both):
    def of(rank, *parts):
        lines = [line for part in parts for line in part.splitlines(keepends=True)]
        return "".join(label.format(rank) + line for line in lines)

    header = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 524288\n"
    first, second = DSTACK.replace("[1,0]<stdout>:", "").splitlines(keepends=True)
    # The other process is late: its header stands between two sizes.
    content = of(0, header, RANKS, TITLE, first) + of(1, header) + of(0, second)
    content += of(1, TITLE, first, second) if both else ""  # which counts once
    small, large = rows(content, site="far")
    assert (small["devices"], large["time_s"]) == (2, pytest.approx(583.4e-6))


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
