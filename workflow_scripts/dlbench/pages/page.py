"""A page of sections and tables, in no format."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A short text, with what else is to be said of it.

    Attributes:
        kind: good, bad, same or open, which gives it a colour.
        drawn: (ratio, low, high, margin), low and high nan where there is no interval.
    """

    text: str
    kind: str = ""
    note: str = ""
    drawn: tuple | None = None


@dataclass(frozen=True)
class Table:
    """Rows of texts and Cells under headings; those in `right` are aligned there."""

    headings: tuple
    rows: list
    right: tuple = ()


@dataclass(frozen=True)
class Section:
    heading: str
    words: tuple = ()
    table: Table | None = None


@dataclass(frozen=True)
class Page:
    """`kind` is good or bad where the page is the outcome of a check, else nothing."""

    title: str
    lead: str
    sections: tuple
    kind: str = ""
