"""Examples in docstrings of the library: find the modules that have some, and run them."""

import ast
import doctest
import importlib
import io

from dlbench.common import plugins

# Packages of the trainer's environment that the workflow's lacks.
OF_TRAINER = {"tensorflow", "keras", "horovod", "tensorboard"}


def modules(of_trainer):
    """Names of the modules with examples: those that need the trainer's environment, or the others.

    A framework's folder needs it as a whole.
    """
    names = []
    for path in sorted(plugins.LIBRARY.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        place = path.relative_to(plugins.LIBRARY.parent).with_suffix("")
        if ">>> " in source and of_trainer == bool(
            OF_TRAINER & {*place.parent.parts, *imported(source)}
        ):
            names.append(".".join(part for part in place.parts if part != "__init__"))
    return names


def imported(source):
    """The packages that a file imports when it is loaded."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def failures(name):
    """The failures of a module's examples, as text; "" without any."""
    module, printed = importlib.import_module(name), io.StringIO()
    runner = doctest.DocTestRunner(verbose=False)
    for examples in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(examples, out=printed.write)
    assert runner.summarize(verbose=False).attempted, f"no example of {name} was run"
    return printed.getvalue()
