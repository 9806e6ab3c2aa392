"""Figures of the report, each as a data URI: no file beside the page, no clash of ids.

A figure is its SVG without invisible parts; a large one is a picture in 192 colours.
"""

import ast
import base64
import io
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from dlbench import Error
from dlbench.common import plugins

MAX_SVG_BYTES = 200_000
COLOURS = 192  # of a picture: 4 % smaller than with 256, and hardly another one
INVISIBLE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
PATH = re.compile(r'(?<= d=")[^"]*')
DIGITS = re.compile(r"(\.\d\d)\d+")
SIZE = re.compile(r'<svg[^>]*?\swidth="([\d.]+)pt"[^>]*?\sheight="([\d.]+)pt"')
POINTS = 4 / 3  # pixels of a point
# What need not be escaped in a data URI between double quotes.
SAFE = " !$'()*+,-./:;<=>?@[]_|~{}"


@dataclass(frozen=True)
class Figure:
    """A figure with its title and caption; width and height in pixels."""

    name: str
    title: str
    caption: str
    uri: str
    width: int
    height: int


def figure(name: str, folder: Path) -> Figure:
    """The figure of a name, from the files that draw_figure.py made in a folder.

    Raises:
        UnknownName: no figure has that name.
        FileNotFoundError: it was not drawn.
        Error: its SVG does not say how large it is.
    """
    caption = plugins.constants("figures", name)["CAPTION"].strip()
    docstring = ast.get_docstring(plugins.parse_file(plugins.path("figures", name))) or name
    text = (folder / f"{name}.svg").read_text(encoding="utf-8")
    size = SIZE.search(text)
    if not size:
        raise Error(f"{folder / name}.svg: expected an SVG with its size in points")
    width, height = (round(POINTS * float(side)) for side in size.groups())
    svg = _minified(text)
    is_small = len(svg) <= MAX_SVG_BYTES
    return Figure(
        name=name,
        title=docstring.splitlines()[0].rstrip("."),
        caption=caption,
        uri=_svg_uri(svg) if is_small else _picture_uri(folder / f"{name}.png"),
        width=width,
        height=height,
    )


def _minified(svg):
    """The same picture: no comments, and paths in hundredths of a point."""
    svg = PATH.sub(lambda path: DIGITS.sub(r"\1", path[0]), INVISIBLE.sub("", svg))
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", svg)).strip()


def _svg_uri(svg):
    if "'" not in svg:
        svg = svg.replace('"', "'")
    return "data:image/svg+xml," + urllib.parse.quote(svg, safe=SAFE)


def _picture_uri(path):
    """The picture in COLOURS colours, as WebP without loss: two thirds of its PNG, or less."""
    webp = io.BytesIO()
    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
        reduced.save(webp, "WEBP", lossless=True, method=4)
    return "data:image/webp;base64," + base64.b64encode(webp.getvalue()).decode()
