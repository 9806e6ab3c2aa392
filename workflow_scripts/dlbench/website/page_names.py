"""Names of the website's files and anchors: safe, and each of one thing alone."""

import re

from dlbench.common.files import json_digest

READABLE, DIGITS = 40, 10


def file_name(kind: str, label: str, *key: object) -> str:
    """The name of a page: readable, and by a digest of its key of this thing alone.

    >>> file_name("machine", "2 x AMD/../EPYC", "here", "35f0")
    'machine-2-x-amd-epyc-1c1809a106.html'

    Args:
        kind: what the page is of.
        label: any text; letters of one case only are taken, as some file systems know no other.
        key: what the thing is known by.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower())[:READABLE].strip("-")
    digest = json_digest([kind, *key])[:DIGITS]
    return "-".join(filter(None, (kind, readable, digest))) + ".html"


def anchor(*key: object) -> str:
    """The name of a place in a page."""
    return f"s{json_digest(list(key))[:DIGITS]}"
