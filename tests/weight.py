"""Print what the project weighs, beside what it may weigh: `python -m tests.weight`.

Lines are those of workflow_scripts, rules and the Snakefile, tables of patterns (YAML) counted;
code is Python without docstrings, comments and blank lines. A list of fields is a literal of four
or more names of a run's fields, which a declaration could say instead. Words are those of pages
that people wrote, tables counted. tests/budget.toml has the limits, which
tests/unit/house/test_budget.py holds.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

import tomllib

REPOSITORY = Path(__file__).parents[1]
LIBRARY = ("workflow_scripts/**/*.py", "workflow_scripts/**/*.yaml", "rules/*.smk", "Snakefile")
GENERATED = ("config.md", "tables.md", "commands.md", "datasets.md")  # by docs/conf.py
PAGES = ("*.md", "docs/*.md", "*/README.md", "studies/**/*.md", "programs/**/*.md", "tests/**/*.md")
UNSEEN = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def main():
    limits = budget()
    found = weights()
    for name, value in found.items():
        limit = f" of {limits[name]}" if name in limits else ""
        print(f"{name.replace('_', ' '):40} {value}{limit}")
    sys.exit(any(found[name] > most for name, most in limits.items()))


def budget():
    """The limits of tests/budget.toml that are no minutes: {name: most}."""
    return tomllib.loads((REPOSITORY / "tests/budget.toml").read_text())["weight"]


def weights():
    """{name: number} of all that is weighed."""
    sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))
    from dlbench.common.run_fields import FIELDS
    from dlbench.tables import write_reference_pages

    library = files(*LIBRARY)
    modules = {path: path.read_text() for path in library if path.suffix == ".py"}
    listed = {path: lists_of(FIELDS, text) for path, text in modules.items()}
    return {
        "library_lines": lines(library),
        "lines_of_code": sum(map(lines_of_code, modules.values())),
        "python_files": len(modules),
        "rooms": len(files("workflow_scripts/dlbench/*/__init__.py")),
        "columns": write_reference_pages.tables_page().count("\n| `"),
        "lists_of_fields": sum(listed.values()),
        "files_with_lists_of_fields": sum(map(bool, listed.values())),
        "files_with_precision": sum("precision" in text for text in modules.values()),
        "files_with_images_per_second": sum("images_per_second" in t for t in modules.values()),
        "tests_per_line_of_library": round(lines(files("tests/**/*.py")) / lines(library), 3),
        "words": sum(len(path.read_text().split()) for path in pages()),
        "pages_of_docs": len(pages() & files("docs/*.md")),
    }


def files(*patterns):
    return {path for pattern in patterns for path in REPOSITORY.glob(pattern)}


def pages():
    """What people wrote to be read."""
    return {path for path in files(*PAGES) if path.name not in GENERATED}


def lines(paths):
    return sum(len(path.read_text().splitlines()) for path in paths)


def lines_of_code(text):
    """Lines of Python with something else than a comment or a docstring.

    >>> lines_of_code('"About."' + chr(10) + "# why" + chr(10) + "x = (" + chr(10) + "1)" + chr(10))
    2
    """
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    used = {
        line
        for token in tokens
        if token.type not in UNSEEN | {tokenize.ENDMARKER}
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(used - docstrings)


def lists_of(fields, text):
    """How many literal lists of four or more of these names a module has.

    >>> lists_of("abcd", "x = ('a', 'b', 'c', 'd'), ['a', 'b', 'c', 'e']")
    1
    """
    literals = (n.elts for n in ast.walk(ast.parse(text)) if hasattr(n, "elts"))
    named = ([getattr(one, "value", None) for one in literal] for literal in literals)
    return sum(sum(isinstance(n, str) and n in fields for n in names) >= 4 for names in named)


if __name__ == "__main__":
    main()
