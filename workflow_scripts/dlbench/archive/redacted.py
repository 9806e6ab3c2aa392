"""Hide secrets in the texts of an archive: configs, and what programs printed.

- Hidden are the secrets that dlbench/machine/redaction.py recognises, and each secret of the config
  wherever it occurs in a text. Other secrets may remain.
- Logs, records, tables and code stay unchanged, since digests name their content. Secrets in them
  are reported.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dlbench.machine import redaction

# Texts in which secrets are hidden: no result depends on them, and no digest names them.
TEXTS = re.compile(r"as_given/.+|results/(?:runs|batches)/.+/output/.+|results/.+\.log")
# Code of users, which may contain a key.
CODE = ("trainers/", "own/", "references/")
MIN_SECRET_LETTERS = 6  # shorter secrets are not searched for: many words contain them
BLOCK_BYTES = 1 << 20


def secrets_of(*settings: Any) -> list[str]:
    """The secrets in settings and in the environment variable redaction.VARIABLE, longest first."""
    secrets = set(json.loads(os.environ.get(redaction.VARIABLE, "[]")))

    def hide(secret):
        secrets.add(secret)
        return redaction.HIDDEN

    for content in settings:
        redaction.redact_settings(content, hide)
    texts = {secret.strip("\"'") for secret in secrets} - {redaction.HIDDEN}
    return sorted((n for n in texts if len(n) >= MIN_SECRET_LETTERS), key=lambda n: (-len(n), n))


def redact_files(
    files: Mapping[str, Path | bytes], secrets: Iterable[str], folder: Path
) -> tuple[dict[str, Path | bytes], dict[str, int], list[str]]:
    """Hide the secrets in the texts among the files of an archive.

    `files`: {name in the archive: path or content}; `secrets`: known secrets, from `secrets_of`;
    `folder`: temporary folder for the redacted copies. Returns the files, with redacted copies;
    {name: number of secrets hidden in it}; the names of files that contain a secret and stay
    unchanged.
    """
    known = [secret.encode() for secret in secrets]
    archived, unredacted = dict(files), []
    counts: dict[str, int] = {}
    for name, source in files.items():
        if TEXTS.fullmatch(name):
            copy = folder / str(len(counts))
            if count := _redacted_copy(source, known, copy):
                archived[name], counts[name] = copy, count
        elif _has_secret(name, source, known):
            unredacted.append(name)
    return archived, counts, unredacted


def _redacted_copy(source, known, copy):
    """Write a redacted copy of a text. Returns the number of secrets hidden; 0: no copy is kept."""
    total = 0
    with open(copy, "wb") as file:
        for block in _lines(source):
            if b"\0" in block:
                total = 0  # binary
                break
            text, count = _redacted(block, known)
            total += count
            file.write(text)
    if not total:
        copy.unlink()
    return total


def _redacted(block, known):
    """(bytes without secrets, number of secrets hidden)."""
    count = 0
    hidden = redaction.HIDDEN.encode()
    for secret in known:
        count += block.count(secret)
        block = block.replace(secret, hidden)

    def hide(secret):
        nonlocal count
        count += redaction.HIDDEN not in secret
        return redaction.HIDDEN

    text = redaction.redact(block.decode("utf-8", "surrogateescape"), hide)
    return text.encode("utf-8", "surrogateescape"), count


def _has_secret(name, source, known):
    if not known and not name.startswith(CODE):
        return False
    return any(
        any(secret in block for secret in known)
        or (name.startswith(CODE) and redaction.has_key(block.decode("utf-8", "replace")))
        for block in _lines(source)
    )


def _lines(source):
    """Yield the content in blocks of whole lines; a line longer than a block is cut."""
    if isinstance(source, bytes):
        yield source
        return
    with open(source, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block + file.readline(BLOCK_BYTES)
