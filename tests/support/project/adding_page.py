"""Write the files and changes of docs/adding.md to the paths that the page names."""

import io
import json
import re
import subprocess
import sys
import tarfile

import numpy as np
from PIL import Image

from support.machines.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "adding.md"
BLOCK = re.compile(r"`([\w./]+)`:\n\n```(?:python|yaml|csv)\n(.*?)```\n", re.DOTALL)
CHANGE = re.compile(r"```diff\n(.*?)```\n", re.DOTALL)


def files():
    """{path: content} of the files on the page."""
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


def write_sources(folder):
    """Write the source files of the page's datasets, as a user stages them in data.manual_dir."""
    folder.mkdir()
    random = np.random.default_rng(3)
    with tarfile.open(folder / "photos.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, level in (("cat", 40), ("dog", 200)):
            for number in range(25):
                pixels = random.integers(level - 30, level + 30, (60, 80, 3), np.uint8)
                file = io.BytesIO()
                Image.fromarray(pixels).save(file, "JPEG")
                member = tarfile.TarInfo(f"{name}/{number:04d}.jpg")
                member.size = file.tell()
                file.seek(0)
                archive.addfile(member, file)
    labels = random.integers(0, 2, 200)
    numbers = random.normal(np.where(labels, 2.0, -2.0)[:, None], 1.0, (200, 64))
    np.savetxt(
        folder / "readings.csv",
        np.column_stack([labels, numbers]),
        delimiter=",",
        fmt="%.6g",
        header=",".join(["label", *(f"x{i}" for i in range(64))]),
        comments="",
    )


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
