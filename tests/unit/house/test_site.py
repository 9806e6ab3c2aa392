"""The documentation site: it has no dead link and no page that is not listed, and reads offline."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import dlbench
from support.machines.paths import REPOSITORY
from support.results import chromium

pytestmark = pytest.mark.ci
# What browsers load of a page by itself.
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with warnings as errors: a dead link or a page that is not listed is one."""
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-M", "html", ".", output, "-c", "docs", "-W"]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    return output / "html"


def test_every_page_is_there_with_the_version_and_in_the_navigation(site):
    start = (site / "docs/README.html").read_text()
    sidebar = start[start.index("sidebar-tree") :]
    parts = re.findall(r'class="caption-text">(.*?)<', sidebar)
    assert parts == ["How to", "Explanation", "Reference"]
    pages = sorted((REPOSITORY / "docs").glob("*.md"))
    for page in pages:
        made = site / "docs" / f"{page.stem}.html"
        assert f"dlbench {dlbench.__version__}</title>" in made.read_text()
        assert page.stem == "README" or f'href="{made.name}"' in sidebar, page
    assert "url=docs/README.html" in (site / "index.html").read_text()


class Loads(HTMLParser):
    def __init__(self):
        super().__init__()
        self.addresses = set()

    def handle_starttag(self, tag, attributes):
        self.addresses.add(dict(attributes).get(LOADED.get(tag, ""), "") or "")


def test_no_page_asks_another_host_for_anything(site):
    loads = Loads()
    for page in site.rglob("*.html"):
        loads.feed(page.read_text())
    assert any("searchindex.js" in address for address in loads.addresses)
    assert not [found for found in loads.addresses if re.match(r"(https?:)?//", found)]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", style.read_text()), style


@pytest.mark.slow
@pytest.mark.skipif(not chromium.installed(), reason="no Chromium on the path")
def test_it_is_searched_offline_from_files_and_fits_a_phone(site):
    with chromium.browser() as open_page:
        for dark, width in ((False, 1300), (True, 400)):
            page = open_page(site / "docs/figures.html", width=width, dark=dark, phone=width == 400)
            assert page.run("return document.documentElement.scrollWidth") == width
            bright = page.run("return getComputedStyle(document.body).backgroundColor")
            assert (bright == "rgb(255, 255, 255)") != dark
            assert (page.complaints, {r.split("/")[0] for r in page.requests}) == ([], {"file:"})
        page = open_page(site / "search.html")
        page.run("Search.performSearch('equivalence')")
        found = page.run(
            "const list = () => document.querySelectorAll('#search-results li a');"
            "const said = () => document.querySelector('#search-results').innerText;"
            "while (!said().includes('finished')) await new Promise(go => setTimeout(go, 20));"
            "return [...list()].map(link => link.getAttribute('href').split('?')[0])"
        )
        assert any(address.startswith("docs/methodology.html") for address in found)
        assert (page.complaints, {r.split("/")[0] for r in page.requests}) == ([], {"file:"})
