"""Records of runs beside neighbours: unstable, and what those used in words."""

import pytest

from dlbench.log.event_log import EventLog
from support.runs.parsed_runs import parsed, write

WORDS = "others used 0.98 of 2 cores"


def beside(folder, others, status="ok", times=(9.0, 0.5, 0.5, 0.5), share=0.05):
    """The record of a run beside neighbours, by the event that its supervisor writes."""
    write(folder, times, status=status, message="" if status == "ok" else "what a pity")
    log = EventLog(folder / "train.jsonl")
    cores = {"cores": 2, "device_cores": 1, "resolution_cpu_cores": 0.01}
    fields = {"span_s": 3.0, "host": "here", "waited_for_quiet_s": 1.5, "share": share, **cores}
    unknown = {"cpu_clock_mhz": "no such file"}
    log.write("neighbours", others_cpu_cores=others, unknown=unknown, **fields)
    log.close()
    return parsed(folder)


def test_a_run_beside_neighbours_is_unstable_with_what_they_used_in_words(tmp_path):
    record = beside(tmp_path, 0.98)
    assert (record["status"], record["message"]) == ("unstable", WORDS)
    summary = record["summary"]
    assert (summary["disturbed"], summary["others_cpu_cores"]) == (WORDS, 0.98)
    assert (summary["waited_for_quiet_s"], summary["cpu_clock_mhz"]) == (1.5, None)
    assert summary["neighbours_unknown"] == "cpu_clock_mhz: no such file"


@pytest.mark.parametrize(("others", "share"), [(0.05, 0.05), (0.98, None), (None, 0.05)])
def test_a_run_that_nobody_disturbed_or_that_is_never_judged_is_ok(tmp_path, others, share):
    record = beside(tmp_path, others, share=share)
    assert (record["status"], record["summary"]["disturbed"]) == ("ok", None)
    assert record["summary"]["others_cpu_cores"] == others


def test_neighbours_are_named_before_the_steps_that_stalled_for_them(tmp_path):
    record = beside(tmp_path, 0.98, times=(9.0, 0.5, 0.5, 0.5, 2.0))
    assert record["status"] == "unstable"
    assert record["message"].startswith(f"{WORDS}; ")
    assert record["message"].endswith("some steps stalled")


def test_a_failure_stays_one_beside_neighbours_too(tmp_path):
    record = beside(tmp_path, 0.98, status="failed")
    assert (record["status"], record["message"]) == ("failed", "what a pity")
    assert record["summary"]["disturbed"] == WORDS


def test_a_log_of_before_says_nothing_of_neighbours(tmp_path):
    write(tmp_path, [9.0, 0.5, 0.5, 0.5])
    assert not {"disturbed", "others_cpu_cores"} & parsed(tmp_path)["summary"].keys()
