"""energy: the share of the time that readings cover."""

from dlbench.machine.energy import Coverage, fields


def test_power_that_was_not_read_for_two_intervals_covers_no_time():
    coverage = Coverage(longest_gap_s=2.0)
    for now_s, known in ((0, True), (1, True), (2, False), (3, True), (6, True), (10, True)):
        coverage.add(now_s, known)
    quality = coverage.quality(counter=False)
    assert quality == {"samples": 5, "sampled_share": 0.3, "resolution_s": 2.5}
    assert coverage.quality(counter=True)["sampled_share"] == 1.0
    once = Coverage(longest_gap_s=2.0)
    once.add(5.0, True)
    nothing = {"samples": 1, "sampled_share": None, "resolution_s": None}
    assert once.quality(counter=False) == nothing


def test_an_energy_that_is_not_known_has_a_reason_and_no_quality():
    told = fields("node_", None, "meter", "it ended", samples=5, sampled_share=1.0)
    assert told.pop("node_energy_unknown") == "it ended"
    assert set(told.values()) == {None}
    assert fields("", 2.0, "counter", "ignored")["energy_unknown"] is None
