"""A page of sections and tables, in no format."""

from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Cell:
    """A short text with a colour, a note, a link or a drawn interval.

    Attributes:
        kind: good, bad, same or open, which gives it a colour; "": it is plain text.
        href: address that the text links to; `anchor`: name by which others link to the cell.
            Only HTML has both.
        drawn: (ratio, low, high, margin); low and high are nan where there is no interval.
    """

    text: str
    kind: str = ""
    note: str = ""
    drawn: tuple[float, float, float, float] | None = None
    href: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts and Cells under headings; columns whose index is in `right` align right."""

    headings: tuple[str, ...]
    rows: list[list[str | Cell]]
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and a table below them; `drawings` are HTML above the table."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    drawings: tuple[Markup, ...] = ()


@dataclass(frozen=True)
class Page:
    """A title, one sentence that says it all, and sections.

    `kind` is good, bad or open where the page is the outcome of a check, else "".
    """

    title: str
    lead: str
    sections: tuple[Section, ...]
    kind: str = ""
