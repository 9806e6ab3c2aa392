"""What files of the library import, where import-linter and ruff (pyproject.toml) cannot say it."""

import ast
import graphlib
import re
import subprocess
import sys

from dlbench.common.own_code import PROGRAMS
from dlbench.common.plugins import LIBRARY
from support.machines.paths import REPOSITORY

# What runs in images and in the environments of trainers. Other packages are imported in the
# functions that need them.
ALONE = (
    *("baselines/", "common/", "images/", "log/", "machine/", "records/"),
    *("schedulers/", "starting/", "trainer/"),
    *("study/contradictions.py", "study/other_trainers.py", "study/goals.py", "study/runs.py"),
    "study/trainer_environments.py",
)
FRAMEWORKS = {
    "trainer/jax": {"jax", "keras"},
    "trainer/keras": {"keras"},
    "trainer/pytorch": {"torch"},
    "trainer/tensorflow": {"horovod", "keras", "tensorflow"},
}


def imported(statements):
    """Dotted names that statements import: `a.b.c` for `from a.b import c` too."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def trees():
    """(path within the library, syntax tree) of each file."""
    for path in sorted(LIBRARY.rglob("*.py")):
        yield path.relative_to(LIBRARY).as_posix(), ast.parse(path.read_bytes())


def test_what_runs_beside_a_framework_needs_numpy_at_most():
    for file, tree in trees():
        if file.startswith(ALONE):
            packages = {name.split(".")[0] for name in imported(tree.body)}
            own = FRAMEWORKS.get("/".join(file.split("/")[:2]), set())
            assert packages - sys.stdlib_module_names <= {"dlbench", "numpy"} | own, file


def test_what_runs_under_the_python_of_a_node_or_an_image_needs_its_standard_library_alone():
    for program in ("check_node.py", "describe_image.py"):
        names = imported(ast.walk(ast.parse((PROGRAMS / program).read_bytes())))
        assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names, program


def test_no_files_import_one_another_in_a_circle_not_even_for_types():
    graph = {}
    for file, tree in trees():
        module = "dlbench/" + file.removesuffix(".py").removesuffix("/__init__")
        names = set(imported(ast.walk(tree)))
        graph[module.replace("/", ".")] = names | {name.rpartition(".")[0] for name in names}
    graph = {module: names & graph.keys() - {module} for module, names in graph.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names them


def test_the_name_of_no_file_has_to_be_quoted():
    """Snakemake takes those for pods from git, which quotes unusual ones: it cannot find them."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert re.findall(r".*[^\w./\n-].*", listed.stdout) == []
