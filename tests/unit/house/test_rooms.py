"""The rooms of the library: rules that import-linter, which checks the floors, cannot check."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.common import plugins
from dlbench.tables import house_map
from dlbench.trainer import engine
from support.machines.paths import REPOSITORY

LIBRARY = plugins.LIBRARY
FILES = sorted(path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.py"))
ROOMS = sorted({file.split("/")[0] for file in FILES} - {"__init__.py", "__main__.py"})
FRONT = ["__init__.py", "__main__.py"]  # what the library holds beside rooms
MAX_FILES, MAX_LINES = 20, 400
FRAMEWORKS = {"tensorflow", "keras", "jax", "torch"}
# Rooms and files that a Python which has the standard library and NumPy alone must import.
ALONE = (
    *("common", "log", "machine", "run_fields", "baselines", "launchers", "schedulers"),
    *("starting", "records"),
    *("study/runs.py", "study/other_trainers.py", "study/repeats.py", "images"),
    *("study/trainer_environments.py", "study/contradictions.py"),
)
PROGRAMS, TESTS = LIBRARY.parent, REPOSITORY / "tests"
# Programs that run under a stranger's Python, without the library.
STAND_ALONE = {"check_node.py", "describe_image.py"}
# Programs whose one call is not yet a file of their name.
NO_TWIN_YET = {
    "draw_figure.py": "loads a figure by its name",
}
NO_TEST_YET = {
    "export_tensorboard.py": "tested in tests/trainer, for it needs TensorBoard",
    "start_pod.py": "tested in tests/trainer/test_pods.py",
    "train.py": "tested by all of tests/trainer",
    "write_reference_pages.py": "tested in tests/unit/house/test_docs.py",
}


def room(file):
    return file.split("/")[0]


@functools.cache
def tree(file):
    return ast.parse((LIBRARY / file).read_bytes())


@functools.cache
def floors():
    """The floor of each room; 0 is the lowest."""
    return {
        name: number for number, rooms in enumerate(reversed(house_map.floors())) for name in rooms
    }


def imported(file, top_only=False):
    """Dotted names that a file imports: `a.b.c` for `from a.b import c` too."""
    nodes = tree(file).body if top_only else ast.walk(tree(file))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_has_a_floor_and_the_library_holds_nothing_beside_rooms():
    assert sorted(floors()) == ROOMS
    assert sorted(path.name for path in LIBRARY.iterdir() if path.is_file()) == FRONT


def test_no_folder_has_more_files_than_one_overlooks():
    for folder in {path.parent for path in LIBRARY.rglob("*.py")}:
        files = [path for path in folder.iterdir() if path.is_file()]
        assert len(files) <= MAX_FILES, folder


@pytest.mark.parametrize("folder", [PROGRAMS, TESTS], ids=lambda folder: folder.name)
def test_no_file_is_longer_than_one_reads_at_once(folder):
    lines = {
        path.relative_to(folder).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in folder.rglob("*.py")
    }
    assert not {file: count for file, count in lines.items() if count > MAX_LINES}


def test_every_file_that_tests_share_is_in_the_folder_of_its_topic_and_listed():
    support = TESTS / "support"
    files = {(path.parent.name, path.stem) for path in support.rglob("*.py")}
    page = (support / "README.md").read_text(encoding="utf-8")
    rows = page.partition("| --- |")[2].splitlines()[1:]
    listed = [(folder, file) for folder, *named in map(in_backticks, rows) for file in named]
    assert sorted(listed) == sorted(files)
    assert not list(support.glob("*.py"))


def in_backticks(line):
    return re.findall(r"`(\w+)`", line)


@pytest.mark.parametrize("file", FILES)
def test_what_is_loaded_by_name_is_of_a_lower_room(file):
    for node in ast.walk(tree(file)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "plugins.load"
            and isinstance(node.args[0], ast.Constant)
        ):
            theirs = plugins.folder_of(node.args[0].value).relative_to(LIBRARY).parts[0]
            lower = floors()[theirs] < floors()[room(file)]
            assert theirs == room(file) or lower, f"line {node.lineno} loads {node.args[0].value}"


@pytest.mark.parametrize("file", FILES)
def test_a_private_file_is_imported_in_its_own_room_only(file):
    for name in imported(file):
        parts = name.split(".")
        if parts[0] != "dlbench" or not any(p.startswith("_") for p in parts[1:]):
            continue
        private = next(i for i, p in enumerate(parts) if i and p.startswith("_"))
        if LIBRARY.joinpath(*parts[1 : private + 1]).with_suffix(".py").is_file():
            assert parts[1] == room(file), name


def test_no_files_import_one_another_in_a_circle_not_even_for_types():
    modules = {file.removesuffix(".py").removesuffix("/__init__"): file for file in FILES}
    names = {f"dlbench.{module.replace('/', '.')}": file for module, file in modules.items()}
    graph = {}
    for file in FILES:
        theirs = {names.get(name) or names.get(name.rpartition(".")[0]) for name in imported(file)}
        graph[file] = theirs - {None, file}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_says_what_it_is_for_and_hands_on_nothing(name):
    module = tree(f"{name}/__init__.py")
    assert ast.get_docstring(module)
    # A folder of things found by name says in code what each of them is to have.
    things = {plugins.folder_of(kind) for kind in ("figures", "launchers", "schedulers")}
    if LIBRARY / name not in things:
        assert len(module.body) == 1, f"{name}/__init__.py holds more than its docstring"


def stands_alone(file):
    return any(file == part or file.startswith(f"{part}/") for part in ALONE)


@pytest.mark.parametrize("file", [file for file in FILES if stands_alone(file)])
def test_what_may_run_inside_an_image_needs_numpy_at_most(file):
    packages = {name.split(".")[0] for name in imported(file, top_only=True)}
    assert packages - sys.stdlib_module_names <= {"dlbench", "numpy"}


def test_a_framework_is_imported_in_its_own_folder_and_keras_in_those_that_use_it():
    for file in FILES:
        packages = {name.split(".")[0] for name in imported(file)}
        own = file.split("/")[1] if file.startswith("trainer/") else ""
        allowed = {"keras"} if own == "keras" else set()
        allowed |= set(engine.packages(own)) if own in engine.names() else set()
        if file == "trainer/keras/layers/normalisation.py":  # fused where Keras is on TensorFlow
            allowed.add("tensorflow")
        assert packages & FRAMEWORKS <= allowed, file


def test_the_folder_of_a_framework_is_imported_by_itself_alone():
    for file in FILES:
        for name in engine.names():
            if not file.startswith(f"trainer/{name}/"):
                theirs = f"dlbench.trainer.{name}."
                assert not [n for n in imported(file) if n.startswith(theirs)], file


def test_what_engines_on_keras_share_imports_it_and_no_backend_at_the_top():
    for file in FILES:
        if file.startswith("trainer/keras/"):
            packages = {name.split(".")[0] for name in imported(file, top_only=True)}
            assert packages - sys.stdlib_module_names <= {"dlbench", "keras"}, file


def test_the_path_of_a_room_is_the_one_that_is_tested():
    tested = {path.name for path in Path(__file__).parents[1].iterdir() if path.is_dir()}
    assert tested - {"house", "__pycache__"} <= set(ROOMS)


def twins(program):
    """The files of rooms that have the name of a program."""
    return [file for file in FILES if file.count("/") == 1 and file.split("/")[1] == program]


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.glob("*.py")))
def test_what_a_program_calls_is_a_file_of_its_name_in_one_room_and_is_tested_there(program):
    if program in STAND_ALONE:
        assert not twins(program)
        source = (PROGRAMS / program).read_text(encoding="utf-8")
        assert "dlbench" not in {name.split(".")[0] for name in imports_of(source)}
        return
    if program in NO_TWIN_YET:
        assert not twins(program), f"{program} has its twin: take it out of NO_TWIN_YET"
        pytest.skip(NO_TWIN_YET[program])
    (twin,) = twins(program)
    name = f"dlbench.{twin.removesuffix('.py').replace('/', '.')}"
    assert name in set(imports_of((PROGRAMS / program).read_text(encoding="utf-8")))
    tested = TESTS / "unit" / room(twin) / f"test_{program}"
    if program in NO_TEST_YET:
        assert not tested.exists(), f"{program} has its test: take it out of NO_TEST_YET"
        pytest.skip(NO_TEST_YET[program])
    assert tested.exists() or (TESTS / room(twin) / f"test_{program}").exists()


def imports_of(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_name_of_no_file_has_to_be_quoted():
    """Snakemake takes those for pods from git, which quotes unusual ones: it cannot find them."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    names = listed.stdout.splitlines()
    assert len(names) > 1000
    assert [name for name in names if not re.fullmatch(r"[\w./-]+", name)] == []
