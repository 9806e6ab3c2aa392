"""The messages that docs/troubleshooting.md explains occur in the code."""

import ast
import functools
import re
from pathlib import Path

from snakemake import exceptions

from support.machines.paths import REPOSITORY


@functools.cache
def texts():
    """All strings in our code and in Snakemake's exceptions, with \\0 for filled-in values."""
    strings = []
    files = [*REPOSITORY.glob("workflow_scripts/**/*.py"), Path(exceptions.__file__)]
    for file in files:
        tree = ast.parse(file.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in docstrings:
                continue
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", "") for part in node.values]
                strings.append("".join(p if isinstance(p, str) else "\0" for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(node.value)
    return strings


def occurs(message):
    """Whether a string of the code contains the pieces of a message, in their order."""
    pieces = [piece.strip() for piece in message.split("...") if piece.strip()]
    pattern = re.compile(".*?".join(map(re.escape, pieces)), re.DOTALL)
    return any(pattern.search(text) for text in texts())


def messages():
    page = (REPOSITORY / "docs/troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| ", page, re.MULTILINE)
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


def test_every_message_that_is_explained_is_still_printed():
    assert [message for message in messages() if not occurs(message)] == []
