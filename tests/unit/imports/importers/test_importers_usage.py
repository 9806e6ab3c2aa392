"""Importers of logs beside a run: nvidia-smi, Snakemake's benchmarks, Horovod's timeline."""

import gzip
import json

import pytest

from dlbench.imports.log_file import LogError
from support.logs.log_samples import horovod_timeline
from support.logs.reading_logs import notes, read

# nvidia-smi

HEADER = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"


def line(second, gpu=0, values="97 %, 40960 MiB, 300.00 W"):
    return f"2024/06/01 11:27:{second:06.3f}, {gpu}, NVIDIA A100-SXM4-40GB, {values}\n"


def test_samples_of_nvidia_smi_count_from_the_first_and_have_our_units(log):
    (run,) = read("nvidia_smi", log, HEADER + line(5.177) + line(6.677))
    assert run.samples == [
        {
            "t_s": 0.0,
            "gpu": "0",
            "utilisation_percent": 97.0,
            "memory_used_bytes": 40960 * 2**20,
            "power_w": 300.0,
            "energy_j": 0.0,
        },
        {
            "t_s": 1.5,
            "gpu": "0",
            "utilisation_percent": 97.0,
            "memory_used_bytes": 40960 * 2**20,
            "power_w": 300.0,
            "energy_j": 450.0,
        },
    ]
    assert run.columns == {"device_model": "NVIDIA A100-SXM4-40GB"}


def test_energy_is_power_over_time_by_the_trapezoid_rule_for_each_gpu(log):
    powers = [(0, 0, 100), (0, 1, 50), (2, 0, 300), (2, 1, 50), (3, 0, 100), (3, 1, 50)]
    content = HEADER + "".join(line(s, gpu, f"9 %, 1 MiB, {w}.00 W") for s, gpu, w in powers)
    (run,) = read("nvidia_smi", log, content)
    # GPU 0: 2 s x 200 W + 1 s x 200 W; GPU 1: 3 s x 50 W.
    assert [row["energy_j"] for row in run.samples] == [0, 0, 400, 100, 600, 150]


def test_a_power_that_was_not_there_is_bridged(log):
    powers = ("100.00 W", "[N/A]", "200.00 W")
    content = HEADER + "".join(line(s, 0, f"9 %, 1 MiB, {w}") for s, w in enumerate(powers))
    (run,) = read("nvidia_smi", log, content)
    assert [row.get("energy_j") for row in run.samples] == [0.0, None, 300.0]
    assert "power.draw: not there in 1 samples" in notes(run)


def test_values_without_units_are_those_of_the_header(log):
    (run,) = read("nvidia_smi", log, HEADER + line(5, 0, "97, 40960, 300.00"))
    assert run.samples[0]["memory_used_bytes"] == 40960 * 2**20


def test_other_columns_of_nvidia_smi(log):
    content = (
        "timestamp, uuid, temperature.gpu, clocks.current.sm [MHz], clocks.mem [MHz], "
        "clocks_throttle_reasons.active, pstate, utilization.gpu [%]\n"
        "2024/06/01 11:27:05.177, GPU-8932f937, 61, 1410 MHz, 1215 MHz, 0x0000000000000044, P0, "
        "[Not Supported]\n"
    )
    (run,) = read("nvidia_smi", log, content)
    assert run.samples == [
        {
            "t_s": 0.0,
            "gpu": "GPU-8932f937",
            "temperature_c": 61.0,
            "clock_sm_mhz": 1410.0,
            "clock_memory_mhz": 1215.0,
            "throttle_reasons": "sw_power_cap+hw_thermal_slowdown",
        }
    ]
    assert "columns left out: pstate" in notes(run)


def test_a_log_without_a_header_is_refused_with_the_query_that_helps(log):
    content = "2024/06/01 11:27:05.177, NVIDIA A100-SXM4-40GB, 545.23.08, P0, 4 %, 40960 MiB\n"
    with pytest.raises(LogError, match=r"line 1: no header.*--query-gpu=timestamp,index,name"):
        read("nvidia_smi", log, content)


def test_a_header_without_a_timestamp_is_refused_with_the_query_that_helps(log):
    with pytest.raises(LogError, match=r"line 1: no timestamp.*--query-gpu=timestamp"):
        read("nvidia_smi", log, "index, utilization.gpu [%]\n0, 5 %\n")


def test_a_header_that_comes_again_and_one_that_comes_late_are_said(log):
    (again,) = read("nvidia_smi", log, HEADER + line(5) + HEADER + line(6))
    (late,) = read("nvidia_smi", log, line(4) + HEADER + line(5))
    assert [len(run.samples) for run in (again, late)] == [2, 1]
    assert "line 3 left out: the header again" in notes(again)
    assert "line 1 left out: before the header" in notes(late)


def test_a_header_with_other_columns_is_refused(log):
    content = HEADER + line(5) + "timestamp, utilization.gpu [%]\n"
    with pytest.raises(LogError, match="line 3: a header with other columns"):
        read("nvidia_smi", log, content)


def test_several_gpus_without_an_index_are_refused(log):
    rows = "timestamp, utilization.gpu [%]\n2024/06/01 11:27:05.177, 5 %\n"
    (alone,) = read("nvidia_smi", log, rows)
    assert "taken as GPU 0" in notes(alone)
    with pytest.raises(LogError, match=r"line 3: a sample at the same time .*of which GPU"):
        read("nvidia_smi", log, rows + "2024/06/01 11:27:05.179, 5 %\n")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line(5), "a time no later than that of the GPU's last sample"),
        (line(4), "a time before that of the first sample"),
        (line(99), "a timestamp that is not a date"),
        ("2024/06/01 11:27:06.0\n", "1 values for 6 columns"),
    ],
)
def test_a_line_that_is_no_new_sample_is_left_out_and_said(log, bad, reason):
    (run,) = read("nvidia_smi", log, HEADER + line(5) + bad + line(8))
    assert [row["t_s"] for row in run.samples] == [0.0, 3.0]
    assert f"line 3 left out: {reason}" in notes(run)


@pytest.mark.parametrize("value", ["101 %", "-1 %", "nan %", "1e400 %", "5 W h", "x"])
def test_a_value_that_cannot_be_is_left_out_and_said(log, value):
    (run,) = read("nvidia_smi", log, HEADER + line(5, 0, f"{value}, 1 MiB, 9.00 W"))
    assert "utilisation_percent" not in run.samples[0]
    assert "line 2 left out: utilization.gpu is not a number, or out of range" in notes(run)


def test_a_last_sample_that_is_cut_short_is_not_taken(log):
    (run,) = read("nvidia_smi", log, HEADER + line(5) + line(6)[:-4])
    assert len(run.samples) == 1
    assert "line 3 left out: no newline at its end" in notes(run)


def test_a_header_alone_is_refused(log):
    with pytest.raises(LogError, match="line 1: no sample after the header"):
        read("nvidia_smi", log, HEADER)


# Snakemake's benchmark files

COLUMNS = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"


def test_a_benchmark_of_snakemake_is_in_seconds_and_units_of_2_to_the_20(log):
    content = f"{COLUMNS}12.5000\t0:00:12\t512.25\t900.00\t1.00\t1.00\t0.00\t1.00\t99.00\t11.75\n"
    (run,) = read("snakemake_benchmark", log, content)
    assert run.columns == {
        "duration_s": 12.5,
        "cpu_time_s": 11.75,
        "peak_memory_bytes": 512 * 2**20 + 2**18,
    }


def test_json_lines_of_snakemake_are_the_same(log):
    row = {"s": 12.5, "h:m:s": "0:00:12", "max_rss": 512.25, "cpu_time": 11.75, "io_in": None}
    (run,) = read("snakemake_benchmark", log, json.dumps(row, sort_keys=True) + "\n")
    assert run.columns == {
        "duration_s": 12.5,
        "cpu_time_s": 11.75,
        "peak_memory_bytes": 512 * 2**20 + 2**18,
    }


def test_of_repeats_of_snakemake_none_is_taken_for_the_run(log):
    rows = "".join(f"{s}.0\t0:00:01\t1.0\t1\t1\t1\t-\t-\t1\t1.0\n" for s in (1, 3, 2))
    (run,) = read("snakemake_benchmark", log, gzip.compress((COLUMNS + rows).encode()))
    assert run.columns == {}
    assert run.lines == (2, 4)
    assert "3 repeats of the job, 1 to 3 s" in notes(run)


@pytest.mark.parametrize("absent", ["NA", "-"])
def test_what_snakemake_could_not_measure_is_absent(log, absent):
    cells = "\t".join([absent] * 8)
    (run,) = read("snakemake_benchmark", log, f"{COLUMNS}0.1\t0:00:00\t{cells}\n")
    assert run.columns == {"duration_s": 0.1}


@pytest.mark.parametrize(
    "row",
    ["", "1.0\t0:00:01", "{"]
    + [
        f"{s}\t0:00:01\t{memory}{chr(9)}1" + "\t1" * 6
        for s, memory in (("x", 1), ("-1", 1), ("nan", 1), ("1", "lots"), ("1", "1e99"))
    ],
)
def test_a_row_of_snakemake_that_is_none_is_refused_with_its_line(log, row):
    with pytest.raises(LogError, match="line 2: expected"):
        read("snakemake_benchmark", log, f"{COLUMNS}{row}\n")


def test_a_row_of_snakemake_that_is_cut_short_is_not_taken(log):
    with pytest.raises(LogError, match="no job was measured"):
        read("snakemake_benchmark", log, f"{COLUMNS}12.5\t0:00:12\t51")


# Horovod's timeline

NAME = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "conv1.kernel"}}


def timeline(*events, end="]"):
    return "[\n" + ",".join(map(json.dumps, [NAME, *events])) + end


def begin(name, at_us, tensor=1):
    return {"ph": "B", "name": name, "ts": at_us, "pid": tensor}


def end(at_us, tensor=1):
    return {"ph": "E", "ts": at_us, "pid": tensor}


def test_activities_of_horovod_are_summed_over_tensors(log):
    content = timeline(
        begin("NEGOTIATE_ALLREDUCE", 0),
        end(250_000),
        begin("NEGOTIATE_ALLREDUCE", 0, 2),
        end(500_000, 2),
        begin("ALLREDUCE", 500_000),
        begin("NCCL_ALLREDUCE", 600_000),
        begin("ALLREDUCE", 500_000, 2),
        end(700_000, 2),
        {"ph": "i", "name": "CYCLE_START", "ts": 5, "s": "g"},
        {"ph": "X", "name": "0", "ts": 5, "pid": 1, "dur": 0},
        end(900_000),
        end(1_500_000),
    )
    (run,) = read("horovod_timeline", log, content)
    assert run.columns == {}
    # 1.0 + 0.2 s, 0.25 + 0.5 s, 0.3 s
    assert notes(run) == (
        "rank 0's activities summed over 2 tensors, which overlap: allreduce 1.2 s (2 times), "
        "negotiation of allreduce 0.75 s (2 times), nccl allreduce 0.3 s (1 times)"
    )


def test_a_timeline_may_lack_its_end_and_the_end_of_activities(log):
    events = (begin("NEGOTIATE_ALLREDUCE", 0), end(500_000), begin("ALLREDUCE", 500_000))
    for tail in ("", ",", ",\n", "]"):
        (run,) = read("horovod_timeline", log, timeline(*events, end=tail))
        assert "negotiation of allreduce 0.5 s (1 times)" in notes(run)
        assert "1 activities left out: they did not end" in notes(run)


def test_a_timeline_that_is_cut_at_any_byte_has_what_is_before_it(log):
    content = horovod_timeline(0.5, 2)
    first = content.index('{"ph": "E"') + len('{"ph": "E", "ts": 100, "pid": 1}')
    for cut in range(first, len(content) - 1):
        (run,) = read("horovod_timeline", log, content[:cut])
        assert "negotiation of allreduce 0.000" in notes(run)


@pytest.mark.parametrize(
    "damage", ['{"ph": "B" "ts": 5}', "[5]", "7", '"x"', "{{", "nan", "[" * 9999]
)
def test_damage_in_a_timeline_is_refused_with_its_place(log, damage):
    start = timeline(begin("NEGOTIATE_ALLREDUCE", 0), end(500_000), end="")
    content = f"{start},{damage},{json.dumps(begin('ALLREDUCE', 500_000))}]"
    with pytest.raises(LogError, match=f"byte {len(start) + 1}: expected an event"):
        read("horovod_timeline", log, content)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (end(9), "an activity ends that did not begin"),
        ({"ph": "B", "ts": 5, "pid": 1}, "begins without a name"),
        ({"ph": "B", "name": "ALLREDUCE", "pid": 1}, "without its time or its tensor"),
        (begin("ALLREDUCE", -5), "without its time or its tensor"),
        (begin("ALLREDUCE", 5, None), "without its time or its tensor"),
        (begin("ALLREDUCE", 10**400), "without its time or its tensor"),
    ],
)
def test_an_event_that_cannot_be_is_refused(log, event, reason):
    events = (begin("NEGOTIATE_ALLREDUCE", 0), end(5), event)
    with pytest.raises(LogError, match=reason):
        read("horovod_timeline", log, timeline(*events))


def test_an_activity_that_ends_before_it_begins_is_refused(log):
    with pytest.raises(LogError, match="NEGOTIATE_ALLREDUCE ends before it begins"):
        read("horovod_timeline", log, timeline(begin("NEGOTIATE_ALLREDUCE", 9), end(5)))


def test_a_timeline_without_an_activity_is_refused(log):
    with pytest.raises(LogError, match="no activity in it that ended"):
        read("horovod_timeline", log, timeline(begin("NEGOTIATE_ALLREDUCE", 9)))


def test_a_long_timeline_on_one_line_is_read_in_pieces(log):
    content = horovod_timeline(0.001, 10_000).replace(",\n", ",")
    assert len(content) > 3 * 2**20
    (run,) = read("horovod_timeline", log, content)
    assert "allreduce 5 s (10000 times)" in notes(run)


# nvidia-smi in other locales and of newer drivers


def test_decimal_commas_of_nvidia_smi_are_read(log):
    comma = HEADER + (line(5.177) + line(6.677)).replace("300.00 W", "300,50 W")
    (run,) = read("nvidia_smi", log, comma)
    assert [row["power_w"] for row in run.samples] == [300.5, 300.5]
    assert run.samples[1]["energy_j"] == pytest.approx(1.5 * 300.5)
    assert "left out" not in notes(run)


@pytest.mark.parametrize("average", ["[N/A]", "[Not Supported]"])
def test_the_first_power_that_the_gpu_has_counts(log, average):
    header = HEADER.replace("power.draw [W]", "power.draw [W], power.draw.instant [W]")
    values = f"97 %, 40960 MiB, {average}, 250.00 W"
    (run,) = read("nvidia_smi", log, header + line(5.177, values=values))
    assert run.samples[0]["power_w"] == 250.0


def test_the_power_of_an_instant_alone_is_read(log):
    header = HEADER.replace("power.draw [W]", "power.draw.instant [W]")
    (run,) = read("nvidia_smi", log, header + line(5.177) + line(6.177))
    assert run.samples[1]["energy_j"] == pytest.approx(300.0)
