"""feed: an Atom feed of campaigns and changes."""

import feedparser

from dlbench.website import feed, site_data
from support.history import made_histories as made

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
EVIL = "</title><script>alert(1)</script>&\x1b\x00'\""


def test_another_program_reads_what_the_feed_says(tmp_path):
    for week in range(13):
        level, driver = (1000.0, "550") if week < 7 else (900.0, "560")
        rates = {A: [level, level + 1 + week % 3], B: [level + week % 2, level + 2]}
        texts = {"study": EVIL, "session": EVIL} if week == 12 else {}
        made.add(tmp_path, week, rates, driver=driver, **texts)
    text = feed.feed(site_data.read(tmp_path, {}), "https://here/results")
    read = feedparser.parse(text.encode(), sanitize_html=False)
    assert not read.bozo and read.version == "atom10"  # well-formed, and of RFC 4287
    assert read.feed.id and read.feed.title and read.feed.author == "dlbench"
    assert len(read.entries) == 14 == len({entry.id for entry in read.entries})
    assert sum(entry.title.startswith("Loss of -10.") for entry in read.entries) == 1
    newest = read.entries[0]
    assert newest.updated_parsed[:3] == read.feed.updated_parsed[:3] == (2026, 3, 30)
    assert newest.link.startswith("https://here/results/study-")
    assert newest.title_detail.type == newest.content[0].type == "text/plain"
    assert "<script>alert(1)</script>&'\"" in newest.title
