"""list_datasets: the catalogue in docs/ is up to date."""

from pathlib import Path

from dlbench.data import list_datasets

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pages_are_current(tmp_path):
    list_datasets.write(tmp_path)
    for name in ("datasets.md", "datasets.json"):
        assert (tmp_path / name).read_text() == (DOCS / name).read_text(), (
            "run dlbench datasets --output docs"
        )
