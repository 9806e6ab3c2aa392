"""The pages of docs: their prose is short, wrapped, says what it is for and where to go next."""

import re

import pytest

from support.machines.paths import REPOSITORY

GENERATED = ("config.md", "tables.md", "commands.md", "datasets.md", "gpu_checks.md",
             "performance.md")  # fmt: skip
MAX_WORDS, MAX_COLUMNS = 28_000, 100
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BY_HAND = [page for page in PAGES if page.name not in GENERATED]
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def prose(page):
    """The lines of a page outside of code blocks and tables."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [line for line in text.splitlines() if not line.startswith("|")]


def paragraphs(page):
    return [part for part in re.split(r"\n\s*\n", "\n".join(prose(page))) if part.strip()]


def test_the_prose_that_people_read_stays_short():
    assert sum(len(" ".join(prose(page)).split()) for page in BY_HAND) <= MAX_WORDS


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: page.name)
def test_lines_of_prose_are_wrapped(page):
    assert [line for line in prose(page) if len(line) > MAX_COLUMNS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_begins_with_what_it_is_for_and_ends_with_where_to_go_next(page):
    title, first, *_, last = paragraphs(page)
    assert title.startswith("# ") and "\n" not in title
    assert re.match(r"[A-Z]", first), f"expected a sentence, found: {first[:60]}"
    assert re.match(r"Next: \[[^\]]+\]\([^)]+\)", last), (
        f"a line Next: [..](..), found: {last[:60]}"
    )
