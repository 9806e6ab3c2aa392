"""tests/budget.toml: what the project may weigh."""

import tomllib

from support.machines.paths import REPOSITORY

BUDGET = tomllib.loads((REPOSITORY / "tests/budget.toml").read_text())
LIBRARY = ("workflow_scripts/**/*.py", "workflow_scripts/**/*.yaml", "rules/*.smk", "Snakefile")
GENERATED = ("config.md", "tables.md", "commands.md", "datasets.md", "gpu_checks.md")
PAGES = ("*.md", "docs/*.md", "*/README.md", "studies/**/*.md", "programs/**/*.md", "tests/**/*.md")


def files(*patterns):
    return {path for pattern in patterns for path in REPOSITORY.glob(pattern)}


def lines(paths):
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_the_library_has_no_more_lines_and_rooms_than_its_budget():
    library = lines(files(*LIBRARY))
    rooms = [path.parent.name for path in files("workflow_scripts/dlbench/*/__init__.py")]
    assert 0 < library <= BUDGET["lines"]["library"]
    assert len(rooms) <= BUDGET["rooms"], sorted(rooms)


def test_tests_have_no_more_lines_for_each_of_the_librarys_than_their_budget():
    most = BUDGET["lines"]["tests_per_line_of_library"] * lines(files(*LIBRARY))
    assert 0 < lines(files("tests/**/*.py")) <= most


def test_what_people_wrote_to_be_read_has_no_more_words_than_its_budget_tables_counted():
    pages = {path for path in files(*PAGES) if path.name not in GENERATED}
    assert 0 < sum(len(path.read_text().split()) for path in pages) <= BUDGET["words"]
