"""feed: an Atom feed whose entries stay the same."""

from xml.etree import ElementTree

import feedparser
import pytest

from dlbench.website import feed, site_data
from support.history import made_histories as made

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
ATOM = {"": feed.ATOM}
EVIL = "</title><script>alert(1)</script>&\x1b\x00'\""


@pytest.fixture
def history(tmp_path):
    return tmp_path / "history"


def parsed(history, address=""):
    return ElementTree.fromstring(feed.feed(site_data.read(history, {}), address).encode())


def entries(history):
    return {
        entry.find("id", ATOM).text: ElementTree.tostring(entry)
        for entry in parsed(history).findall("entry", ATOM)
    }


def add(history, weeks, **others):
    for week in weeks:
        level, driver = (1000.0, "550") if week < 7 else (900.0, "560")
        rates = {A: [level, level + 1 + week % 3], B: [level + week % 2, level + 2]}
        made.add(history, week, rates, driver=driver, **others)


def test_each_campaign_and_change_is_an_entry_the_newest_first(history):
    add(history, range(12))
    root = parsed(history)
    titles = [entry.find("title", ATOM).text for entry in root.findall("entry", ATOM)]
    assert len(titles) == 13 and titles[0].startswith("New campaign of nightly on ")
    assert [title for title in titles if title.startswith("Loss of -10.")]
    dates = [entry.find("updated", ATOM).text for entry in root.findall("entry", ATOM)]
    assert dates == sorted(dates, reverse=True) and root.find("updated", ATOM).text == dates[0]
    for name in ("id", "title", "updated", "author/name"):
        assert root.find(name, ATOM).text


def test_entries_keep_their_ids_when_a_campaign_is_added(history):
    add(history, range(12))
    before = entries(history)
    add(history, [12])
    after = entries(history)
    assert set(before) < set(after) and len(after) == len(before) + 1
    campaigns = [id for id, text in before.items() if b"New campaign" in text]
    assert all(after[id] == before[id] for id in campaigns)


def test_links_are_absolute_where_an_address_is_given(history):
    add(history, [0])
    links = [
        link.get("href")
        for link in parsed(history, "https://here/results").iter(f"{{{feed.ATOM}}}link")
    ]
    assert links[0] == "https://here/results/feed.xml"
    assert all(link.startswith("https://here/results/") for link in links)


def test_texts_of_others_are_texts(history):
    add(history, [0], study=EVIL, session=EVIL)
    root = parsed(history)
    assert "<script>alert(1)</script>&'\"" in root.find("entry/title", ATOM).text
    assert not list(root.iter(f"{{{feed.ATOM}}}script"))


def test_a_campaign_is_of_an_archive_with_its_digest_or_of_a_folder(history):
    add(history, [0])
    add(history, [1], archive_sha256="", source="results")
    folder, archive = (e.find("content", ATOM).text for e in parsed(history).findall("entry", ATOM))
    assert folder.endswith("; results") and archive.endswith(f"; archive {0:064x}")


def test_a_feed_without_entries_is_valid_and_has_no_date_of_today(tmp_path):
    (tmp_path / "history").mkdir()
    root = parsed(tmp_path / "history")
    assert root.find("updated", ATOM).text == "1970-01-01T00:00:00Z"
    assert root.findall("entry", ATOM) == []


def test_another_program_reads_what_the_feed_says(history):
    add(history, range(12))
    add(history, [12], study=EVIL, session=EVIL)
    text = feed.feed(site_data.read(history, {}), "https://here/results")
    read = feedparser.parse(text.encode(), sanitize_html=False)
    assert not read.bozo and read.version == "atom10"  # well-formed, and of RFC 4287
    assert read.feed.id and read.feed.title and read.feed.author == "dlbench"
    assert len(read.entries) == 14 == len({entry.id for entry in read.entries})
    newest = read.entries[0]
    assert newest.updated_parsed[:3] == read.feed.updated_parsed[:3] == (2026, 3, 30)
    assert newest.link.startswith("https://here/results/study-")
    assert newest.title_detail.type == newest.content[0].type == "text/plain"
    assert "<script>alert(1)</script>&'\"" in newest.title
