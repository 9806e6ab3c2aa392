"""dcgm_dmon: the table of DCGM's dmon, with and without times."""

import pytest

from dlbench.imports.log_file import LogError
from support.logs.reading_logs import notes, read

HEADER = "#Entity         GPUTL   FBUSD   POWER     TOTEC\nID              %   MB   W   mJ\n"


def dated(*seconds_and_lines):
    return "".join(f"2026-07-06T16:07:{s:09.6f} {line}\n" for s, line in seconds_and_lines)


def test_samples_of_dcgm_have_our_units_and_the_energy_of_its_counter(log):
    rows = dated(
        (1, "GPU 0    97    40960    300.250   5000000"),
        (1, "GPU 1    10    1024     60.000    7000000"),
        (2.5, "GPU 0    98    40960    310.000   5450500"),
    )
    (run,) = read("dcgm_dmon", log, HEADER + rows)
    assert run.samples[2] == {
        "t_s": 1.5,
        "gpu": "0",
        "utilisation_percent": 98.0,
        "memory_used_bytes": 40960 * 2**20,
        "power_w": 310.0,
        "energy_j": 450.5,
    }
    assert [row["energy_j"] for row in run.samples] == [0, 0, 450.5]


def test_samples_without_dates_are_left_out_but_their_energy_and_memory_are_known(log):
    rows = "GPU 0    97    40960    300.250   5000\nGPU 0    97    1    300.250   7500\n"
    (run,) = read("dcgm_dmon", log, HEADER + rows)
    assert run.samples == []
    assert run.columns == {"peak_used_bytes_per_device": 40960 * 2**20}
    assert "2 samples have no time, left out; with one: dcgmi dmon" in notes(run)
    assert "2.5 J of 1 GPUs by DCGM's counter" in notes(run)


def test_repeated_headers_are_skipped_and_rows_of_no_whole_gpu_are_left_out(log):
    rows = "GPU 0    N/A    40960    300.250   5000\nSwitch 3    1    2    3    4\n"
    (run,) = read("dcgm_dmon", log, HEADER + rows + HEADER + rows)
    assert "GPUTL: not there in 2 samples" in notes(run)
    assert "left out: not a whole GPU: Switch" in notes(run)


def test_fields_that_are_not_imported_are_named(log):
    # A header as cpu_swe_benchmark's test has it.
    content = "#Entity         GPUTL             MCUTL             DRAMA\nID\n"
    (run,) = read("dcgm_dmon", log, content + dated((1, "GPU 0  10  20  N/A")))
    assert run.samples == [{"t_s": 0.0, "gpu": "0", "utilisation_percent": 10.0}]
    assert "fields left out: DRAMA, MCUTL" in notes(run)


def test_a_counter_that_went_back_and_a_clock_that_went_back_are_said(log):
    rows = dated((2, "GPU 0  1  2  3  5000"), (1, "GPU 0  1  2  3  4000"))
    (run,) = read("dcgm_dmon", log, HEADER + rows)
    assert len(run.samples) == 1
    assert "the energy counter went backwards" in notes(run)
    assert "a date earlier than that of the sample before" in notes(run)


def test_a_log_of_dcgm_without_a_sample_or_with_two_headers_is_refused(log):
    with pytest.raises(LogError, match="no sample of a GPU"):
        read("dcgm_dmon", log, HEADER)
    with pytest.raises(LogError, match="line 4: a header with other fields"):
        read("dcgm_dmon", log, HEADER + "GPU 0  1  2  3  4\n#Entity  GPUTL\n")
