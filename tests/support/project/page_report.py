"""Draw docs/report.png: the top of the report of a study with invented numbers, in Chromium.

uv run --group dev python tests/support/project/page_report.py
"""

import base64
import io
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "workflow_scripts")]

from PIL import Image  # noqa: E402

from support.results import chromium, made_tables  # noqa: E402

PICTURE = REPOSITORY / "docs" / "report.png"
WIDTH, HEIGHT = 1000, 1240  # pixels
COLOURS = 64


def main():
    if not chromium.installed():
        sys.exit("there is no Chromium here")
    draw(PICTURE)


def draw(picture):
    """Write the picture. Returns the text that it shows."""
    with tempfile.TemporaryDirectory() as place:
        rows = made_tables.study(
            devices=[1, 2, 4, 8, 16],
            model=["resnet50", "vgg16"],
            strategy=["mirrored", "horovod"],
            site="a cluster",
        )
        rows = made_tables.failing(
            rows, lambda row: (row["model"], row["devices"], row["repeat"]) == ("vgg16", 16, 1)
        )
        shown = made_tables.write(Path(place), rows)
        covered = [
            {"run_id": row["run_id"], "status": row["status"], "reason": row.get("message", ""),
             "combination": f"{row['model']}, {row['strategy']}, {row['devices']} GPUs"}
            for row in rows
        ]  # fmt: skip
        page = made_tables.write_report(Path(place), shown, covered)
        with chromium.browser() as browser:
            opened = browser(page, width=WIDTH, height=HEIGHT)
            content = base64.b64decode(opened.send("Page.captureScreenshot")["data"])
            text = opened.run("return document.body.innerText")
    with Image.open(io.BytesIO(content)) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(picture, optimize=True)
    return text


if __name__ == "__main__":
    main()
