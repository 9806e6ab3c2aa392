"""What one importer reads from the content of a log, for the tests of importers."""

import dataclasses

from dlbench.common import plugins
from dlbench.imports.log_file import LogFile


def read(kind, path, content):
    """The Imported runs of a log with that text or those bytes, which the importer must know."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    importer, log = plugins.load("importers", kind), LogFile(path)
    assert importer.recognise(log)
    return list(importer.read(log))


def described(kind, path, content):
    """All that an importer reads, as texts by the names of fields: nan equals nan."""
    runs = read(kind, path, content)
    for run in runs:
        if run.complete:
            run.complete(run.columns)
            run.complete = None
    return [
        {field.name: repr(getattr(run, field.name)) for field in dataclasses.fields(run)}
        for run in runs
    ]
