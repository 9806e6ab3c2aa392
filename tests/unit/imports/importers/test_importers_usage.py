"""Importers of logs beside a run: counters of GPUs, Horovod's timeline."""

import json

import pytest

from dlbench.imports import import_logs
from dlbench.imports.importers import gpu_counters
from dlbench.imports.log_file import LogError, LogFile
from support.logs import log_samples
from support.logs.reading_logs import notes, read

MIB = 2**20


# nvidia-smi --query-gpu

HEADER = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"


def line(second, gpu=0, values="97 %, 40960 MiB, 300.00 W"):
    return f"2024/06/01 11:27:{second:06.3f}, {gpu}, NVIDIA A100-SXM4-40GB, {values}\n"


def test_samples_of_nvidia_smi_count_from_the_first_and_have_our_units(log):
    (run,) = read("gpu_counters", log, HEADER + line(5.177) + line(6.677))
    both = {"gpu": "0", "utilisation_percent": 97, "memory_used_bytes": 40960 * MIB, "power_w": 300}
    assert run.samples == [both | {"t_s": 0, "energy_j": 0}, both | {"t_s": 1.5, "energy_j": 450}]
    memory = {"peak_used_bytes_per_device": 40960 * MIB}
    assert run.columns == {"device_model": "NVIDIA A100-SXM4-40GB", **memory}
    (run,) = read("gpu_counters", log, HEADER + line(5, 0, "97, 40960, 300.00"))
    assert run.samples[0]["memory_used_bytes"] == 40960 * MIB  # by the units of the header


def test_energy_is_power_over_time_by_the_trapezoid_rule_for_each_gpu(log):
    powers = [(0, 0, 100), (0, 1, 50), (2, 0, 300), (2, 1, 50), (3, 0, 100), (3, 1, 50)]
    content = HEADER + "".join(line(s, gpu, f"9 %, 1 MiB, {w}.00 W") for s, gpu, w in powers)
    (run,) = read("gpu_counters", log, content)
    # GPU 0: 2 s x 200 W + 1 s x 200 W; GPU 1: 3 s x 50 W.
    assert [row["energy_j"] for row in run.samples] == [0, 0, 400, 100, 600, 150]


def test_a_power_that_was_not_there_is_bridged(log):
    powers = ("100.00 W", "[N/A]", "200.00 W")
    content = HEADER + "".join(line(s, 0, f"9 %, 1 MiB, {w}") for s, w in enumerate(powers))
    (run,) = read("gpu_counters", log, content)
    assert [row.get("energy_j") for row in run.samples] == [0.0, None, 300.0]
    assert "power.draw: not there in 1 samples" in notes(run)


def test_decimal_commas_of_nvidia_smi_are_read(log):
    comma = HEADER + (line(5.177) + line(6.677)).replace("300.00 W", "300,50 W")
    (run,) = read("gpu_counters", log, comma)
    assert [row["power_w"] for row in run.samples] == [300.5, 300.5]
    assert run.samples[1]["energy_j"] == pytest.approx(1.5 * 300.5)
    assert "left out" not in notes(run)


@pytest.mark.parametrize(
    ("columns", "powers"),
    [
        ("power.draw [W], power.draw.instant [W]", "[N/A], 300.00 W"),
        ("power.draw [W], power.draw.instant [W]", "[Not Supported], 300.00 W"),
        ("power.draw.instant [W]", "300.00 W"),
    ],
)
def test_the_first_power_that_the_gpu_has_counts(log, columns, powers):
    content = HEADER.replace("power.draw [W]", columns)
    content += "".join(line(second, values=f"97 %, 1 MiB, {powers}") for second in (5, 6))
    (run,) = read("gpu_counters", log, content)
    assert run.samples[1]["power_w"] == run.samples[1]["energy_j"] == 300


def test_other_columns_of_nvidia_smi(log):
    content = (
        "timestamp, uuid, temperature.gpu, clocks.current.sm [MHz], clocks.mem [MHz], "
        "clocks_throttle_reasons.active, pstate, utilization.gpu [%]\n"
        "2024/06/01 11:27:05.177, GPU-8932f937, 61, 1410 MHz, 1215 MHz, 0x0000000000000044, P0, "
        "[Not Supported]\n"
    )
    (run,) = read("gpu_counters", log, content)
    clocks = {"temperature_c": 61.0, "clock_sm_mhz": 1410.0, "clock_memory_mhz": 1215.0}
    reasons = {"throttle_reasons": "sw_power_cap+hw_thermal_slowdown"}
    assert run.samples == [{"t_s": 0.0, "gpu": "GPU-8932f937"} | clocks | reasons]
    assert "columns left out: pstate" in notes(run)


NO_INDEX = "timestamp, utilization.gpu [%]\n2024/06/01 11:27:05.177, 5 %\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (line(5), r"line 1: no header.*--query-gpu=timestamp,index,name"),
        ("index, utilization.gpu [%]\n0, 5 %\n", "line 1: no timestamp.*--query-gpu=timestamp"),
        (HEADER, "line 1: no sample of a GPU after the header"),
        (HEADER + line(5) + NO_INDEX, "line 3: a header with other columns"),
        (
            NO_INDEX + "2024/06/01 11:27:05.179, 5 %\n",
            "line 3: a sample at the same time .*of which GPU",
        ),
    ],
)
def test_a_log_of_nvidia_smi_that_has_no_samples_of_known_gpus_is_refused(log, content, reason):
    with pytest.raises(LogError, match=reason):
        read("gpu_counters", log, content)


@pytest.mark.parametrize(
    ("content", "samples", "note"),
    [
        (NO_INDEX, 1, "taken as GPU 0"),
        (HEADER + line(5) + HEADER + line(6), 2, ""),
        (line(4) + HEADER + line(5), 1, "line 1 left out: before the header"),
        (HEADER + line(5) + line(6)[:-4], 1, "line 3 left out: no newline at its end"),
        (HEADER + line(5) + line(5), 1, "a time no later than that of the GPU's last sample"),
        (HEADER + line(5) + line(4), 1, "a time no later than that of the GPU's last sample"),
        (HEADER + line(5) + line(99), 1, "line 3 left out: a timestamp that is not a date"),
        (HEADER + line(5) + "2024/06/01 11:27:06.0\n", 1, "line 3 left out: 1 values for 6"),
    ],
)
def test_a_line_of_nvidia_smi_that_is_no_new_sample_is_left_out_and_said(
    log, content, samples, note
):
    (run,) = read("gpu_counters", log, content)
    assert len(run.samples) == samples and run.samples[0]["t_s"] == 0
    assert note in notes(run)


@pytest.mark.parametrize("value", ["101 %", "-1 %", "nan %", "5 W h"])
def test_a_value_that_cannot_be_is_left_out_and_said(log, value):
    (run,) = read("gpu_counters", log, HEADER + line(5, 0, f"{value}, 1 MiB, 9.00 W"))
    assert "utilisation_percent" not in run.samples[0]
    assert "line 2 left out: utilization.gpu is not a number, or out of range" in notes(run)


# nvidia-smi dmon

PLAIN = """# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk    fb
# Idx     W     C     C     %     %     %     %   MHz   MHz    MB
    0   270    53     -    10     1     0     0  7000  1875   100
    0   281    57     -    85    54     0     0  7000  1740   200
"""
TIMED = """#Time        gpu   pwr    sm    fb
#HH:MM:SS    Idx     W     %    MB
 23:59:59      0   100    50    10
 23:59:59      1    60     -    10
 00:00:01      0   200    60    20
"""


def test_samples_of_dmon_have_our_units_and_energy_by_the_trapezoid_rule(log):
    (run,) = read("gpu_counters", log, TIMED)
    assert run.samples == [
        {"t_s": 0, "gpu": "0", "utilisation_percent": 50, "memory_used_bytes": 10 * MIB,
         "power_w": 100, "energy_j": 0},
        {"t_s": 0, "gpu": "1", "memory_used_bytes": 10 * MIB, "power_w": 60, "energy_j": 0},
        {"t_s": 2, "gpu": "0", "utilisation_percent": 60, "memory_used_bytes": 20 * MIB,
         "power_w": 200, "energy_j": 300},
    ]  # fmt: skip
    assert "sm: not there in 1 samples" in run.notes


def test_samples_of_dmon_without_times_give_the_largest_memory_alone(log):
    (run,) = read("gpu_counters", log, PLAIN)
    assert not run.samples and run.columns == {"peak_used_bytes_per_device": 200 * MIB}
    assert "have no time, left out; with one: nvidia-smi dmon -s pucm -o DT" in notes(run)
    assert "columns left out: dec, enc, mem, mtemp" in notes(run)


def test_commas_of_csv_and_a_header_that_comes_again_change_nothing_of_dmon(log):
    content = log_samples.nvidia_smi_dmon(1, 4)
    (plain,) = read("gpu_counters", log, content)
    header, units, *rows = content.splitlines(True)
    (again,) = read("gpu_counters", log, "".join([header, units, *rows[:2], header, *rows[2:]]))
    separated = "".join(", ".join(line.split()) + "\n" for line in content.splitlines())
    (by_commas,) = read("gpu_counters", log, separated)
    assert by_commas.samples == again.samples == plain.samples and len(plain.samples) == 4


def test_tables_of_processes_or_of_several_headers_are_none_of_dmon(log):
    log.write_text("# gpu        pid  type    sm   mem\n    0      12345     C    10     1\n")
    assert not gpu_counters.recognise(LogFile(log))
    with pytest.raises(LogError, match="a header with other columns"):
        read("gpu_counters", log, PLAIN + TIMED)


def test_samples_belong_to_the_run_of_their_folder(tmp_path):
    (tmp_path / "log").write_text(log_samples.tf_cnn_benchmarks(0.125, 20))
    (tmp_path / "gpus").write_text(log_samples.nvidia_smi_dmon(1, 4))
    (row,) = import_logs.import_paths([tmp_path]).rows
    assert row["peak_used_bytes_per_device"] == 40960 * MIB and "gpus:1-6" in row["source"]


# dcgmi dmon

DCGM = "#Entity         GPUTL   FBUSD   POWER     TOTEC\nID              %   MB   W   mJ\n"


def dated(*seconds_and_lines):
    return "".join(f"2026-07-06T16:07:{s:09.6f} {line}\n" for s, line in seconds_and_lines)


def test_samples_of_dcgm_have_our_units_and_the_energy_of_its_counter(log):
    rows = dated(
        (1, "GPU 0    97    40960    300.250   5000000"),
        (1, "GPU 1    10    1024     60.000    7000000"),
        (2.5, "GPU 0    98    40960    310.000   5450500"),
    )
    (run,) = read("gpu_counters", log, DCGM + rows)
    assert run.samples[2] == {
        "t_s": 1.5, "gpu": "0", "utilisation_percent": 98.0, "memory_used_bytes": 40960 * MIB,
        "power_w": 310.0, "energy_j": 450.5,
    }  # fmt: skip
    assert [row["energy_j"] for row in run.samples] == [0, 0, 450.5]


def test_samples_of_dcgm_without_dates_are_left_out_but_their_energy_and_memory_are_known(log):
    rows = "GPU 0    97    40960    300.250   5000\nGPU 0    97    1    300.250   7500\n"
    (run,) = read("gpu_counters", log, DCGM + rows)
    assert run.samples == []
    assert run.columns == {"peak_used_bytes_per_device": 40960 * MIB}
    assert "2 samples have no time, left out; with one: dcgmi dmon" in notes(run)
    assert "2.5 J of 1 GPUs by DCGM's counter" in notes(run)


def test_what_dcgm_prints_beside_samples_of_gpus_is_left_out_and_said(log):
    rows = "GPU 0    N/A    40960    300.250   5000\nSwitch 3    1    2    3    4\n"
    (run,) = read("gpu_counters", log, DCGM + rows + DCGM + rows)
    assert "GPUTL: not there in 2 samples" in notes(run)
    assert "left out: not a whole GPU: Switch" in notes(run)
    # A header as cpu_swe_benchmark's test has it.
    content = "#Entity         GPUTL             MCUTL             DRAMA\nID\n"
    (run,) = read("gpu_counters", log, content + dated((1, "GPU 0  10  20  N/A")))
    assert run.samples == [{"t_s": 0.0, "gpu": "0", "utilisation_percent": 10.0}]
    assert "columns left out: DRAMA, MCUTL" in notes(run)


def test_a_counter_that_went_back_and_a_clock_that_went_back_are_said(log):
    rows = dated((2, "GPU 0  1  2  3  5000"), (1, "GPU 0  1  2  3  4000"))
    (run,) = read("gpu_counters", log, DCGM + rows)
    assert len(run.samples) == 1
    assert "the energy counter went backwards" in notes(run)
    assert "a time no later than that of the GPU's last sample" in notes(run)


def test_a_log_of_dcgm_without_a_sample_or_with_two_headers_is_refused(log):
    with pytest.raises(LogError, match="no sample of a GPU"):
        read("gpu_counters", log, DCGM)
    with pytest.raises(LogError, match="line 4: a header with other columns"):
        read("gpu_counters", log, DCGM + "GPU 0  1  2  3  4\n#Entity  GPUTL\n")


# Horovod's timeline


def timeline(*events, end="]"):
    name = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "conv1.kernel"}}
    return "[\n" + ",".join(map(json.dumps, [name, *events])) + end


def begin(name, at_us, tensor=1):
    return {"ph": "B", "name": name, "ts": at_us, "pid": tensor}


def end(at_us, tensor=1):
    return {"ph": "E", "ts": at_us, "pid": tensor}


def test_activities_of_horovod_are_summed_over_tensors_as_far_as_its_timeline_goes(log):
    events = (
        begin("NEGOTIATE_ALLREDUCE", 0), end(250_000),
        begin("NEGOTIATE_ALLREDUCE", 0, 2), end(500_000, 2),
        begin("ALLREDUCE", 500_000), begin("NCCL_ALLREDUCE", 600_000),
        begin("ALLREDUCE", 500_000, 2), end(700_000, 2),
        {"ph": "i", "name": "CYCLE_START", "ts": 5, "s": "g"},
        {"ph": "X", "name": "0", "ts": 5, "pid": 1, "dur": 0},
        end(900_000), end(1_500_000),
    )  # fmt: skip
    # 1.0 + 0.2 s, 0.25 + 0.5 s, 0.3 s
    summed = (
        "rank 0's activities summed over 2 tensors, which overlap: allreduce 1.2 s (2 times), "
        "negotiation of allreduce 0.75 s (2 times), nccl allreduce 0.3 s (1 times)"
    )
    (run,) = read("horovod_timeline", log, timeline(*events))
    assert run.columns == {} and notes(run) == summed
    for tail in ("", ',\n{"ph": "B"'):
        (run,) = read("horovod_timeline", log, timeline(*events, begin("ALLREDUCE", 5), end=tail))
        assert summed in notes(run) and "1 activities left out: they did not end" in notes(run)


def test_damage_in_a_timeline_is_refused_with_its_place(log):
    start = timeline(begin("NEGOTIATE_ALLREDUCE", 0), end(500_000), end="")
    content = f'{start},{{"ph": "B" "ts": 5}},{json.dumps(begin("ALLREDUCE", 500_000))}]'
    with pytest.raises(LogError, match=f"byte {len(start) + 1}: expected an event"):
        read("horovod_timeline", log, content)
