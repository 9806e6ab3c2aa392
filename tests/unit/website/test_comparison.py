"""comparison: what the script of the page compares."""

import json

import pytest

from dlbench.website import comparison, site_data
from support.history import made_histories as made

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)


def test_each_machine_has_the_levels_of_what_it_measured(tmp_path):
    made.add(tmp_path, 0, {A: [100.0, 102.0], B: []}, machine="EPYC")
    made.add(tmp_path, 0, {A: [50.0], B: [70.0]}, machine="Xeon")
    data = json.loads(json.dumps(comparison.data(site_data.read(tmp_path, {})), allow_nan=False))
    places = {hardware[4:8]: at for at, (_, hardware, _) in enumerate(data["machines"])}
    ((place, value, low, high),) = data["levels"][places["EPYC"]]
    assert data["conditions"][place][:2] == [made.label(A), "images_per_second"]
    assert value == pytest.approx(100.995, abs=1e-3) and low < value < high
    one, two = data["levels"][places["Xeon"]]
    assert one == [place, 50, None, None] and two[1] == 70
