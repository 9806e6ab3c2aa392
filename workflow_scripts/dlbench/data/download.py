"""Download one file from the first mirror that has it, and compare it with its published digests.

- FILE is absent or complete. FILE.part holds the bytes so far, and FILE.part.json the server's
  validator (ETag) of that version. A later process resumes from both.
- An attempt makes progress if it gets beyond the furthest byte so far. After a few attempts without
  progress, e.g. with a server that always sends the first bytes again, the next mirror is tried.
- A file that is not the published one is kept as FILE.bad.
- A file whose size is not published may have MAX_BYTES; a mirror that sends too slowly is given
  up.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.common.files import add_filename, write_json
from dlbench.data.transports import CHUNK_BYTES, Response, TransportError

FRUITLESS_ATTEMPTS = 5  # in a row, on one mirror
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0  # after fruitless attempts, doubled each time
PROGRESS_EVERY_S = 5.0
MAX_BYTES = 4 << 30  # of a file whose size is not published
# A mirror that is not local must send at least this rate, as a mean over this time.
MIN_BYTES_PER_S, RATE_OVER_S = 1000.0, 60.0
LOCAL = ("file:", "package:")  # URLs that touch no network
QUEUED_CHUNKS = 8  # that wait to be hashed
PAGE = "an HTML page, not the file: a login or an error page?"


class DownloadError(Error):
    """No mirror sent the file; the message has the reason for each mirror."""


def print_line(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def fetch_file(
    urls: Sequence[str],
    path: Path | str,
    size_bytes: int | None = None,
    sha256: str | None = None,
    md5: str | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    report: Callable[[str], None] = print_line,
    offline: bool = False,
) -> dict[str, Any]:
    """Download one file to `path` and compare it with its published size and digests.

    HTTP proxies are taken from the environment: HTTPS_PROXY, HTTP_PROXY, NO_PROXY.

    Args:
        urls: mirrors, tried in order.
        size_bytes, sha256, md5: published values of the file, None if unpublished. A file without
            published values is trusted, and the caller records its digest.
        max_bytes: largest size of a file whose size is not published.
        report: called with a line of progress every few seconds.
        offline: use local mirrors only.

    Returns:
        {"bytes", "sha256", "url"} of the file; url is None if the file existed already.

    Raises:
        DownloadError: no mirror has the published file; it is missing and `offline` is set; or
            the disk is too small.
        WrongFile: the file that exists at `path` is not the published one; it is moved to
            FILE.bad.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    published = published_as(size_bytes, sha256, md5)
    with _locked(path, report):
        if path.is_file():  # another process has downloaded it
            return {**_check_published(path, path, published), "url": None}
        problems = []
        for url in urls:
            if offline and not url.startswith(LOCAL):
                continue
            try:
                arrived = _Transfer(url, path, published, max_bytes, report).run()
            except (TransportError, WrongFile, plugins.UnknownName) as error:
                problems.append(f"- {url}: {error}")
                continue
            _part_path(path).replace(path)
            _note_path(path).unlink(missing_ok=True)
            return {**arrived, "url": url}
    if offline and not problems:
        addresses = " and ".join(urls) or "no URL"
        raise DownloadError(
            f"{path.name} is missing and offline is set: put the file by hand at {path} "
            f"({describe(published)}; it is published at {addresses})"
        )
    raise DownloadError("\n".join([f"{path.name} could not be fetched:", *problems]))


def _part_path(path):
    return path.with_name(f"{path.name}.part")


def _note_path(path):
    """The JSON file with URL, validator and size of the version of FILE.part."""
    return path.with_name(f"{path.name}.part.json")


@contextlib.contextmanager
def _locked(path, report):
    """Lock a file's download: a second process waits until the first has downloaded the file."""
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{path.name}: waiting for another process that fetches it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # some parallel file systems have none
            report(
                f"{path.name}: this file system has no locks ({error.strerror}); download with one "
                "process only"
            )
        yield


class _Transfer:
    """The download of one file from one mirror."""

    def __init__(self, url, path, published, max_bytes, report):
        self._url, self._path, self._published, self._report = url, path, published, report
        self._max_bytes = max_bytes
        self._part, self._note = _part_path(path), _note_path(path)
        self._transport = plugins.load("transports", urlsplit(url).scheme)
        self._reported_s = time.monotonic()
        self._rate_from = self._reported_s, 0  # time, and bytes that had arrived
        self._arrived = 0

    def run(self):
        """Download FILE.part and compare it with the published values. Returns bytes and sha256."""
        inherited = self._part.exists()
        with StreamDigests(self._published) as self._digests:
            try:
                return self._fetch()
            except WrongFile as error:
                if not inherited:
                    raise
                # An earlier process may have left damaged bytes, or those of another version.
                self._report(f"{error}; fetching it again")
                return self._fetch()

    def _fetch(self):
        self._furthest = fruitless = 0
        while True:
            before = self._furthest
            try:
                self._attempt()
                return _check_published(
                    self._path, self._part, self._published, self._digests.result()
                )
            except TransportError as error:
                if not error.transient:
                    raise
                fruitless = 0 if self._furthest > before else fruitless + 1
                if fruitless == FRUITLESS_ATTEMPTS:
                    raise TransportError(
                        f"{error}; given up at byte {self._furthest} after {fruitless} attempts "
                        "without progress"
                    ) from error
                if fruitless:
                    time.sleep(min(FIRST_WAIT_S * 2 ** (fruitless - 1), LONGEST_WAIT_S))
                    self._rate_from = time.monotonic(), self._arrived
            except OSError as error:
                add_filename(error, self._part)
                raise

    def _attempt(self):
        """Write what the mirror sends to FILE.part until the file is complete."""
        response = self._open()
        limit = (
            response.total_bytes if self._published["bytes"] is None else self._published["bytes"]
        )
        if response.total_bytes not in (None, limit):
            raise TransportError(
                f"offers {response.total_bytes} bytes, expected {limit}: another file, or a page "
                "in its place"
            )
        if self._published["bytes"] is None and (limit or 0) > self._max_bytes:
            raise TransportError(f"offers {limit} bytes, {self._limit_message()}")
        self._check_space(limit, response.offset)
        with open(self._part, "r+b" if response.offset else "w+b") as file:
            self._digests.catch_up(file, response.offset)
            # Written only now: older bytes must not be listed with a newer version's validator.
            version = {"validator": response.validator, "total_bytes": response.total_bytes}
            write_json(self._note, {"url": self._url, **version})
            started = position = response.offset
            started_s = time.monotonic()
            for chunk in response.chunks:
                if position == 0 and (impostor := describe_non_data(self._path, chunk)):
                    raise TransportError(f"sends {impostor}")
                position += len(chunk)
                if limit is not None and position > limit:
                    raise TransportError(f"sends more than the {limit} bytes expected")
                if self._published["bytes"] is None and position > self._max_bytes:
                    raise TransportError(
                        f"sends {position} bytes and more, {self._limit_message()}"
                    )
                self._check_rate(len(chunk))
                file.write(chunk)
                self._digests.add(chunk)
                self._furthest = max(self._furthest, position)
                self._report_progress(position, limit, position - started, started_s)
            file.flush()
            os.fsync(file.fileno())
        if limit is not None and position < limit:
            raise TransportError(
                f"the connection ended at byte {position} of {limit}", transient=True
            )

    def _open(self):
        """The mirror's response, which continues FILE.part if both are of the same version."""
        offset, validator, total_bytes = self._continuable()
        whole = total_bytes if self._published["bytes"] is None else self._published["bytes"]
        if offset and offset == whole:  # an earlier process ended before the last step
            return Response([], offset, whole, validator)
        response = self._transport.open(self._url, offset, validator)
        same_version = validator is None or response.validator in (None, validator)
        same_size = (
            None in (total_bytes, response.total_bytes) or total_bytes == response.total_bytes
        )
        if response.offset and not (response.offset == offset and same_version and same_size):
            # The server ignored If-Range and continues another version.
            response = self._transport.open(self._url, 0, None)
            if response.offset:
                raise TransportError(f"was asked for byte 0, sends from byte {response.offset}")
        if response.offset:
            response.validator = response.validator or validator  # servers need not repeat it
        if response.content_type == "text/html" and not is_page(self._path):
            raise TransportError(f"sends {PAGE}")
        return response

    def _continuable(self):
        """(bytes of FILE.part to resume from, validator or None, size of the file or None)."""
        try:
            size_bytes = self._part.stat().st_size
            note = json.loads(self._note.read_text(encoding="utf-8"))
            url, validator, total_bytes = (note[k] for k in ("url", "validator", "total_bytes"))
        except (OSError, ValueError, KeyError, TypeError):
            return 0, None, None
        limits = [limit for limit in (self._published["bytes"], total_bytes) if limit is not None]
        if any(size_bytes > limit for limit in limits):
            return 0, None, None
        if url == self._url and validator:
            return size_bytes, validator, total_bytes
        # From another mirror or without validator: only a digest can show that it is the same file.
        if self._published["sha256"] or self._published["md5"]:
            return size_bytes, None, total_bytes
        return 0, None, None

    def _check_space(self, total_bytes, offset):
        free = shutil.disk_usage(self._part.parent).free
        if total_bytes is not None and total_bytes - offset > free:
            raise DownloadError(
                f"needs {total_bytes - offset} bytes in {self._part.parent}, where {free} are "
                "free: make room, or let this folder be a link to a larger disk"
            )

    def _limit_message(self):
        return (
            f"more than the {self._max_bytes} allowed for a file whose size is not published: "
            "set `bytes`, or a greater `max_bytes`, in FILES of the dataset's file"
        )

    def _check_rate(self, arrived):
        """Raise TransportError if the mirror sends too slowly; FILE.part is kept."""
        self._arrived += arrived
        now, (since_s, before) = time.monotonic(), self._rate_from
        if now - since_s < RATE_OVER_S or self._url.startswith(LOCAL):
            return
        rate = (self._arrived - before) / (now - since_s)
        if rate < MIN_BYTES_PER_S:
            raise TransportError(
                f"sent {rate:.0f} bytes a second for {now - since_s:.0f} s, less than the minimum "
                f"of {MIN_BYTES_PER_S:.0f}"
            )
        self._rate_from = now, self._arrived

    def _report_progress(self, position, limit, arrived, started_s):
        now = time.monotonic()
        if now - self._reported_s < PROGRESS_EVERY_S:
            return
        self._reported_s = now
        rate = arrived / (now - started_s)
        of = f" of {phrases.four_digits(limit / 1e6)}" if limit else ""
        left = f", {(limit - position) / rate:.0f} s left" if limit else ""
        done = phrases.four_digits(position / 1e6)
        self._report(f"{self._path.name}: {done}{of} MB, {rate / 1e6:.1f} MB/s{left}")


def _check_published(path, content, published, digests=None):
    """Compare a file with its published values. Returns its {"bytes", "sha256"}.

    `content`: path of the content: FILE or FILE.part. Raises WrongFile: they differ; the file is
    moved to FILE.bad.
    """
    try:
        return check_digests(content, published, digests)
    except WrongFile as error:
        bad = path.with_name(f"{path.name}.bad")
        content.replace(bad)
        _note_path(path).unlink(missing_ok=True)
        raise WrongFile(f"{error}; the file is {bad}") from None


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

    Raises WrongFile: they differ; the file is left in place.
    """
    try:
        return check_digests(Path(path), published_as(size_bytes, sha256, md5))
    except WrongFile as error:
        raise WrongFile(f"{error}; the file is {path}") from None


def check_digests(
    path: Path, published: dict[str, Any], digests: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Compare a file's size and digests with the published ones. Returns its {"bytes", "sha256"}.

    `digests`: size and digests of the file, if they are known. Raises WrongFile: they differ; or no
    digest is published and the file is e.g. an HTML page.
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
