"""Write the files and changes of docs/adding.md to the paths that the page names."""

import json
import re
import subprocess
import sys

from support.machines.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "adding.md"
BLOCK = re.compile(r"`([\w./]+)`:\n\n```(?:python|yaml|csv)\n(.*?)```\n", re.DOTALL)
CHANGE = re.compile(r"```diff\n(.*?)```\n", re.DOTALL)


def files():
    return dict(BLOCK.findall(PAGE.read_text()))


def changes():
    """{heading: patch} of the page's changes of our files."""
    sections = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = zip(sections[::2], map(CHANGE.search, sections[1::2]), strict=True)
    return {heading: match[1] for heading, match in found if match}


def change(folder, patch):
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "-"], cwd=folder, input=patch, text=True, check=True
    )


def write(folder):
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def start(project, *command):
    """Run Python in a copy of the project. Returns its output."""
    finished = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def evaluate(project, code):
    """Run lines of Python with the copy's library. Returns the JSON that they print."""
    return json.loads(start(project, "-c", f"import sys; sys.path[0] = 'workflow_scripts'\n{code}"))
