"""Public functions have type hints; mypy, in CI, checks them."""

import ast

import pytest

from dlbench.common import plugins

LIBRARY = plugins.LIBRARY
ROOMS = sorted(path.name for path in LIBRARY.iterdir() if (path / "__init__.py").is_file())


def public_functions(tree):
    """The public functions of a file, and the public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from (part for part in node.body if isinstance(part, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def without_hints(function):
    """The parameters of a function that have no type hint, and `return`."""
    given = function.args
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    for parameter in parameters:
        if parameter and parameter.arg not in ("self", "cls") and not parameter.annotation:
            yield parameter.arg
    if function.returns is None and function.name != "__init__":
        yield "return"


@pytest.mark.parametrize("room", ROOMS)
def test_public_functions_of_a_room_have_type_hints(room):
    missing = {}
    for path in sorted((LIBRARY / room).rglob("*.py")):
        for function in public_functions(ast.parse(path.read_bytes())):
            private = function.name.startswith("_") and function.name != "__init__"
            names = [] if private else list(without_hints(function))
            if names:
                place = f"{path.relative_to(LIBRARY)}:{function.lineno} {function.name}"
                missing[place] = ", ".join(names)
    assert not missing
