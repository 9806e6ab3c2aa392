"""What a study's numbers show, from tables whose outcome is known by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from dlbench.analysis import estimates, nodes
from dlbench.analysis.comparisons import by_field
from dlbench.report import findings
from dlbench.report.findings import INDICATED, OPEN, SHOWN
from support.results.made_tables import run

STEP = 1.001


def repeats(rate, count=3, **changes):
    """Runs whose throughputs lie 0.1 % apart around `rate`, their geometric mean."""
    middle = (count - 1) / 2
    return [
        run(repeat=i + 1, images_per_second=rate * STEP ** (i - middle), **changes)
        for i in range(count)
    ]


def speedup(devices, efficiency, low=None, high=None, **changes):
    return {
        "base_devices": 1, "base_runs": 3, "base_images_per_second": 100.0, "runs": 3,
        "model": "resnet50", "dataset": "synthetic", "scaling": "weak", "batch_per_device": 64,
        "strategy": "mirrored", "device_kind": "gpu", "devices": devices,
        "speedup": efficiency * devices, "efficiency": efficiency, "efficiency_ci95_low": low,
        "efficiency_ci95_high": high, "base_mismatch": "", "timing_source": "dlbench",
    } | changes  # fmt: skip


def comparison(verdict, ratio=1.0, low=0.99, high=1.01, **changes):
    return {
        "field": "runtime", "condition": "apptainer", "base": "bare", "model": "vgg16",
        "dataset": "digits", "batch_per_device": 8, "verdict": verdict, "ratio": ratio,
        "ci95_low": low, "ci95_high": high, "margin": 0.01, "n_a": 5, "n_b": 5,
        "repeats_needed": 40, "base_flags": "",
    } | changes  # fmt: skip


def found(runs=(), speedups=(), comparisons=()):
    return findings.findings(list(runs), list(speedups), list(comparisons))


def test_the_best_of_the_series_that_go_farthest_is_named_with_its_interval():
    points = [speedup(2, 0.99, 0.98, 1.0), speedup(8, 0.9, 0.88, 0.92)]
    (finding,) = found(speedups=[*points, speedup(8, 0.7, 0.68, 0.72, strategy="horovod")])
    assert finding.headline == "8 GPUs keep 90 % of linear scaling"
    assert (finding.number, finding.interval) == ("90 %", "88 to 92 %")
    assert finding.evidence == SHOWN
    assert "7.2 times the base of 1 GPU (100 items/s), 3 runs each" in finding.text
    assert "The best of 2 series; the worst, resnet50, synthetic, batch 64, horovod" in finding.text


def test_the_series_that_is_named_starts_at_one_device_of_the_same_kind_as_its_points():
    points = [speedup(16, 0.95, 0.94, 0.96, base_devices=8), speedup(8, 0.8, 0.79, 0.81)]
    (finding,) = found(speedups=[*points, speedup(8, 1.4, 1.3, 1.5, base_mismatch="strategy")])
    assert finding.headline.startswith("8 GPUs keep 80 %")
    assert "Left out: 1 point (point and base differ in strategy in 1)." in finding.text
    (finding,) = found(speedups=[speedup(2, 0.99, 0.98, 1.0, base_tokens_per_second=2560.0)])
    assert "1.98 times the base of 1 GPU (2560 tokens/s)" in finding.text  # of texts


def test_where_every_base_differs_no_number_is_given():
    (finding,) = found(speedups=[speedup(8, 1.4, 1.3, 1.5, base_mismatch="device_model")])
    assert (finding.number, finding.evidence, finding.kind) == ("", OPEN, "bad")
    assert finding.headline == "No speedup of this study isolates the effect of more devices"
    assert finding.text == "Of 1 speedup, point and base differ in device_model in 1."
    flags = ("strategy", "neighbours", "neighbours")
    (finding,) = found(
        speedups=[speedup(2 * n, 1.4, 1.3, 1.5, base_mismatch=f) for n, f in enumerate(flags, 1)]
    )
    assert finding.text == (
        "Of 3 speedups, some runs of point and base were disturbed in 2; "
        "point and base differ in strategy in 1."
    )


@pytest.mark.parametrize(
    ("low", "changes", "evidence"),
    [
        (0.8, {}, SHOWN),
        (0.8, {"runs": 2}, INDICATED),
        (None, {"runs": 1}, OPEN),
        (0.1, {}, OPEN),  # it may be no speedup
        (0.8, {"base_mismatch": "neighbours"}, OPEN),
    ],
)
def test_evidence_of_scaling_is_how_many_runs_stand_behind_it(low, changes, evidence):
    (finding,) = found(speedups=[speedup(8, 0.9, low, low and 0.95, **changes)])
    assert finding.evidence == evidence
    assert ("Undecided" in finding.text) == (low == 0.1)


def test_published_numbers_are_no_finding():
    published = [speedup(8, 0.9, 0.8, 1.0, timing_source="published")]
    runs = repeats(100.0, timing_source="published") + repeats(
        200.0, timing_source="published", precision="float16"
    )
    assert found(runs, published) == []


def test_comparisons_come_with_verdict_interval_and_counts():
    slower = comparison("slower", 0.934, 0.929, 0.938, batch_per_device=64)
    (finding,) = found(comparisons=[slower, comparison("equivalent")])
    assert finding.headline == "apptainer is slower than bare"
    assert (finding.number, finding.interval) == ("\u22126.6 %", "\u22127.1 to \u22126.2 %")
    assert "vgg16, digits, batch 64" in finding.text
    assert "1 slower, 1 equivalent" in finding.text
    assert (finding.evidence, finding.kind) == (SHOWN, "bad")


def test_undecided_is_open_and_says_what_it_takes():
    (finding,) = found(comparisons=[comparison("undecided", 1.002, 0.98, 1.02)])
    assert finding.headline == "apptainer against bare: undecided"
    of_parameter = {"field": "parameters.tensor_parallel", "condition": "4", "base": "1"}
    (named,) = found(comparisons=[comparison("undecided", 1.002, 0.98, 1.02) | of_parameter])
    assert named.headline == "tensor parallel 4 against tensor parallel 1: undecided"
    (few,) = found(comparisons=[comparison("too few runs", 9.98)])
    assert (few.number, few.interval) == ("", "")
    (wide,) = found(comparisons=[comparison("undecided", 1.2, 0.4, 2.9)])
    assert (wide.number, wide.interval) == ("\u00d7 1.2", "0.4 to 2.9")  # written alike
    assert finding.evidence == OPEN
    assert "about 40 repeats" in finding.text


def test_what_is_undecided_only_by_the_correction_says_so():
    (finding,) = found(comparisons=[comparison("undecided", 0.67, 0.5, 0.9, family=35)])
    assert (
        "excludes equality; with p values adjusted for 35 comparisons (Holm) no difference"
        in finding.text
    )
    for alike in ({"low": 0.9, "high": 1.2, "family": 35}, {"low": 0.5, "high": 0.9, "family": 1}):
        (finding,) = found(comparisons=[comparison("undecided", 0.95, **alike)])
        assert "adjusted" not in finding.text
    # Nine pairs, one of which differs at the 5 % level.
    pairs = [repeats(100 + i, model=f"m{i}", strategy=s) for i in range(9) for s in ("a", "b")]
    scattered = [
        run(repeat=i, model="x", strategy=s, images_per_second=rate)
        for s, rates in (("a", (100, 101, 102)), ("b", (103, 104, 105.5)))
        for i, rate in enumerate(rates, 1)
    ]
    (finding,) = found(runs=[row for pair in pairs for row in pair] + scattered)
    assert finding.headline.endswith("undecided") or "equivalent" in finding.headline


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("framework_version", "Flagged: the two sides also differ in framework_version"),
        ("neighbours", "some runs of the two sides were disturbed"),
    ],
)
def test_a_comparison_of_sides_that_differ_in_more_is_only_indicated(flag, words):
    (finding,) = found(comparisons=[comparison("faster", 1.2, 1.1, 1.3, base_flags=flag)])
    assert finding.evidence == INDICATED and words in finding.text


def test_a_finding_of_two_sites_names_that_of_its_number():
    sites = [
        speedup(8, share, share - 0.01, share + 0.01, site=site)
        for site, share in (("here", 0.9), ("there", 0.7))
    ]
    runs = [run(site="here"), run(site="there")]
    scaling = next(f for f in found(runs=runs, speedups=sites) if "linear" in f.headline)
    assert "here: resnet50" in scaling.text and "there: resnet50" in scaling.text
    compared = [comparison("slower", 0.9, 0.89, 0.91, site="there")]
    (finding,) = (f for f in found(runs=runs, comparisons=compared) if "apptainer" in f.headline)
    assert finding.text.startswith("there: vgg16")
    (finding,) = found(runs=runs[:1], comparisons=compared)
    assert finding.text.startswith("vgg16")


def test_what_differs_in_one_field_only_is_compared_by_itself_unless_the_config_does():
    base, other = repeats(100.0), repeats(130.0, precision="float16")
    (finding,) = found(base + other)
    assert finding.headline == "float16 is faster than float32"
    ratio = estimates.ratio(*([row["images_per_second"] for row in side] for side in (other, base)))
    ends = [f"{100 * (end - 1):+.1f}" for end in (ratio.value, ratio.low, ratio.high)]
    assert (finding.number, finding.interval) == (f"{ends[0]} %", f"{ends[1]} to {ends[2]} %")
    assert finding.evidence == SHOWN
    assert "Exploratory: not planned in the config; p values adjusted for 1 comparison (Holm)." in (
        finding.text
    )
    assert found(base + repeats(250.0, precision="float16", xla=True)) == []
    runs = base + repeats(250.0, runtime="apptainer")
    headlines = [finding.headline for finding in found(runs, comparisons=[comparison("faster")])]
    assert headlines == ["apptainer is faster than bare"]


def test_conditions_that_were_measured_apart_are_only_indicated():
    runs = repeats(100.0, session="A") + repeats(250.0, runtime="apptainer", session="B")
    (finding,) = found(runs)
    assert finding.evidence == INDICATED
    assert "the two sides were measured apart. After dlbench retry" in finding.text
    once_more = [row | {"session": "B"} for row in runs[:3]]
    (finding,) = findings.findings(runs, [], [], once_more)
    assert finding.evidence == SHOWN
    assert "The ratio is corrected for the drift between their sessions, 0.0 %" in finding.text
    slower = [row | {"images_per_second": 0.9 * row["images_per_second"]} for row in once_more]
    (finding,) = findings.findings(runs, [], [], slower)
    assert finding.evidence == INDICATED and finding.number == "\u00d7 2.78"


def test_a_batch_size_is_compared_from_the_smallest_to_the_largest():
    runs = [r for b in (16, 32, 64) for r in repeats(10.0 * b, batch_per_device=b)]
    ((a, b, compared, _),) = by_field(runs, (), 0.01)["batch_per_device"]
    assert (a[0]["batch_per_device"], b[0]["batch_per_device"]) == (64, 16)
    assert compared.ratio == pytest.approx(4)


def test_of_several_contrasts_it_is_said_why_one_is_named():
    runs = [
        row
        for model, rate in (("resnet50", 40.0), ("vgg16", 10.0))
        for batch in (16, 256)
        for row in repeats(rate if batch == 16 else 20.0, batch_per_device=batch, model=model)
    ]
    (finding,) = found(runs)
    assert (
        "The best supported, then the clearest, of 2 comparisons of batch per device (1 slower, "
        "1 faster)."
    ) in finding.text


def test_unasked_comparisons_are_corrected_for_one_another():
    runs = [
        row
        for batch in (16, 64)
        for precision, rate in (("float32", 100.0), ("float16", 100.2))
        for row in repeats(rate, batch_per_device=batch, precision=precision)
    ]
    made = by_field(runs, (), 0.01)
    assert {len(pairs) for pairs in made.values()} == {2}
    for pairs in made.values():
        for _, _, compared, _ in pairs:
            assert compared.family == 4
            assert compared.p_difference >= compared.p_difference_raw


def test_a_single_run_of_each_is_open_and_says_so():
    (finding,) = found(repeats(100.0, 1) + repeats(250.0, 1, precision="float16"))
    assert finding.evidence == OPEN
    assert "one run each: no interval" in finding.text
    assert finding.interval == ""


def test_gates_that_were_missed_are_counted():
    runs = [
        run(repeat=i, learning_gate="reached" if i < 3 else "missed: top1 0.2") for i in (1, 2, 3)
    ]
    (finding,) = found(runs)
    assert (finding.number, finding.kind) == ("2 of 3 runs", "bad")
    assert finding.headline == "2 of 3 runs with a learning gate reach it"
    assert "missed: top1 0.2" in finding.text


def test_what_is_shown_comes_before_what_is_asked_for_but_undecided():
    runs = repeats(100.0) + repeats(250.0, precision="float16")
    made = found(runs, [speedup(8, 0.9, 0.88, 0.92)], [comparison("undecided")])
    evidence = [finding.evidence for finding in made]
    assert evidence == [SHOWN, SHOWN, OPEN]


WORDS = "others used 0.98 of 2 cores"


def test_what_is_shown_stands_before_a_larger_difference_beside_neighbours():
    large = [*repeats(100, 8, model="vgg16"), *repeats(300, 8, model="vgg16", strategy="horovod")]
    loud = [row | {"disturbed": WORDS} for row in large]
    (finding,) = found([*large[:8], *loud[8:]])
    assert finding.evidence == INDICATED
    words = "Flagged: some runs of the two sides were disturbed."
    assert words in finding.text
    for rate, word in ((110, "slower"), (100, "equivalent")):
        small = [*repeats(100, 8), *repeats(rate, 8, strategy="horovod")]
        (finding,) = found([*small, *large])
        assert finding.text.startswith("vgg16")
        (finding,) = found([*small, *loud])
        assert finding.text.startswith("resnet50") and word in finding.headline
        assert finding.evidence == SHOWN


def test_no_finding_rests_on_runs_whose_numbers_contradict_one_another():
    sound = [*repeats(100.0), *repeats(200.0, precision="float16")]
    assert found() == [] and len(found(sound)) == 1
    doubtful = [row | {"contradicts": "8 times as much"} for row in sound]
    assert found(doubtful) == []
    gated = [row | {"learning_gate": "reached"} for row in doubtful]
    assert found(gated) == []


def of_nodes(*slow, site="here"):
    """Rows of the table of nodes, of 12 nodes with 6 runs each, the slow ones 5 % slower."""
    chance = np.random.default_rng(1)
    made = [
        run(
            repeat=repeat,
            host=f"n{number}",
            site=site,
            images_per_second=(95.0 if number in slow else 100.0) * np.exp(chance.normal(0, 0.005)),
        )
        for number in range(12)
        for repeat in range(1, 7)
    ]
    return nodes.rows(SimpleNamespace(name="made", equivalence_margin=0.01), made)


def test_a_slow_node_is_named_with_its_evidence():
    (found,) = findings.node_findings(of_nodes(2))
    assert found.headline == "1 of 12 nodes slower than the others: n2"
    assert found.number.startswith("\u2212") and " to " in found.interval
    assert found.text.startswith(f"n2: {found.number} ({found.interval}) in 6 runs, p = ")
    assert "middle half of the 11 others" in found.text and "margin of 1 %" in found.text
    assert (found.evidence, found.kind, found.tables) == ("shown", "bad", ("nodes",))
    assert findings.node_findings(of_nodes()) == findings.node_findings([]) == []


def test_it_is_said_where_others_disturbed_all_runs_of_a_slow_node():
    (found,) = findings.node_findings([row | {"disturbed": True} for row in of_nodes(2)])
    assert "in 6 runs, all disturbed, p = " in found.text
    assert found.evidence == "indicated"
    both = [row | {"disturbed": row["node"] == "n2"} for row in of_nodes(2, 5)]
    (found,) = findings.node_findings(both)
    assert found.evidence == "shown" and found.text.startswith("n5: ")


def test_several_slow_nodes_are_one_finding_and_of_many_the_first_are_named():
    (found,) = findings.node_findings(of_nodes(2, 5))
    assert found.headline.startswith("2 of 12 nodes slower than the others: n")
    many = [row | {"verdict": nodes.SLOWER} for row in of_nodes(2)]
    (found,) = findings.node_findings(many)
    assert found.headline.endswith(" and 7 more") and found.text.count("p = ") == 5


def test_nodes_of_several_sites_are_named_with_their_site():
    found = findings.node_findings([*of_nodes(2), *of_nodes(3, site="there")])
    assert [one.headline.partition(":")[0] for one in found] == ["here", "there"]
