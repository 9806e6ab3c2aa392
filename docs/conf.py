"""The documentation site: the pages of this folder, and those of the project that they link to.

    uv run --group docs sphinx-build -M html . site -c docs -W

Pages keep their paths and read on GitHub as they are. The navigation is docs/README.md:
its headings are the parts, its links their pages. The reference is written from the code first.
"""

import re
import subprocess
import sys
from pathlib import Path

from pygments.lexers import PythonLexer, TextLexer

REPOSITORY = Path(__file__).parents[1]
PROGRAMS = REPOSITORY / "workflow_scripts"
for command in (("write_reference_pages.py",), ("dlbench", "datasets", "--output", "docs")):
    program = [sys.executable, PROGRAMS / command[0], *command[1:]]
    subprocess.run(program, cwd=REPOSITORY, check=True)
LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)\)")  # to a whole page
TOCTREE = "\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"

project = "dlbench"
release = re.search(
    r'__version__ = "(.+)"', (REPOSITORY / "workflow_scripts/dlbench/__init__.py").read_text()
)[1]
extensions = ["myst_parser"]
nitpicky = True
highlight_language = "text"
smartquotes = False  # which make one dash of the two of an option
myst_heading_anchors = 6  # of all headings, by GitHub's rule
root_doc = "docs/README"
include_patterns = [f"{folder}**.md" for folder in ("docs/", "studies/", "programs/")]
include_patterns += ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
include_patterns += [
    f"{folder}/README.md" for folder in ("benchmarks", "tests/support", "workflow_scripts")
]
exclude_patterns = [".*", "envs", "results", "site"]

html_theme = "furo"
html_title = f"dlbench {release}"
html_static_path, html_css_files = ["site.css"], ["site.css"]
html_copy_source = False
html_show_copyright = html_show_sphinx = False
# Beside what it finds the search shows a piece of each page, which it cannot read of file://.
html_show_search_summary = False


# Of pages that are on other servers, without their anchors, which scripts may make.
linkcheck_timeout, linkcheck_retries, linkcheck_anchors = 20, 2, False
linkcheck_rate_limit_timeout = 30


def setup(app):
    app.add_lexer("csv", TextLexer)
    app.add_lexer("snakemake", PythonLexer)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", write_index)


def add_navigation(app, name, source):
    """In a README of a folder, below each heading: a hidden toctree of the pages that it links to.

    All that docs/README.md links to are in the navigation; elsewhere those below the folder.
    """
    if not re.fullmatch(r"\w+/README", name):
        return
    parts, listed = re.split(r"^(?=## )", source[0], flags=re.MULTILINE), set()
    for number, part in enumerate(parts):
        pages = {page: text for text, page in LINK.findall(part) if page not in listed}
        if name != root_doc:
            pages = {page: text for page, text in pages.items() if ".." not in page}
        if pages:
            listed.update(pages)
            lines = "\n".join(f"{text} <{page}>" for page, text in pages.items())
            parts[number] += TOCTREE.format(caption=part.splitlines()[0].strip("# "), pages=lines)
    source[0] = "".join(parts)


def write_index(app, exception):
    """What a browser opens in the site's folder."""
    if app.builder.name == "html" and not exception:
        start = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">'
        Path(app.outdir, "index.html").write_text(f"<!doctype html><title>dlbench</title>{start}\n")
