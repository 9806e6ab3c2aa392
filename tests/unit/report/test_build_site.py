"""build_site: the website as a folder of files."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest

from dlbench import Error
from dlbench.history import dataset
from dlbench.report import build_site
from support.history import made_histories as made

REPOSITORY = Path(__file__).parents[3]
A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
EVILS = (
    "</script><script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "../../index.html",
    "<!-- ]]> -->\u2028 {{7*7}} \x7f",
)


class Parsed(HTMLParser):
    """The tags, links, names and texts of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.links, self.names, self.texts, self.events = [], [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.events += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.names += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def history(tmp_path):
    folder = tmp_path / "history"
    for week in range(10):
        level, driver = (1000.0, "550") if week < 6 else (900.0, "560")
        rates = {A: [level, level + 1 + week % 3], B: [level + week % 2, level + 2]}
        made.add(folder, week, rates, driver=driver)
    made.add(folder, 3, {A: [700.0, 701.0]}, machine="Xeon", site="there", study="other")
    return folder


def build(history, output, **options):
    build_site.build(history, {}, output, **options)
    return {path.name: path.read_bytes() for path in output.iterdir()}


def pages(output):
    return {path.name: Parsed(path) for path in sorted(output.glob("*.html"))}


def test_every_link_leads_to_a_file_and_a_place_that_are_there(history, tmp_path):
    files = build(history, tmp_path / "site", archives="../archives")
    made_pages = pages(tmp_path / "site")
    assert len(made_pages) == 1 + 2  # with machines
    linked = set()
    for name, page in made_pages.items():
        assert len(page.names) == len(set(page.names)), name
        for link in page.links:
            parts = urlsplit(link)
            if parts.path.startswith("../archives/"):
                continue
            assert not parts.scheme and not parts.netloc and parts.path in files, link
            linked.add(parts.path)
            if parts.fragment:
                assert parts.fragment in made_pages[parts.path].names, link
    assert linked == set(files) - {build_site.FILES}
    # Every number leads to its session and the digest of its archive.
    (machine,) = (tmp_path / "site").glob("machine-*-at-there-*.html")
    text = machine.read_text()
    assert f"sha256 {3:064x}" in text and 'href="../archives/Xeon3.zip"' in text
    assert "other" in text


@pytest.mark.ci
def test_equal_histories_give_equal_bytes_whatever_the_order_of_files_and_hashes(history, tmp_path):
    shutil.copytree(history, tmp_path / "copied" / "elsewhere")
    made_sites = []
    for seed, folder in (("1", history), ("2", tmp_path / "copied" / "elsewhere")):
        output = tmp_path / f"site{seed}"
        program = REPOSITORY / "workflow_scripts" / "dlbench"
        command = [sys.executable, program, "site", folder, "--output", output]
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": f"UTC-{seed}"}
        subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
        made_sites.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert made_sites[0] == made_sites[1]


def test_an_earlier_website_is_brought_up_to_date_and_files_of_others_stay(history, tmp_path):
    output = tmp_path / "site"
    before = build(history, output)
    (output / "CNAME").write_text("results.example.org")
    for file in history.glob("site=there/year=*/*.parquet"):
        file.with_suffix(".withdrawn").write_text("wrong <BIOS>")
    after = build(history, output)
    gone = set(before) - set(after)
    assert [name.split("-")[0] for name in gone] == ["machine"]
    assert "CNAME" in after and b"wrong &lt;BIOS&gt;" in after["index.html"]
    # A list of files cannot name those of others.
    (tmp_path / "letter.html").write_text("dear")
    listed = {"files": ["../letter.html", str(tmp_path / "letter.html"), 7]}
    (output / build_site.FILES).write_text(json.dumps(listed))
    build(history, output)
    assert (tmp_path / "letter.html").exists()


def test_a_folder_with_something_else_is_refused_and_untouched(history, tmp_path):
    output = tmp_path / "mine"
    output.mkdir()
    (output / "thesis.tex").write_text("dear")
    with pytest.raises(Error, match="an earlier website, found something else"):
        build(history, output)
    assert [path.name for path in output.iterdir()] == ["thesis.tex"]
    with pytest.raises(Error, match="name another folder"):
        build(history, output / "thesis.tex")
    with pytest.raises(Error, match="expected the folder of a history"):
        build(tmp_path / "nothing", tmp_path / "site")
    (tmp_path / "empty").mkdir()
    files = build(tmp_path / "empty", tmp_path / "site")
    assert b"The history has no session yet." in files["index.html"]
    assert set(files) == {"index.html", build_site.FILES}


@pytest.mark.parametrize("evil", EVILS)
def test_texts_of_others_are_shown_and_never_become_markup(tmp_path, evil):
    history, output = tmp_path / "history", tmp_path / "site"
    texts = {name: evil for name in ("session", "study", "source", "kernel", "unit", "metric")}
    texts |= {"machine_key": evil, "git_commit": evil, "facts": json.dumps({evil: evil})}
    fields = made.fields(model=evil)
    for week in range(2):
        own = texts | {"site": f"{evil}{week}"}
        meaning = json.dumps({"data": evil})
        made.add(history, week, {fields: [1.0, 2.0]}, machine=evil, meaning=meaning, **own)
    build(history, output, archives="archives")
    plain_history, plain_site = tmp_path / "plain", tmp_path / "plain_site"
    for week in range(2):
        texts = {"site": f"site{week}", "meaning": '{"data":"a"}'}
        made.add(plain_history, week, {A: [1.0, 2.0]}, **texts)
    build(plain_history, plain_site, archives="archives")
    plain = {name.split("-")[0]: {*page.tags} for name, page in pages(plain_site).items()}
    for name, page in pages(output).items():
        kind = name.split("-")[0]
        assert set(page.tags) <= plain[kind], name
        assert not page.events and "script" not in page.tags
        assert not [link for link in page.links if urlsplit(link).scheme], name
    shown = "".join(pages(output)["index.html"].texts)
    assert evil in shown


HOSTILE = ("../../etc/passwd", "a/b\\c", "CON", "\x00\n", "..", "", "ü" * 300, "<script>", "a.html")


@pytest.fixture
def empty(tmp_path):
    return tmp_path / "empty"


def drawn(level, seed):
    return (level * np.exp(np.random.default_rng(seed).normal(0, 0.003, 3))).tolist()


def test_the_level_is_that_of_the_sessions_since_the_last_change(empty):
    for week in range(20):
        level, driver = ((1100, "540"), (1000, "550"), (900, "560"))[(week >= 7) + (week >= 14)]
        made.add(empty, week, {A: drawn(level, week), B: drawn(level, week + 99)}, driver=driver)
    site = build_site.read(empty, {})
    (machine,) = site.machines
    assert len(machine.findings) == 2 and len(machine.series) == 2
    for series in machine.series:
        assert [point.session.name for point in series.level_points] == [
            f"s{week}-EPYC" for week in range(14, 20)
        ]
        assert series.level.low < 900 < series.level.high
        assert len(series.findings) == 2 and len(series.points) == 20
    assert machine.facts == {"GPU driver": "560"}


def test_a_condition_that_lacks_the_session_of_a_shared_change_has_the_change_too(empty):
    sizes = [made.fields(batch_per_device=n) for n in (8, 16, 32, 64, 128)]
    for week in range(14):
        level, driver = (1000, "550") if week < 8 else (900, "560")
        present = sizes if week != 8 else sizes[1:]
        rates = {fields: drawn(level, 9 * week + at) for at, fields in enumerate(present)}
        made.add(empty, week, rates, driver=driver)
    (machine,) = build_site.read(empty, {}).machines
    assert [row["session"] for row in machine.findings] == ["s8-EPYC"]
    assert machine.findings[0]["conditions"] == 5
    assert [len(series.level_points) for series in machine.series] == [5, 6, 6, 6, 6]


def test_the_level_of_one_session_has_the_interval_of_its_runs(empty):
    made.add(empty, 0, {A: [100, 110, 121]})
    (series,) = build_site.read(empty, {}).machines[0].series
    assert series.level.value == pytest.approx(110) and series.level.runs == 3
    assert series.level.low < 110 < series.level.high
    ends = build_site.number(series.level.low), build_site.number(series.level.high)
    assert build_site.value_text(series.level, "items/s") == f"110 items/s ({ends[0]} to {ends[1]})"
    assert build_site.value_text(None) == build_site.NONE
    made.add(empty / "other", 0, {A: [100.0], B: []})  # of B no run completed
    first, second = build_site.read(empty / "other", {}).machines[0].series
    assert math.isnan(first.level.low) and first.measured
    assert second.level_points == [] and second.points[0].failed == 3


def test_conditions_are_told_apart_by_their_data_and_sorted_by_numbers_in_their_names(empty):
    sizes = {made.fields(batch_per_device=n): [1.0] for n in (128, 16, 8)}
    made.add(empty, 0, sizes, meaning='{"data":"aa"}')
    made.add(empty, 1, {A: [200.0]}, meaning='{"data":"bb"}')
    conditions = build_site.read(empty, {}).conditions
    found = [(one.fields["batch_per_device"], one.meaning["data"]) for one in conditions]
    assert found == [(8, "aa"), (8, "bb"), (16, "aa"), (128, "aa")]


def test_equal_machines_of_two_sites_are_two_and_those_the_config_joins_are_one(empty):
    keys = set()
    for site in ("north", "south"):
        for week, machine in enumerate(("EPYC", "Xeon")):
            made.add(empty, week, {A: [1.0]}, machine=machine, site=site)
    keys = {one.id for one in build_site.read(empty, {}).machines}
    site = build_site.read(empty, {"ours": sorted(keys)})
    assert [one.label for one in site.machines] == ["ours at north", "ours at south"]
    assert [len(one.sessions) for one in site.machines] == [2, 2]


def test_sessions_that_do_not_count_are_left_out_and_listed(empty):
    made.add(empty, 0, {A: [1.0]})
    name = made.add(empty, 1, {A: [2.0]}, study=None)
    (empty / name).with_suffix(".withdrawn").write_text("wrong BIOS")
    site = build_site.read(empty, {})
    assert [one.name for one in site.sessions] == ["s0-EPYC"]
    assert [(row["standing"], row["reason"]) for row in site.left_out] == [
        (dataset.WITHDRAWN, "wrong BIOS")
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_of_any_text_is_one_plain_file_name(text):
    name = build_site.file_name("machine", text, text)
    assert re.fullmatch(r"machine(-[a-z0-9]+)+\.html", name) and len(name) < 80


def test_texts_that_look_alike_have_different_names():
    texts = ("A 1", "a 1", "a-1", "a/1", "a  1")
    names = {build_site.file_name("study", text, text) for text in texts}
    assert len(names) == len(texts)


def test_a_name_does_not_depend_on_how_its_key_is_cut():
    assert build_site.anchor("a b", "c") != build_site.anchor("a", "b c")


MOVE = re.compile(r"M([\d.]+) ([\d.]+)")


def chart_of(history, label="label"):
    series = build_site.read(history, {}).machines[0].series[0]
    chart = build_site.chart(series, label, build_site.dates_of(series.points))
    return ElementTree.fromstring(str(chart))


def of_class(root, name):
    return [element for element in root.iter() if element.get("class") == name]


def test_later_points_are_to_the_right_and_greater_ones_above(tmp_path):
    for week, rate in enumerate((100.0, 110.0, 90.0, 95.0)):
        made.add(tmp_path, week, {A: [rate, rate * 1.01]})
    (points,) = of_class(chart_of(tmp_path), "points")
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
    root = chart_of(tmp_path)
    (mark,) = of_class(root, "mark bad")
    assert mark.find("title").text.startswith("loss of -10.")
    (levels,), (points,) = of_class(root, "levels"), of_class(root, "points")
    assert len(MOVE.findall(levels.get("d"))) == 2
    at = MOVE.match(mark.get("d"))[1]
    assert at == MOVE.findall(points.get("d"))[7][0]


def test_extreme_numbers_are_drawn_a_series_without_any_says_so_and_a_label_is_a_text(tmp_path):
    for number, rates in enumerate(([100.0], [1e-9, 2e-9], [1e15])):
        made.add(tmp_path / str(number), 0, {A: rates})
        root = chart_of(tmp_path / str(number))
        (points,) = of_class(root, "points")
        assert MOVE.findall(points.get("d")) and "nan" not in ElementTree.tostring(root).decode()
    made.add(tmp_path, 0, {A: []})
    root = chart_of(tmp_path, "<b>&</b>")
    assert root.find("svg") is None and root.find("figcaption/span").text == "nothing measured"
    assert root.find("figcaption/b").text == "<b>&</b>"
