"""docs/tutorial.md: all of it is done in order, by a new user in a fresh clone with an empty home.

How many commands a task takes, and how many lines are typed into files, may not grow.
"""

import html
import re
import subprocess
import sys

import yaml

from dlbench.common import tools
from support.campaigns.campaign import REPOSITORY, Campaign
from support.project import adding_page
from support.studies.site_facts import UNDISTURBED

# {task: (commands, lines typed into files)}. What takes less now is written down here.
TYPED = {
    "Install": (3, 0),
    "Run a study": (1, 12),
    "Read the report's first sentence": (0, 0),
    "Add a model": (0, 8),
    "Add a folder of pictures": (4, 2),
    "Compare two frameworks": (1, 2),
    "Find out why it does not scale": (1, 1),
    "Retry a failure": (3, 3),
    "Publish and verify an archive": (2, 0),
    "Use dlbench in another workflow": (3, 21),
}
PAGE = (REPOSITORY / "docs/tutorial.md").read_text()
SECTIONS = re.split(r"^## \d+\. (.+)\n", PAGE, flags=re.MULTILINE)[1:]
TASKS = dict(zip(SECTIONS[::2], SECTIONS[1::2], strict=True))
# What a user does or reads: a block of code after the name of its file, or a quoted sentence.
PART = re.compile(
    r"(?:`([\w./]+)`:\n\n)?^(?:```(\w*)\n(.*?)^```$|> (.*?)$)", re.DOTALL | re.MULTILINE
)


def parts(task):
    """(kind, name of the file, text) of each part of a task, in order; quotes are `>`."""
    for name, language, text, quote in PART.findall(TASKS[task]):
        yield (">", "", quote) if quote else ("file" if name else language, name, text)


class NewUser:
    """A shell in a clone, whose folder and PATH last from one block of commands to the next."""

    def __init__(self, folder):
        home = folder / "home"
        home.mkdir()
        project = Campaign.cloned(folder / "dlbench")
        uv = tools.find_uv()
        cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True)
        self.printed, self.clone, self.folder = "", project.folder, project.folder
        self._state = folder / "state"
        self._variables = project.environment() | {
            "HOME": str(home),
            "UV_CACHE_DIR": cache.stdout.strip(),
            "UV_PYTHON": sys._base_executable,
        }
        for name in ("UV", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CACHE_HOME"):
            self._variables.pop(name, None)
        # What the page's first command makes, which the README has too, and CI starts from there.
        (project.folder / ".uv/bin").mkdir(parents=True)
        (project.folder / ".uv/bin/uv").symlink_to(uv)

    def does(self, kind, name, text):
        if kind == "sh":
            self._types(text)
        elif kind == "file":
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        elif kind == "diff":
            adding_page.change(self.folder, text)
        else:
            self._reads(text)

    def _types(self, commands):
        install, _, rest = commands.partition("\n")
        if " pip install " in install:
            assert install in (REPOSITORY / "README.md").read_text()
            commands = rest
        # Other tests run beside this one: what they use must not keep a run from starting.
        (self.folder / "site.yaml").write_text(yaml.safe_dump(UNDISTURBED))
        finished = subprocess.run(
            ["bash", "-euc", f'{commands}\npwd >"{self._state}"; echo "$PATH" >>"{self._state}"'],
            cwd=self.folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.printed = finished.stdout
        assert finished.returncode == 0, f"{commands}\n{finished.stdout}"
        self.folder, self._variables["PATH"] = self._state.read_text().splitlines()
        self.folder = type(self.clone)(self.folder)

    def _reads(self, text):
        """Check that these lines were printed, or are in the report; `...` is anything."""
        report = self.clone / "results/report.html"
        seen = self.printed + (html.unescape(report.read_text()) if report.exists() else "")
        for line in text.splitlines():
            pattern = ".*".join(map(re.escape, line.split("...")))
            assert re.search(pattern, seen), f"expected {line!r}, found:\n{self.printed}"


def test_no_task_takes_more_typing_than_before():
    assert list(TASKS) == list(TYPED)
    for task, typed in TYPED.items():
        commands = lines = 0
        for kind, _, text in parts(task):
            if kind == "sh":
                commands += len(text.splitlines())
            elif kind == "file":
                lines += sum(bool(line.strip()) for line in text.splitlines())
            elif kind == "diff":
                lines += len(re.findall(r"^\+(?!\+\+ )", text, re.MULTILINE))
        assert (commands, lines) == typed, task


def test_each_task_does_what_the_page_says(tmp_path_factory):
    user = NewUser(tmp_path_factory.mktemp("new user"))
    for task in TASKS:
        for part in parts(task):
            user.does(*part)
    rate, model = (user.folder / "fastest.txt").read_text().split()
    assert float(rate) > 0 and model == "lenet5"
