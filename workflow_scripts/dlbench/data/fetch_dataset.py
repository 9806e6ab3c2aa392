"""Provide the source files of a dataset: staged by the user, or downloaded from mirrors.

Each is compared with its published size and digests; an error names the likely cause of a
difference. The published values of a file are a dictionary with `bytes`, `sha256` and `md5`; None:
unpublished.
"""

import hashlib
import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from dlbench import Error
from dlbench.common import plugins
from dlbench.data import download
from dlbench.data.transports import CHUNK_BYTES

QUEUED_CHUNKS = 8  # that wait to be hashed
PAGE = "an HTML page, not the file: a login or an error page?"


class WrongFile(Error):
    """A file is not the published one; the message names both digests and the likely cause."""


def published_as(
    size_bytes: int | None = None, sha256: str | None = None, md5: str | None = None
) -> dict[str, Any]:
    """The published values of a file, as the functions of this module take them."""
    return {"bytes": size_bytes, "sha256": sha256, "md5": md5}


def check_file(
    path: Path | str,
    *,
    size_bytes: int | None = None,
    sha256: str | None = None,
    md5: str | None = None,
) -> dict[str, Any]:
    """Compare a file with its published values. Returns its {"bytes", "sha256"}.

    Raises:
        WrongFile: they differ; the file is left in place.
    """
    try:
        return check_digests(Path(path), published_as(size_bytes, sha256, md5))
    except WrongFile as error:
        raise WrongFile(f"{error}; the file is {path}") from None


def check_digests(
    path: Path, published: dict[str, Any], digests: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Compare a file's size and digests with the published ones. Returns its {"bytes", "sha256"}.

    Args:
        digests: size and digests of the file, if they are known.

    Raises:
        WrongFile: they differ; or no digest is published and the file is e.g. an HTML page.
    """
    digests = digests or digests_of(path, published)
    with open(path, "rb") as file:
        impostor = describe_non_data(path, file.read(CHUNK_BYTES))
    equal = all(published[name] in (None, value) for name, value in digests.items())
    if equal and (published["sha256"] or published["md5"] or not impostor):
        return {"bytes": digests["bytes"], "sha256": digests["sha256"]}
    # With both digests, if both are published, the message helps to identify the file.
    digests = digests_of(path, published | {"sha256": None})
    comparable = {name: value for name, value in digests.items() if published[name] is not None}
    cause = impostor or _likely_cause(path, digests, published)
    raise WrongFile(f"expected {describe(published)}, found {describe(comparable)}: {cause}")


def digests_of(path: Path, published: dict[str, Any]) -> dict[str, Any]:
    """A file's size, its SHA-256, and its MD5 if that is the only published digest."""
    with StreamDigests(published) as stream, open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            stream.add(chunk)
        return stream.result()


def describe(published: dict[str, Any]) -> str:
    """
    >>> describe({"bytes": 4542, "sha256": None, "md5": "9fb6"})
    'bytes 4542, md5 9fb6'
    """
    parts = [f"{name} {value}" for name, value in published.items() if value is not None]
    return ", ".join(parts) or "of unknown size and digest"


def is_page(path: Path) -> bool:
    """Whether a file should be an HTML page, by its name."""
    return _published_name(path).endswith((".html", ".htm"))


def describe_non_data(path: Path, start: bytes) -> str | None:
    """What a file is if its beginning shows that it is no data, e.g. an HTML page; else None."""
    head = start[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")) and not is_page(path):
        return PAGE
    if head.startswith(b"version https://git-lfs"):
        return (
            "a git-LFS pointer, not the file: `git lfs pull` or the repository's media URL has it"
        )
    return "an empty file" if not start else None


class StreamDigests:
    """Size and digests of a stream, which a thread computes while the caller goes on.

    SHA-256 always; MD5, which takes twice as long, only if no other digest is published.
    """

    def __init__(self, published: dict[str, Any]) -> None:
        need_md5 = published["md5"] and not published["sha256"]
        self._names = ("sha256", "md5") if need_md5 else ("sha256",)
        self._chunks: queue.Queue[bytes | None] = queue.Queue(QUEUED_CHUNKS)
        self._restart()

    def __enter__(self) -> "StreamDigests":
        threading.Thread(target=self._work, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._chunks.put(None)

    def add(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        self._chunks.put(chunk)

    def catch_up(self, file: BinaryIO, offset: int) -> None:
        """Hash the file's first `offset` bytes, unless they are hashed, and seek to `offset`."""
        if self._bytes != offset:
            self._restart()
            while chunk := file.read(CHUNK_BYTES):
                self.add(chunk)
        file.seek(offset)

    def result(self) -> dict[str, Any]:
        """The number of bytes and the hexadecimal digests, after waiting for the thread."""
        self._chunks.join()
        return {"bytes": self._bytes, **{n: d.hexdigest() for n, d in self._digests.items()}}

    def _restart(self) -> None:
        self._chunks.join()
        self._bytes = 0
        self._digests = {n: hashlib.new(n, usedforsecurity=False) for n in self._names}

    def _work(self) -> None:
        while (chunk := self._chunks.get()) is not None:
            for digest in self._digests.values():
                digest.update(chunk)
            self._chunks.task_done()


def _likely_cause(path, digests, published):
    """Why a length or digest differs."""
    with open(path, "rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
    if _published_name(path).endswith((".gz", ".tgz")) and not gzipped:
        return "not compressed: was it unpacked on the way?"
    if published["bytes"] is not None and digests["bytes"] < published["bytes"]:
        return "cut short"
    if published["bytes"] == digests["bytes"]:
        return "its length is right: damaged, or another version"
    return "another version of the file, or another file, or damaged"


def _published_name(path):
    """The published name of FILE or FILE.part."""
    return path.name.removesuffix(".part")


class FetchError(Error):
    """A dataset cannot be fetched; the message says what to do."""


def fetch(
    name: str,
    folder: Path | str,
    *,
    manual_dir: Path | str | None = None,
    offline: bool = False,
    terms_accepted: bool = False,
) -> dict[str, dict[str, Any]]:
    """Provide the source files of dataset `name` in `folder`, compared with their published values.

    Files that the user staged stay where they are: `folder` gets a symbolic link to each.

    Args:
        manual_dir: folder of staged files, directly in it or in its subfolder `name`.
        offline: download nothing.
        terms_accepted: whether the user has accepted the dataset's terms.

    Returns:
        The {"bytes", "sha256", "url"} of each file, by its name.

    Raises:
        FetchError: the terms are not accepted, a file is missing and cannot be downloaded, or a
            staged file is not the published one.
        WrongFile: a file in `folder` is not the published one.
        DownloadError: no mirror has the published file.
    """
    dataset = plugins.load("datasets", name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not terms_accepted:
        check_terms(name)
    return {
        file: _fetch_file(name, file, published, folder, manual_dir, offline)
        for file, published in dataset.FILES.items()
    }


def check_terms(name: str) -> None:
    """Check that a dataset whose terms the user has not accepted has none.

    Raises:
        FetchError: it has terms.
    """
    terms = plugins.load("datasets", name).TERMS
    if terms:
        raise FetchError(
            f"only those who accepted its terms may use {name} ({terms}); "
            f"then put {name} into data.terms_accepted in the config"
        )


def _fetch_file(name, file, published, folder, manual_dir, offline):
    path, digests = folder / file, {"sha256": published["sha256"], "md5": published["md5"]}
    if staged := _staged_path(name, file, manual_dir):
        checked = _check_staged(name, file, staged, published["bytes"], digests)
        path.unlink(missing_ok=True)
        path.symlink_to(staged.resolve())
        return {**checked, "url": staged.resolve().as_uri()}
    if path.is_file():
        checked = check_file(path, size_bytes=published["bytes"], **digests)
        return {**checked, "url": None}
    urls = [url for url in published["urls"] if not offline or url.startswith(download.LOCAL)]
    if not urls:
        why = "offline is set" if published["urls"] else "it is never fetched automatically"
        raise FetchError(
            f"{name}: {file} is missing and {why}; put it into the folder that "
            f"data.manual_dir names (now {manual_dir or 'not set'})"
        )
    max_bytes = published.get("max_bytes", download.MAX_BYTES)
    return download.fetch_file(
        urls, path, size_bytes=published["bytes"], **digests, max_bytes=max_bytes
    )


def _staged_path(name, file, manual_dir):
    """The path of a file that the user staged; None if there is none."""
    if manual_dir is None:
        return None
    candidates = [Path(manual_dir) / name / file, Path(manual_dir) / file]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _check_staged(name, file, staged, size_bytes, digests):
    try:
        return check_file(staged, size_bytes=size_bytes, **digests)
    except WrongFile as error:
        hint = _mistaken_for(name, file, staged)
        raise FetchError(
            f"{name}: {staged} is not the published {file}: {error}"
            + (f"; this is {hint}" if hint else "")
        ) from error


def _mistaken_for(name, file, staged):
    """The name of another known file of the dataset with the MD5 of `staged`, or None."""
    dataset = plugins.load("datasets", name)
    sums = {entry["md5"]: other for other, entry in dataset.FILES.items() if other != file}
    sums |= {md5: other for other, md5 in getattr(dataset, "OTHERS", {}).items()}
    with open(staged, "rb") as content:
        return sums.get(hashlib.file_digest(content, "md5").hexdigest())
