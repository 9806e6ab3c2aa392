"""The catalogue of datasets: what each is, its authors, size, licence and addresses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlbench.common import plugins
from dlbench.common.files import atomic_write, write_json
from dlbench.data import sources


def write(folder: Path) -> None:
    """Write datasets.json and datasets.md."""
    datasets = entries()
    write_json(folder / "datasets.json", datasets)
    with atomic_write(folder / "datasets.md") as part:
        part.write_text(markdown(datasets), encoding="utf-8")


def entries() -> list[dict[str, Any]]:
    """One dictionary of plain values for each dataset."""
    datasets = []
    for name in plugins.names("datasets"):
        dataset = plugins.load("datasets", name)
        stored = not dataset.SYNTHETIC
        datasets.append(
            {
                "name": name,
                "title": dataset.TITLE,
                "author": dataset.AUTHOR,
                "description": dataset.DESCRIPTION,
                "type": dataset.KIND,
                "licence": dataset.LICENCE,
                "terms": dataset.TERMS if stored else "",
                "citation": dataset.CITATION,
                "homepage": dataset.HOMEPAGE,
                "records": dataset.SPLITS if stored else {},
                "tokens": getattr(dataset, "TOKENS", {}),
                "shards": dataset.SHARDS if stored else {},
                "reader": dataset.READER if stored else {},
                "files": dataset.FILES if stored else {},
                "unigram_entropy_nats": None,
            }
        )
        if hasattr(dataset, "texts"):  # those that generate their text
            entropy = sources.unigram_entropy(dataset.texts()["validation"])
            datasets[-1]["unigram_entropy_nats"] = round(entropy, 6)
    return datasets


def markdown(datasets: Sequence[dict[str, Any]]) -> str:
    """The page of the catalogue."""
    lines = [
        "# Datasets",
        "",
        "All datasets, with size, licence and citation, made by `dlbench datasets --output docs`.",
        "",
        "| Name | What it is | Type | Records (train + validation) | Bytes to fetch |",
        "| --- | --- | --- | --- | --- |",
    ]
    for entry in datasets:
        name = entry["name"]
        lines.append(
            f"| [{name}](#{name}) | {entry['title']} | {entry['type']} | {_records(entry)} "
            f"| {_bytes(entry)} |"
        )
    for entry in datasets:
        lines += ["", f"## {entry['name']}", "", f"{entry['title']}: {entry['description']}.", ""]
        for key in ("author", "licence", "terms", "citation", "homepage"):
            if entry[key]:
                lines.append(f"- {key}: {entry[key]}")
        if entry["tokens"]:
            tokens = " + ".join(map(_grouped, entry["tokens"].values()))
            lines.append(
                f"- tokens: {tokens} (train + validation), a vocabulary of "
                f"{_grouped(entry['reader']['classes'])}; a record is a piece of the text, from "
                "which the trainer cuts items of any `sequence_length`"
            )
        if entry["unigram_entropy_nats"]:
            lines.append(
                f"- entropy of its tokens by their frequency: {entry['unigram_entropy_nats']:.3f} "
                "nats a token of the held-out text; a model with less loss has learned more"
            )
        for name, published in entry["files"].items():
            lines.append(f"- `{name}`: {_size(published['bytes'])}{_digests(published)}")
            lines += [f"  - {url}" for url in published["urls"]]
    lines += ["", "Next: [data.md](data.md), where sources lie and data of your own."]
    return "\n".join(lines) + "\n"


def lines(datasets: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each dataset: name, kind, records for training and validation, bytes, title."""
    rows = [("name", "type", "records", "bytes to fetch", "title")]
    rows += [(e["name"], e["type"], _records(e), _bytes(e), e["title"]) for e in datasets]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _records(entry):
    counts = [count for count in entry["records"].values() if count is not None]
    return " + ".join(map(_grouped, counts)) or "any"


def _bytes(entry):
    sizes = [published["bytes"] for published in entry["files"].values()]
    total = sum(size for size in sizes if size)
    if None in sizes:
        return f"{_grouped(total)} and more" if total else "not published"
    return _grouped(total) if total else "none"


def _size(size_bytes):
    return "size not published" if size_bytes is None else f"{_grouped(size_bytes)} bytes"


def _grouped(count):
    return f"{count:,}".replace(",", " ")


def _digests(published):
    digests = [f"{name} `{published[name]}`" for name in ("sha256", "md5") if published[name]]
    return ", " + ", ".join(digests) if digests else ", no checksum published: pinned at first use"
