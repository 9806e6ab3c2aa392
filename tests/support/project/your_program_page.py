"""The script, the change and the config of docs/programs.md."""

import re

from support.machines.paths import REPOSITORY
from support.project import adding_page

PAGE = REPOSITORY / "docs" / "programs.md"
SCRIPT, CONFIG = "my_program.py", "my_study.yaml"


def files():
    return dict(adding_page.BLOCK.findall(PAGE.read_text()))


def write(folder):
    """Write the files, copy the logger beside them, and change the script as the page says."""
    for name, content in files().items():
        (folder / name).write_text(content)
    logger = folder / "dlbench_log.py"
    logger.write_bytes((REPOSITORY / "programs/logger/dlbench_log.py").read_bytes())
    (change,) = re.findall(adding_page.CHANGE, PAGE.read_text())
    adding_page.change(folder, change)


def added_lines(folder):
    """The lines that a user adds to the script; what is only indented is none."""
    before = {line.strip() for line in files()[SCRIPT].splitlines()}
    after = [line.strip() for line in (folder / SCRIPT).read_text().splitlines()]
    return [line for line in after if line and line not in before]
