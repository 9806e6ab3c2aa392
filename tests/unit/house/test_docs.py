"""The pages of docs: commands and configs work, and what is made from the code is current."""

import ast
import contextlib
import functools
import io
import itertools
import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import tomllib
import yaml
from snakemake import exceptions
from snakemake.cli import get_argument_parser

from dlbench.analysis import judge
from dlbench.command import dispatch
from dlbench.study import config, config_schema
from dlbench.tables import write_reference_pages
from dlbench.tables.write_reference_pages import TABLES
from support.machines.paths import REPOSITORY

FOLDERS = ("docs", "studies", "programs")
PAGES = sorted(
    [REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    + [REPOSITORY / folder / "README.md" for folder in ("benchmarks", "workflow_scripts")]
    + [page for folder in FOLDERS for page in (REPOSITORY / folder).rglob("*.md")]
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The first folder of a path that begins at the root; of addresses and fractions there is none.
ABSOLUTE = re.compile(r"(?<![\w:/.<{}~$*+)\]-])/([A-Za-z_][\w.-]*)/[\w.-]")
OF_EVERY_LINUX = {"bin", "dev", "etc", "opt", "proc", "sys", "usr", "var"}
OF_EXAMPLES = {"apps", "data", "home", "scratch", "study"}
# Files of the reader's own in commands and configs.
THEIRS = ("my_study.yaml", "study.yaml", "mine", "ours", "oursite", "my_models", "theirs", "FOLDER")
# Programs of others that code blocks start.
OTHERS = {
    *("apptainer", "cd", "cp", "export", "git", "jupyter", "kubectl", "ln", "mkdir", "pip"),
    *("python3", "sinfo", "unzip", "uvx"),
}


def named(page):
    return str(page.relative_to(REPOSITORY))


def prose(page):
    return FENCED.sub("", page.read_text())


def blocks(page, *languages):
    return [text for language, text in FENCED.findall(page.read_text()) if language in languages]


def test_no_page_and_no_config_names_a_folder_of_a_particular_machine():
    folders = [REPOSITORY / "profiles", REPOSITORY / "studies"]
    configs = [path for folder in folders for path in folder.rglob("*.yaml")]
    for file in [*PAGES, *configs, REPOSITORY / "config.yaml"]:
        assert set(ABSOLUTE.findall(file.read_text())) <= OF_EVERY_LINUX | OF_EXAMPLES, file


def test_the_pages_made_from_the_code_are_current():
    for name, text in write_reference_pages.pages().items():
        made_with_the_site = name.startswith("docs/")
        assert made_with_the_site or (REPOSITORY / name).read_text() == text, (
            "run: uv run python workflow_scripts/write_reference_pages.py"
        )


def test_every_column_of_every_table_says_what_it_means():
    schemas = write_reference_pages.SCHEMAS
    assert set(TABLES) == set(schemas)
    ends = ("_ci95_low", "_ci95_high")
    for table in TABLES:
        for column in schemas[table]:
            meant = write_reference_pages.meaning(table, column) or column.name.endswith(ends)
            assert meant, f"{table}.{column.name}: a note beside the column, or in MEANINGS"


def test_no_table_of_the_reference_pages_is_without_rows():
    for name, text in write_reference_pages.pages().items():
        assert not re.search(r"^\| ---.*\|\n(?!\|)", text, re.MULTILINE), name


def test_every_key_of_the_schema_is_on_the_page_of_the_config():
    page = write_reference_pages.config_page()

    def keys(part):
        if isinstance(part, dict):
            properties = part.get("properties", {})
            yield from properties
            for below in part.values():
                yield from keys(below)
        elif isinstance(part, list):
            for below in part:
                yield from keys(below)

    found = set(keys(config_schema.schema()))
    assert len(found) > 80
    for key in found:
        assert f"| `{key}` |" in page or f"## {key}" in page, key


# ---- Commands ---------------------------------------------------------------------------------


def commands_of_pages():
    """(page, arguments) of each command in the pages, in code blocks and between backticks."""
    for page in PAGES:
        text = [block.replace("\\\n", " ") for block in blocks(page, "sh", "bash", "console")]
        text = [block.replace("&&\n", "&& ") for block in text]
        lines = [line for block in text for line in block.splitlines()]
        lines += re.findall(r"`((?:uv (?:run|sync)|dlbench) [^`]+)`", prose(page))
        for line in lines:
            for part in re.split(r" && | \| ", line):
                command = shlex.split(part, comments=True)
                if command:
                    yield page, command


@functools.cache
def flags(*program):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        if program[0] == "workflow_scripts/dlbench":
            dispatch.main([program[1], "--help"])
        else:
            runpy.run_path(str(REPOSITORY / program[0]), run_name="__main__")
    return set(re.findall(r"--[\w-]+", said.getvalue()))


def check_program(command):
    """Check that a program of ours exists and has the flags."""
    program, *given = command
    if program == "workflow_scripts/dlbench":
        check_dlbench(given)
        return
    assert (REPOSITORY / program).is_file(), program
    if program.startswith("workflow_scripts/"):
        check_flags(given, program)


def check_dlbench(command):
    """Check that a command of dlbench exists and has the flags."""
    name, *given = command
    if name not in ("--help", "--version", "COMMAND"):
        assert name in (*dispatch.names(), *dispatch.STEPS), name
        check_flags([] if name == "run" else given, "workflow_scripts/dlbench", name)


def check_flags(given, *program):
    before_dashes = itertools.takewhile(lambda word: word != "--", given)
    used = {word.partition("=")[0] for word in before_dashes if word.startswith("--")}
    assert used <= flags(*program), f"{program}: {used - flags(*program)}"


def check_snakemake(command):
    """Check that Snakemake accepts the arguments, targets are rules, and files exist."""
    if command[:2] == ["--executor", "slurm"]:  # its plugin, and so its options, are an extra
        command = [word for word in command[2:] if not word.startswith("--slurm-")]
    arguments = get_argument_parser().parse_args(command)
    rules = "\n".join(
        p.read_text() for p in [REPOSITORY / "Snakefile", *REPOSITORY.glob("rules/*")]
    )
    for target in arguments.targets:
        assert re.search(rf"^rule {target}:", rules, re.MULTILINE), target
    for file in arguments.configfile or ():
        theirs = set(Path(file).parts) & {*THEIRS, "config"}  # that of a workflow around ours
        assert theirs or (REPOSITORY / file).is_file(), file
    for profile in arguments.profile or ():
        name = Path(profile).name
        assert name in THEIRS or (REPOSITORY / "profiles" / name / "profile.yaml").is_file(), name


def check_sync(command):
    """Check that the extras and groups of `uv sync` exist."""
    given = dict(itertools.pairwise(command))
    project = tomllib.loads(
        (REPOSITORY / given.get("--project", ".") / "pyproject.toml").read_text()
    )
    if "--extra" in given:
        assert given["--extra"] in project["project"]["optional-dependencies"], command
    if "--group" in given:
        assert given["--group"] in project["dependency-groups"], command


def check_command(command):
    command = (
        [word for word in command if word != ".uv/bin/uv"] if ".uv/bin/uv" in command else command
    )
    if command[:4] == ["uv", "run", "--project", "../dlbench"]:  # from a folder beside the clone
        return check_command([word.removeprefix("../dlbench/") for word in command[4:]])
    if command[0].startswith("v/bin/"):  # of a wheel
        command = [command[0].removeprefix("v/bin/"), *command[1:]]
    if command[0].endswith("bin/python") and command[1] != "-m":
        return check_program(command[1:])
    command = command[2:] if command[0].endswith("bin/python") else command
    command = command[1:] if command[0] == "uv" else command
    if command[:2] == ["run", "--project"]:
        assert (REPOSITORY / command[2] / "uv.lock").is_file(), command
        assert command[3] == "python" and (REPOSITORY / command[4]).is_file(), command
        return None
    command = command[1:] if command[0] == "run" else command
    if command[0] in ("--group", "--extra"):
        check_sync(command)
        command = command[2:]
    while command[0] == "--with" and re.fullmatch(r"[\w-]+==[\d.]+", command[1]):
        command = command[2:]
    match command:
        case ["dlbench", *rest]:
            check_dlbench(rest)
        case ["snakemake", *rest]:
            check_snakemake(rest)
        case ["python", "-m", module, *_]:
            assert (REPOSITORY / module.replace(".", "/")).is_dir(), module
        case ["python", *rest]:
            check_program(rest)
        case ["pytest", path, *_]:
            assert (REPOSITORY / path).exists(), path
        case ["build"]:  # by uv
            pass
        case ["sync", *rest]:
            check_sync(rest)
        case ["sphinx-build", *_]:
            assert (REPOSITORY / "docs/conf.py").is_file()
        case ["pre-commit", *_]:
            assert (REPOSITORY / ".pre-commit-config.yaml").is_file()
        case [script, *_] if script.endswith(".sh"):
            assert os.access(REPOSITORY / script, os.X_OK)
        case _:
            assert command[0] in OTHERS, command


def test_every_command_of_the_pages_is_one(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "--help"])
    found = list(commands_of_pages())
    assert len(found) > 60
    for page, command in found:
        try:
            check_command(command)
        except (AssertionError, SystemExit) as error:
            raise AssertionError(f"{named(page)}: {shlex.join(command)}: {error}") from error


def test_every_file_of_ours_that_a_page_names_is_there():
    tops = "workflow_scripts|tests|studies|envs|profiles|programs|rules|docs|benchmarks"
    python = {path.name for path in REPOSITORY.glob("*.py")} | {"X.py", "test_X.py"}
    for folder in ("workflow_scripts", "tests", "programs", "benchmarks"):
        python |= {path.name for path in (REPOSITORY / folder).rglob("*.py")}
    for page in PAGES:
        names = re.findall(rf"`((?:{tops})/[\w./-]*)`", prose(page))
        if page.name == "config.md":  # descriptions of the schema, without backticks
            names += re.findall(r"\bworkflow_scripts/[\w./-]*[\w/]", prose(page))
        for name in names:
            added = f"`{name}`:" in page.read_text()  # a file that the page has
            any_one = set(Path(name).parts) & {"ROOM", "X.py", ".venv"}
            assert added or any_one or (REPOSITORY / name).exists(), f"{named(page)}: {name}"
        there = python | set(re.findall(r"^`([\w.]+)`:$", page.read_text(), re.MULTILINE))
        assert set(re.findall(r"`(\w+\.py)\b", prose(page))) <= there, named(page)


def test_every_test_that_keeps_a_promise_is_there():
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    (table,) = re.findall(r"^\| Promise \| Tests \|\n(.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    for row in table.splitlines()[1:]:
        folder = REPOSITORY / "tests"
        for name in re.findall(r"`([\w./]+)`", row.split("|")[2]):
            path = REPOSITORY / "tests" / name if "/" in name else folder / name
            assert path.exists(), name
            folder = path.parent


# ---- Configs ----------------------------------------------------------------------------------


def settings():
    """(page, mapping) of each YAML block in the pages."""
    for page in PAGES:
        for text in blocks(page, "yaml"):
            yield page, yaml.safe_load(text.replace("sha256:...", f"sha256:{64 * '0'}"))


def test_every_config_of_the_pages_passes_the_schema_when_laid_over_the_default_one():
    default = config.read(REPOSITORY / "config.yaml")
    properties = config_schema.schema()["properties"]
    axes = config_schema.schema()["$defs"]["axes"]["properties"]
    checked = 0
    for page, content in settings():
        assert isinstance(content, dict), named(page)
        content = content.get("dlbench", content)  # of a workflow around ours
        if content.keys() <= axes.keys():  # lines of a block
            block = {"name": "b", "model": "lenet5", "dataset": "digits", **content}
            content = {"matrix": [block]}
        if content.keys() <= properties.keys():
            merged = config.merge(default, content)
            try:
                config_schema.check(merged)
            except config_schema.ConfigError as error:
                raise AssertionError(f"{named(page)}: {error}") from error
            checked += 1
        else:
            assert page.name == "adding.md", f"{named(page)}: {list(content)}"
    assert checked >= 12


# ---- Numbers ----------------------------------------------------------------------------------


def test_the_methodology_says_how_many_repeats_are_needed():
    page = " ".join((REPOSITORY / "docs/methodology.md").read_text().split())
    half, one, two = (judge.repeats_needed(scatter, 0.01) for scatter in (0.005, 0.01, 0.02))
    assert f"80 % power with {half} repeats a side at a scatter of 0.5 %, with {one} at 1 %" in page
    assert f"and with {two} at 2 %" in page


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
