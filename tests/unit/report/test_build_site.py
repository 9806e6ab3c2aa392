"""build_site: the website as a folder of files."""

import json
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dlbench import Error
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
    assert len(made_pages) == 1 + 2 + 2 + 2  # with studies, machines and conditions
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
    assert {name for name in files if name.startswith("condition-")} <= {
        *made_pages["index.html"].links
    }
    # Every number leads to its session and the digest of its archive.
    (study,) = (tmp_path / "site").glob("study-other-*.html")
    text = study.read_text()
    assert f"sha256 {3:064x}" in text and 'href="../archives/Xeon3.zip"' in text
    (machine,) = (tmp_path / "site").glob("machine-*-at-there-*.html")
    assert f'href="{study.name}#' in machine.read_text()


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
    assert {name.split("-")[0] for name in gone} == {"machine", "study"} and len(gone) == 2
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
