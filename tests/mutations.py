"""Break functions of the library one at a time, and see whether the tests near them notice.

    uv run python -m tests.mutations [--seed 52] [--functions 50] [--jobs 2] [--only FILE:FUNCTION]

The seed draws functions, from every room about as many, and in each one change: of an operator,
number, condition, keyword argument or early return. Then the tests near it run: its module's
examples, the files of tests/unit named after the module, those that import it, and those named
after modules that import it; where there are none, those of its folder. Of what none of them
notices the diff is printed: a person judges whether it changes what the function does. Files are
changed in copies of what git tracks.

mutmut and cosmic-ray draw no sample, and run the same tests for every change.
"""

import argparse
import ast
import concurrent.futures
import copy
import difflib
import functools
import hashlib
import itertools
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
PACKAGE, TESTS = Path("workflow_scripts", "dlbench"), Path("tests", "unit")
# Not drawn, since it is tested in other environments.
ELSEWHERE = re.compile(r".*/(tensorflow|keras|jax|pytorch)/|results/export_tensorboard\.py")
MIN_LINES = 4  # of a function, without its docstring
MAX_FILES = 12  # of tests that a developer would run after a change
LIMIT_S = 600  # of these tests: a change that makes them wait for ever is noticed
NO_END, NO_REPORT = "they do not end", "they ended without a report"
OPERATORS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult},
}
TWINS = {"any": "all", "all": "any", "min": "max", "max": "min"}
# Calls whose arguments people read, and keywords that they read; also those that check what always
# holds, as here all text is UTF-8.
SPOKEN = re.compile(r"(.*\.)?(print|exit|debug|info|warn|warning|error|\w*Error)")
WORDS = {"help", "metavar", "description", "epilog", "note", "encoding", "strict"}


class Function(NamedTuple):
    module: str  # "plan/run_command.py"
    name: str  # "Class.method"
    node: ast.FunctionDef

    def __str__(self):
        return f"{self.module}:{self.name}"


def functions(module, source):
    """The functions and methods of a module that are long enough and can be mutated."""
    within = [("", ast.parse(source))]
    for prefix, parent in within:
        for node in parent.body:
            if isinstance(node, ast.ClassDef):
                within.append((f"{node.name}.", node))
            elif isinstance(node, ast.FunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                long = body and body[-1].end_lineno - body[0].lineno + 1 >= MIN_LINES
                if long and any(mutations(node)):
                    yield Function(module, prefix + node.name, node)


def mutations(function):
    """The kind, the node before and the node after, of all that can be changed in a function."""
    waiting = [*function.body, *function.args.defaults, *filter(None, function.args.kw_defaults)]
    for node in waiting:
        yield from changes(node)
        if isinstance(node, ast.Return | ast.Continue) and node not in function.body:
            yield "early end", node, ast.Pass()
        waiting += [
            child
            for name, value in ast.iter_fields(node)
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST) and name not in ("annotation", "returns")
            if not only_read(child)
        ]


def only_read(node):
    """Whether a node is a message."""
    return (
        isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.arguments)
        or (isinstance(node, ast.Call) and SPOKEN.fullmatch(ast.unparse(node.func)))
        or (isinstance(node, ast.keyword) and node.arg in WORDS)
    )


def changes(node):
    def changed(**fields):
        after = copy.copy(node)
        vars(after).update(fields)
        return after

    match node:
        case ast.Compare(ops=[first, *others]):
            yield "comparison", node, changed(ops=[OPERATORS[type(first)](), *others])
        case ast.BoolOp():
            yield "and, or", node, changed(op=OPERATORS[type(node.op)]())
        case ast.BinOp() if type(node.op) in OPERATORS and not joins(node):
            yield "arithmetic", node, changed(op=OPERATORS[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node, node.operand
        case ast.Constant(value=bool()):
            yield "true, false", node, changed(value=not node.value)
        case ast.Constant(value=int() | float()):
            yield "number", node, changed(value=node.value + 1)
            yield "number", node, changed(value=2 * node.value or 2)
        case ast.Call(func=ast.Name(id=name)) if name in TWINS:
            yield "any, all, min, max", node, changed(func=ast.Name(TWINS[name]))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test, *_]):
            yield "condition", test, ast.UnaryOp(ast.Not(), test)
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg and not only_read(keyword):
                kept = [one for one in node.keywords if one is not keyword]
                yield "keyword", node, changed(keywords=kept)


def joins(node):
    """Whether an operator joins texts, lists or a path: any other fails wherever it is executed."""
    lists = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)
    sides = (node.left, node.right)
    return any(isinstance(one, lists) or isinstance(vars(one).get("value"), str) for one in sides)


def mutated(source, before, after):
    """The text of a module with one node in place of another."""
    lines, text = source.encode().splitlines(keepends=True), ast.unparse(after)
    begin = sum(map(len, lines[: before.lineno - 1])) + before.col_offset
    end = sum(map(len, lines[: before.end_lineno - 1])) + before.end_col_offset
    if not isinstance(after, ast.Pass | ast.Constant | ast.Call):
        text = f"({text})"
    return b"".join((source.encode()[:begin], text.encode(), source.encode()[end:])).decode()


def drawn(known, seed, count):
    """Functions by chance, from each room as many as from any other if it has them.

    What is drawn of one room does not depend on what is in others.
    """

    def chance(thing):
        return hashlib.sha256(f"{seed} {thing}".encode()).digest()

    rooms = {}
    for function in sorted(known, key=chance):
        rooms.setdefault(function.module.split("/")[0], []).append(function)
    rounds = itertools.zip_longest(*(rooms[room] for room in sorted(rooms, key=chance)))
    return list(filter(None, itertools.chain.from_iterable(rounds)))[:count]


def one_mutation(function, seed):
    """A mutation of a function by chance, in which each kind is as likely as any other."""
    chance, all_of_it = random.Random(f"{seed} {function}"), list(mutations(function.node))
    kind = chance.choice(sorted({kind for kind, *_ in all_of_it}))
    return chance.choice([nodes for of_kind, *nodes in all_of_it if of_kind == kind])


def near(module, folder):
    """The files of tests that a developer runs after a change of a module, the nearest first."""
    tests, library = folder / TESTS, folder / PACKAGE
    files = [*named(module, tests), *importing(module, tests, "test_*.py")]
    for path in importing(module, library, "*.py"):
        files += named(path.relative_to(library).as_posix(), tests)
    if not files:
        mirrored = (tests / module).parent
        files = sorted((mirrored if mirrored.is_dir() else mirrored.parent).rglob("test_*.py"))
    return list(dict.fromkeys(files))[:MAX_FILES]


def named(module, tests):
    """The files of tests named after a module: those of its room, or else those of others."""
    files = sorted(tests.rglob(f"test_{dotted(module).rpartition('.')[2]}*.py"))
    of_room = [file for file in files if tests / module.split("/")[0] in file.parents]
    return of_room or files


def importing(module, folder, pattern):
    """The files below a folder that import a module, those of its room first."""
    files = [file for file, names in imports(folder, pattern) if dotted(module) in names]
    room = folder / module.split("/")[0]
    # Last those of the project as a whole.
    return sorted(
        files, key=lambda file: (folder / "house" in file.parents, room not in file.parents)
    )


def dotted(module):
    return f"dlbench.{module.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


@functools.cache
def imports(folder, pattern):
    """The files below a folder, and the names that each imports."""
    found = []
    for path in sorted(folder.rglob(pattern)):
        names = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names |= {parent + alias.name for alias in node.names} | {parent.rstrip(".")}
        found.append((path, names))
    return found


def fate(module, text, folder):
    """What becomes of a module's text in a copy of the project, and by which tests.

    A test that fails with the text as it was, too, is left out.
    """
    path, tests, left_out = folder / PACKAGE / module, near(module, folder), []
    before = path.read_bytes()
    tests = [path] * (b">>> " in before) + tests
    while tests:
        path.write_text(text)
        failed = first_failure(folder, tests, left_out)
        path.write_bytes(before)
        if not failed:
            break
        of_all = failed in (NO_END, NO_REPORT)
        if not first_failure(folder, tests if of_all else [failed], left_out):
            return "caught", failed
        if of_all or failed in left_out:
            return "not counted", failed
        left_out.append(failed)
    return "survived", ", ".join(test.name for test in tests)


def first_failure(folder, tests, left_out):
    """The name of the first test that fails, or why there is none; None if all pass."""
    command = [*alone(), sys.executable, "-m", "pytest", "-xq", "-rfE", "--doctest-modules", *tests]
    # Several run at once, each with a folder of its own.
    command += ["-m", "not slow", "-p", "no:cacheprovider", f"--basetemp={folder}-files"]
    command += [f"--deselect={test}" for test in left_out]
    environment = os.environ | {"PYTHONPATH": str(folder / PACKAGE.parent)}
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        how = {"stdout": said, "stderr": said, "start_new_session": True}
        process = subprocess.Popen(command, cwd=folder, env=environment, **how)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return NO_END
        said.seek(0)
        text = said.read()
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    return None if code in (0, 5) else found[1] if found else NO_REPORT  # 5: all are slow


@functools.cache
def alone():
    """The command that starts tests where they see no processes but their own; [] if there is none.

    The library ends processes: a change in what it looks for would end all of this user.
    """
    new = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    for way in (new, [*new, "--user", "--map-current-user"]) if shutil.which("unshare") else ():
        # The first process there is no test, and no file gets larger than 1 GiB.
        command = [*way, "sh", "-c", 'ulimit -f 2097152; "$@"; exit $?', "-"]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return []


def copied(folder):
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=REPOSITORY, text=True)
    for name in filter(os.path.isfile, names.rstrip("\0").split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("--seed", default="52")
    parser.add_argument("--functions", type=int, default=50, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--only", default="", metavar="FILE:FUNCTION", help="or how it begins")
    flags = parser.parse_args(arguments)
    if not alone():
        sys.exit("unshare cannot hide processes here, and some functions, changed, would end them")
    os.chdir(REPOSITORY)
    with tempfile.TemporaryDirectory(prefix="mutations-") as temporary:
        folders = queue.SimpleQueue()
        for number in range(flags.jobs):
            folders.put(copied(Path(temporary, str(number))))
        library = Path(temporary, "0", PACKAGE)
        paths = sorted(library.glob("*/**/*.py"))
        sources = {path.relative_to(library).as_posix(): path.read_text() for path in paths}
        known = [
            function
            for module, source in sources.items()
            if not ELSEWHERE.match(module)
            for function in functions(module, source)
            if str(function).startswith(flags.only)
        ]

        def judged(function):
            before, after = one_mutation(function, flags.seed)
            text, folder = mutated(sources[function.module], before, after), folders.get()
            came, by = fate(function.module, text, folder)
            folders.put(folder)
            place = f"{function.module}:{before.lineno} {function.name}"
            change = " -> ".join(ast.unparse(node)[:70] for node in (before, after))
            print(f"{place}: {change}: {came} ({by})", flush=True)
            return function.module, text, came

        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
            report(list(pool.map(judged, drawn(known, flags.seed, flags.functions))), sources)


def report(fates, sources):
    """The diffs that no test noticed, what became of those of each room, and the caught share."""
    rooms = {}
    for module, text, came in fates:
        rooms.setdefault(module.split("/")[0], []).append(came)
        if came == "survived":
            lines = (one.splitlines() for one in (sources[module], text))
            print("", *difflib.unified_diff(*lines, module, module, lineterm=""), sep="\n")
    kinds = ("caught", "survived", "not counted")
    print("", f"{'room':12}" + "".join(f"{kind:>12}" for kind in kinds), sep="\n")
    for room, found in sorted(rooms.items()):
        print(f"{room:12}" + "".join(f"{found.count(kind):12}" for kind in kinds))
    counted = [came for _, _, came in fates if came != "not counted"]
    print(f"caught: {counted.count('caught')} of {len(counted)}")


if __name__ == "__main__":
    main()
