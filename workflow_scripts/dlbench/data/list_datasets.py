"""The catalogue of datasets: what each is, whose, how large, under which licence, from where."""

from dlbench.common import plugins
from dlbench.common.files import write_json, written_whole


def entries():
    """One dictionary a dataset, of plain values."""
    found = []
    for name in plugins.names("datasets"):
        dataset = plugins.load("datasets", name)
        stored = not dataset.SYNTHETIC
        found.append(
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
                "shards": dataset.SHARDS if stored else {},
                "reader": dataset.READER if stored else {},
                "files": dataset.FILES if stored else {},
            }
        )
    return found


def write(folder):
    """Write datasets.json and datasets.md."""
    found = entries()
    write_json(folder / "datasets.json", found)
    with written_whole(folder / "datasets.md") as part:
        part.write_text(markdown(found), encoding="utf-8")


def markdown(found):
    lines = [
        "# Datasets",
        "",
        "Made by `workflow_scripts/list_datasets.py` from "
        "`workflow_scripts/dlbench/data/datasets/`.",
        "",
        "| Name | What it is | Type | Records (train + validation) | Bytes to fetch |",
        "| --- | --- | --- | --- | --- |",
    ]
    for entry in found:
        records = " + ".join(_grouped(count) for count in entry["records"].values()) or "any"
        name = entry["name"]
        lines.append(
            f"| [{name}](#{name}) | {entry['title']} | {entry['type']} | {records} "
            f"| {_bytes(entry)} |"
        )
    for entry in found:
        lines += ["", f"## {entry['name']}", "", f"{entry['title']}: {entry['description']}.", ""]
        for key in ("author", "licence", "terms", "citation", "homepage"):
            if entry[key]:
                lines.append(f"- {key}: {entry[key]}")
        for name, known in entry["files"].items():
            lines.append(f"- `{name}`: {_size(known['bytes'])}{_digests(known)}")
            lines += [f"  - {url}" for url in known["urls"]]
    return "\n".join(lines) + "\n"


def _bytes(entry):
    sizes = [known["bytes"] for known in entry["files"].values()]
    known = sum(size for size in sizes if size)
    if None in sizes:
        return f"{_grouped(known)} and more" if known else "not published"
    return _grouped(known) if known else "none"


def _size(size_bytes):
    return "size not published" if size_bytes is None else f"{_grouped(size_bytes)} bytes"


def _grouped(count):
    return f"{count:,}".replace(",", " ")


def _digests(known):
    named = [f"{name} `{known[name]}`" for name in ("sha256", "md5") if known[name]]
    return ", " + ", ".join(named) if named else ", no checksum published: pinned at first use"
