"""nvidia_smi_dmon: the table of nvidia-smi's dmon, with and without times."""

import pytest

from dlbench.imports import import_logs
from dlbench.imports.importers.machines import nvidia_smi_dmon
from dlbench.imports.log_file import LogError, LogFile
from support.logs.log_samples import nvidia_smi_dmon as dated
from support.logs.log_samples import tf_cnn_benchmarks
from support.logs.reading_logs import read

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


def test_samples_with_times_have_our_units_and_energy_by_the_trapezoid_rule(log):
    (run,) = read("nvidia_smi_dmon", log, TIMED)
    assert run.samples == [
        {"t_s": 0, "gpu": "0", "utilisation_percent": 50, "memory_used_bytes": 10 * 2**20,
         "power_w": 100, "energy_j": 0},
        {"t_s": 0, "gpu": "1", "memory_used_bytes": 10 * 2**20, "power_w": 60, "energy_j": 0},
        {"t_s": 2, "gpu": "0", "utilisation_percent": 60, "memory_used_bytes": 20 * 2**20,
         "power_w": 200, "energy_j": 300},
    ]  # fmt: skip
    assert "sm: not there in 1 samples" in run.notes


def test_samples_without_times_give_the_largest_memory_alone(log):
    (run,) = read("nvidia_smi_dmon", log, PLAIN)
    assert not run.samples and run.columns == {"peak_used_bytes_per_device": 200 * 2**20}
    notes = "\n".join(run.notes)
    assert "2 samples have no time, left out; with one: nvidia-smi dmon -s pucm -o DT" in notes
    assert "fields left out: dec, enc, mem, mtemp" in notes


def test_commas_of_csv_and_a_header_that_comes_again_change_nothing(log):
    content = dated(1, 4)
    (plain,) = read("nvidia_smi_dmon", log, content)
    header, units, *rows = content.splitlines(True)
    (again,) = read("nvidia_smi_dmon", log, "".join([header, units, *rows[:2], header, *rows[2:]]))
    assert again.samples == plain.samples and len(plain.samples) == 4
    separated = "".join(", ".join(line.split()) + "\n" for line in content.splitlines())
    (by_commas,) = read("nvidia_smi_dmon", log, separated)
    assert by_commas.samples == plain.samples


def test_a_table_of_processes_is_not_one_of_gpus(log):
    log.write_text("# gpu        pid  type    sm   mem\n    0      12345     C    10     1\n")
    assert not nvidia_smi_dmon.recognise(LogFile(log))


def test_tables_with_other_columns_are_two_logs(log):
    with pytest.raises(LogError, match="a header with other fields"):
        read("nvidia_smi_dmon", log, PLAIN + TIMED)


def test_samples_belong_to_the_run_of_their_folder(tmp_path):
    (tmp_path / "log").write_text(tf_cnn_benchmarks(0.125, 20))
    (tmp_path / "gpus").write_text(dated(1, 4))
    samples = tmp_path / "samples.parquet"
    made = import_logs.import_paths([tmp_path], outputs={"samples": samples})
    (row,) = made.rows
    assert row["peak_used_bytes_per_device"] == 40960 * 2**20 and "gpus:1-6" in row["source"]
