"""Energy: which one is drawn, what is flagged, and the front of energy against throughput."""

import pytest

from dlbench.analysis import estimates
from dlbench.drawing.figures import energy as energies
from dlbench.drawing.figures import energy_throughput
from support.results import made_tables
from support.results.drawn_figures import has

ENERGIES = ("energy_j", "energy_per_image_j")


def rows(prefix="", **changes):
    """Runs on one and four devices, whose energy has another beginning of its columns."""
    found = made_tables.with_energy(made_tables.study(devices=[1, 4], model="resnet50"))
    return [
        {key: value for key, value in row.items() if key not in ENERGIES}
        | {f"{prefix}{key}": row[key] for key in ENERGIES}
        | changes
        for row in found
    ]


def texts(axes):
    return " ".join(text.get_text() for text in axes.texts)


def test_a_point_is_the_energy_and_the_throughput_of_a_condition(panels):
    made = rows()
    (axes,) = panels("energy_throughput", made)
    for devices in (1, 4):
        own = [row for row in made if row["devices"] == devices]
        for name, along in (("energy_per_image_j", "y"), ("images_per_second", "x")):
            assert has(axes, estimates.mean([row[name] for row in own]).value, along=along)
    assert axes.get_ylabel().startswith("J / image")
    assert "energy of all GPUs \u00b7 numbers: devices \u00b7 grey: Pareto front" in texts(axes)


@pytest.mark.parametrize(("prefix", "whose"), energies.KINDS.items())
def test_one_kind_of_energy_is_drawn_and_the_figure_says_which(panels, prefix, whose):
    (row,) = panels("energy", rows(prefix))
    assert f"of {whose}" in texts(row)
    # Beside those of GPUs no other energy is drawn.
    both = [
        row | {"host_energy_per_image_j": 5.0, "energy_per_image_j": 77.0} for row in rows(prefix)
    ]
    assert "of all GPUs" in texts(panels("energy", both)[0])


def test_runs_whose_energy_rests_on_few_readings_are_counted_beside_their_row(panels):
    made = rows()
    made[0]["energy_remark"] = "GPUs: 5 readings, fewer than 60"
    (axes,) = panels("energy", made)
    assert f"1 of {sum(row['devices'] == 1 for row in made)}: energy_remark" in texts(axes)
    (axes,) = panels("energy_throughput", made)
    assert f"1 of {len(made)}: energy_remark" in texts(axes)


def test_conditions_of_a_sweep_over_power_limits_have_different_labels(panels):
    made = [
        row | {"power_limit_w": limit, "run_id": f"{row['run_id']}-{limit}"}
        for limit in (200, 300, None)
        for row in rows()
    ]
    (axes,) = panels("energy_throughput", made)
    assert {"limit 200 W", "limit 300 W", "limit as found"} <= {
        text.get_text() for text in axes.texts
    }
    assert "limit 200 W" in " ".join(
        t.get_text() for t in panels("energy", made)[0].get_yticklabels()
    )


def test_the_front_has_what_nothing_beats_in_both():
    equal = [(10, 3.0), (10, 2.0), (20, 2.0), (20, 5.0), (5, 1.0)]
    assert energy_throughput.pareto(equal) == [(5, 1.0), (20, 2.0)]
    assert energy_throughput.pareto([]) == []


def test_energy_that_nobody_measured_is_a_message(draw):
    (axes,) = draw("energy_throughput", made_tables.study()).axes
    assert texts(axes) == energies.NO_ENERGY
