"""The map of the library, workflow_scripts/README.md: programs by topic, and rooms by floor.

Programs come with the first line of their docstring, under the room of the file that they call;
rooms with the first sentence of their own, on the floors that pyproject.toml gives them.
"""

import ast
import re
from pathlib import Path

import tomllib

from dlbench.common.own_code import PROGRAMS
from dlbench.common.plugins import LIBRARY

PYPROJECT = PROGRAMS.parent / "pyproject.toml"
ALONE = "alone"  # programs that run under a stranger's Python, without the library
HEAD = """# The map

Made by `workflow_scripts/write_reference_pages.py` from the first lines of programs and rooms.

## Commands

What users start is one command, `dlbench`: [docs/commands.md](../docs/commands.md) has all, and
[dispatch.py](dlbench/command/dispatch.py) finds their functions. Some of them rules start, too, as
`python workflow_scripts/dlbench COMMAND`, which needs nothing installed. Options have the same name
everywhere: `--configfile` for the study, `--output` for what is written, `--json` for programs.
"""
PROGRAMS_HEAD = """## Programs by topic

What rules and other programs start, also under another Python than the workflow's; train.py people
start as well, to try a model, and write_reference_pages.py those who change the code. Each says
with `--help` what it takes. What `X.py` calls is `dlbench/ROOM/X.py`; its tests are in the folder
of that room in `tests/unit`.
"""
ROOMS_HEAD = """## Rooms by floor

A room is a folder of `dlbench/`. It imports rooms of lower floors, never one of its own floor or of
one above; `lint-imports` holds it to that. A file whose name begins with `_` is its room's own.
Folders in a room hold things that are found by name: one more file there is one more of them
([docs/adding.md](../docs/adding.md)).
"""


def floors() -> list[list[str]]:
    """The rooms of each floor, the highest floor first, as the contract in pyproject.toml has them.

    Rooms that one floor holds do not import one another.
    """
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def topic(program: Path) -> str:
    """The highest room that a program imports, or "alone" for one that needs no library."""
    modules = [
        node.module or ""
        for node in ast.walk(ast.parse(program.read_bytes()))
        if isinstance(node, ast.ImportFrom)
    ]
    imported = {module.split(".")[1] for module in modules if module.startswith("dlbench.")}
    return next((room for rooms in floors() for room in rooms if room in imported), ALONE)


def map_page() -> str:
    """The map as Markdown."""
    return "\n".join(
        [
            HEAD,
            PROGRAMS_HEAD,
            _programs_table(),
            "",
            ROOMS_HEAD,
            _rooms_table(),
            "",
        ]
    )


def _programs_table():
    programs: dict[str, list[Path]] = {}
    for path in sorted(PROGRAMS.glob("*.py")):
        programs.setdefault(topic(path), []).append(path)
    lines = ["| Topic | Program | What it does |", "| --- | --- | --- |"]
    for room in sorted(programs):
        for index, path in enumerate(programs[room]):
            topic_cell = "" if index else room
            lines.append(f"| {topic_cell} | [{path.name}]({path.name}) | {_first_sentence(path)} |")
    return "\n".join(lines)


def _rooms_table():
    lines = ["| Floor | Room | What it is for | Its files |", "| --- | --- | --- | --- |"]
    numbered = list(enumerate(reversed(floors())))
    for number, rooms in reversed(numbered):
        for room in sorted(rooms):
            folder = LIBRARY / room
            files = [path.stem for path in sorted(folder.glob("*.py"))]
            names = [name for name in files if not name.startswith("_")]
            names += [f"{path.name}/" for path in _folders(folder)]
            purpose = _first_sentence(folder / "__init__.py")
            lines.append(
                f"| {number} | [{room}](dlbench/{room}/__init__.py) | {purpose} | "
                f"{', '.join(names)} |"
            )
    return "\n".join(lines)


def _folders(folder):
    return sorted(path.parent for path in folder.glob("*/__init__.py"))


def _first_sentence(path):
    docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0].rstrip(".").replace("|", "\\|")
