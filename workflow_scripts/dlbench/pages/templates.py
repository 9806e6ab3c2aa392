"""Jinja2 templates and style sheets that lie beside the library's Python.

Whatever a template inserts is escaped, unless Python marks it as safe (markupsafe.Markup); a name
that it does not have is an error.
"""

import base64
import hashlib
from typing import Any

import jinja2
from markupsafe import Markup

from dlbench.common import plugins

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(plugins.LIBRARY),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {
    "separators": (",", ":"),
    "ensure_ascii": False,
    "allow_nan": False,
}


def render(name: str, **values: Any) -> str:
    """The text that a template makes of values; its name is its path in the library."""
    return _ENVIRONMENT.get_template(name).render(values)


def source(*names: str) -> Markup:
    """Style sheets or scripts of the library, joined, to be inserted as they are."""
    texts = ((plugins.LIBRARY / name).read_text(encoding="utf-8") for name in names)
    return Markup("".join(texts))  # noqa: S704 - our own files


def policy(style: str, script: str) -> Markup:
    """A Content-Security-Policy that allows this style and script, and nothing else."""
    return Markup(  # noqa: S704 - digests, which have no quotes
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )


def _digest(content):
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
