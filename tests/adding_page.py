"""The files of docs/adding.md, written where the page says."""

import re

from equipment import REPOSITORY

PAGE = REPOSITORY / "docs" / "adding.md"
BLOCK = re.compile(r"`([\w./]+)`:\n\n```(?:python|yaml|csv)\n(.*?)```\n", re.DOTALL)


def files():
    """The content of each file that the page has, by its path."""
    return dict(BLOCK.findall(PAGE.read_text()))


def write(folder):
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
