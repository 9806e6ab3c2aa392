"""build_site: in charts numbers stand where they belong."""

import re
from xml.etree import ElementTree

from dlbench.report import build_site
from support.history import made_histories as made

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
MOVE = re.compile(r"M([\d.]+) ([\d.]+)")


def drawn(history, label="label"):
    series = build_site.read(history, {}).machines[0].series[0]
    chart = build_site.chart(series, label, "page.html", build_site.dates_of(series.points))
    return ElementTree.fromstring(str(chart))


def of_class(root, name):
    return [element for element in root.iter() if element.get("class") == name]


def test_later_points_are_to_the_right_and_greater_ones_above(tmp_path):
    for week, rate in enumerate((100.0, 110.0, 90.0, 95.0)):
        made.add(tmp_path, week, {A: [rate, rate * 1.01]})
    (points,) = of_class(drawn(tmp_path), "points")
    places = [(float(x), float(y)) for x, y in MOVE.findall(points.get("d"))]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert sorted(range(4), key=lambda at: places[at][1]) == [1, 0, 3, 2]
    assert all(
        build_site.LEFT <= x <= build_site.WIDTH and 0 <= y <= build_site.HEIGHT for x, y in places
    )


def test_a_change_is_marked_where_it_is_and_cuts_the_level(tmp_path):
    for week in range(14):
        level, driver = (1000.0, "550") if week < 7 else (900.0, "560")
        rates = {A: [level, level + 1 + week % 3], B: [level + week % 2, level + 2]}
        made.add(tmp_path, week, rates, driver=driver)
    root = drawn(tmp_path)
    (mark,) = of_class(root, "mark bad")
    assert mark.find("title").text.startswith("loss of -10.")
    (levels,), (points,) = of_class(root, "levels"), of_class(root, "points")
    assert len(MOVE.findall(levels.get("d"))) == 2
    at = MOVE.match(mark.get("d"))[1]
    assert at == MOVE.findall(points.get("d"))[7][0]


def test_extreme_numbers_are_drawn_a_series_without_any_says_so_and_a_label_is_a_text(tmp_path):
    for number, rates in enumerate(([100.0], [1e-9, 2e-9], [1e15])):
        made.add(tmp_path / str(number), 0, {A: rates})
        root = drawn(tmp_path / str(number))
        (points,) = of_class(root, "points")
        assert MOVE.findall(points.get("d")) and "nan" not in ElementTree.tostring(root).decode()
    made.add(tmp_path, 0, {A: []})
    root = drawn(tmp_path, "<b>&</b>")
    assert root.find("svg") is None and root.find("figcaption/span").text == "nothing measured"
    assert root.find("figcaption/a").text == "<b>&</b>"
