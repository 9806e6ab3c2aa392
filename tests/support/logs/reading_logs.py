"""Read a log's content with one importer, for the tests of importers."""

import dataclasses

from dlbench.imports import kinds
from dlbench.imports.log_file import LogFile


def read(kind, path, content):
    """The Imported runs in a text or bytes, which the importer must recognise."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    importer, log = kinds.load(kind), LogFile(path)
    assert importer.recognise(log)
    return list(importer.read(log))


def described(kind, path, content):
    """All fields that an importer reads, as texts, so that nan equals nan."""
    runs = read(kind, path, content)
    for run in runs:
        if run.complete:
            run.complete(run.columns)
            run.complete = None
    return [
        {field.name: repr(getattr(run, field.name)) for field in dataclasses.fields(run)}
        for run in runs
    ]


def notes(run):
    return "\n".join(run.notes)
