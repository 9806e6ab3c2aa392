"""The website: the report of a study is shown if it is the measured one, and can do no harm."""

import html
import http.server
import re
import threading

import pytest

from dlbench.archive import crate
from dlbench.history import add_campaign, sources
from dlbench.report import build_site, site_data
from support.history import made_campaigns as made
from support.results import chromium

REPORT = """<!doctype html><title>theirs</title><h1 id=top>42 "images" 'a' second</h1>
<a href=#top>up</a>"""
HOSTILE = """<!doctype html><meta http-equiv=refresh content="0;url=https://example.org/refreshed">
</iframe>"' onload="document.title='broken'"><script>document.title='broken'</script>
<script>
for (const act of [() => parent.document.title = 'broken', () => top.location = 'about:blank',
  () => document.cookie = 'a=b', () => localStorage.a = 1, () => open('https://example.org/opened'),
  () => fetch('https://example.org/fetched'), () => document.body.append(
    Object.assign(new Image(), {src: 'https://example.org/image'})),
  () => location = 'https://example.org/left']) { try { act(); } catch { } }
</script><form action=https://example.org/sent><input name=a></form>
<script>try { document.forms[0].submit(); } catch { }</script>
<iframe src=https://example.org/framed></iframe><link rel=stylesheet href=https://example.org/style>
"""


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = made.add_session(tmp_path / "project" / "results", 0, {8: [100.0, 101.0]})
    (folder / "report.html").write_text(REPORT)
    return folder


def archive(results, name="a.zip"):
    files = {
        f"results/{path.relative_to(results)}": path
        for path in sorted(results.rglob("*"))
        if path.is_file() and "sessions" not in path.parts
    }
    files["config.yaml"] = b"study: nightly\n"
    crate.write(results.parent / name, files, [("Source-Organization", "tests")])
    return results.parent / name


def site(place, output="site"):
    """The website of the history with one source, after it was added. Returns (pages, notes)."""
    receipt = add_campaign.add(sources.Source(str(place)), sources.HISTORY)
    assert not receipt["refused"], receipt
    built = build_site.build(sources.HISTORY, {}, place.parent / output, places_of_reports=[place])
    pages = {p.name: p for p in (place.parent / output).glob("*.html")}
    return pages, built.notes


def report_in(pages):
    return next((path for name, path in pages.items() if name.startswith("report-")), None)


@pytest.mark.parametrize("source", [lambda results: results, archive])
def test_the_study_leads_to_the_report_which_is_the_text_of_a_sandbox(results, source):
    pages, notes = site(source(results))
    assert not notes
    ((sandbox, text),) = re.findall(
        r'<iframe [^>]*sandbox="([^"]*)"[^>]*srcdoc="([^"]*)"', report_in(pages).read_text()
    )
    assert sandbox == "allow-scripts"
    assert html.unescape(text).removeprefix("<base href=about:srcdoc>") == REPORT
    (study,) = (path for name, path in pages.items() if name.startswith("study-"))
    assert f'href="{report_in(pages).name}"' in study.read_text()
    with_policy = [path for path in pages.values() if build_site.REPORT_POLICY in path.read_text()]
    assert with_policy == [report_in(pages)]


def without_report(place, output):
    built = build_site.build(sources.HISTORY, {}, output, places_of_reports=[place])
    return not built.notes and report_in({p.name: p for p in output.iterdir()}) is None


def test_an_archive_that_is_not_as_it_was_measured_shows_no_report(results, tmp_path):
    place = archive(results)
    assert report_in(site(place)[0])
    (results / "report.html").write_text("another")
    assert without_report(archive(results), tmp_path / "site")


def test_a_results_folder_of_other_runs_shows_no_report(results, tmp_path):
    assert report_in(site(results)[0])
    other = made.add_session(tmp_path / "other" / "results", 0, {8: [100.0, 102.0]})
    (other / "report.html").write_text("another")
    assert without_report(other, tmp_path / "site")


@pytest.mark.parametrize("content", [b"x" * (site_data.MAX_BYTES + 1), b"\xff\xfe<"])
def test_a_report_that_is_too_large_or_no_text_is_named_and_left_out(results, content):
    (results / "report.html").write_bytes(content)
    pages, notes = site(results)
    assert report_in(pages) is None
    assert len(notes) == 1 and "its report is not shown" in notes[0]


@pytest.fixture
def elsewhere():
    """A server, with the addresses that were requested from it."""
    requested = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requested.append(self.path)
            self.send_response(204)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requested = requested
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not chromium.installed(), reason="there is no Chromium here")
def test_in_a_browser_a_report_may_run_and_a_hostile_one_reaches_nothing(results, elsewhere):
    script = "<script>document.querySelector('h1').textContent='drawn'</script>"
    (results / "report.html").write_text(REPORT + script)
    pages, _ = site(results)
    address = f"http://127.0.0.1:{elsewhere.server_port}"
    (results / "report.html").write_text(HOSTILE.replace("https://example.org", address))
    hostile, _ = site(results, "hostile")
    with chromium.browser() as opened:
        page = opened(report_in(pages))
        assert not page.complaints  # as there would be of a script that was blocked
        bad = opened(report_in(hostile))
        bad.run("await new Promise((done) => setTimeout(done, 500))")
        assert bad.run("return document.title").startswith("Report:")
        assert bad.run("return location.protocol + document.cookie") == "file:"
        assert bad.run("return document.querySelectorAll('iframe').length") == 1
    assert not elsewhere.requested
