"""Provide the source files of a dataset: staged by the user, or downloaded from mirrors.

Each is compared with its published size and digests; an error names the likely cause of a
difference. The published values of a file are a dictionary with `bytes`, `sha256` and `md5`; None:
unpublished.

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
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
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
PAGE = "an HTML page, not the file: a login or an error page?"


class FetchError(Error):
    """A dataset cannot be fetched; the message says what to do."""


class DownloadError(Error):
    """No mirror sent the file; the message has the reason for each mirror."""


class WrongFile(Error):
    """A file is not the published one; the message names both digests and the likely cause."""


def fetch(
    name: str,
    folder: Path | str,
    *,
    manual_dir: Path | str | None = None,
    offline: bool = False,
    terms_accepted: bool = False,
) -> dict[str, dict[str, Any]]:
    """Provide the source files of dataset `name` in `folder`, compared with their published values.

    Files that the user staged, in `manual_dir` or in its subfolder `name`, stay where they are:
    `folder` gets a symbolic link to each. Returns the {"bytes", "sha256", "url"} of each file.

    Raises:
        FetchError: the terms are not accepted, a file is missing and cannot be downloaded, or a
            staged file is not the published one.
        WrongFile: a file in `folder` is not the published one; it is left in place.
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

    Raises FetchError: it has terms.
    """
    terms = plugins.load("datasets", name).TERMS
    if terms:
        raise FetchError(
            f"only those who accepted its terms may use {name} ({terms}); "
            f"then put {name} into data.terms_accepted in the config"
        )


def _fetch_file(name, file, published, folder, manual_dir, offline):
    path = folder / file
    known = {"size_bytes": published["bytes"]} | {n: published[n] for n in ("sha256", "md5")}
    places = [Path(manual_dir) / name / file, Path(manual_dir) / file] if manual_dir else []
    if staged := next(filter(Path.is_file, places), None):
        checked = _check_staged(name, file, staged, known)
        path.unlink(missing_ok=True)
        path.symlink_to(staged.resolve())
        return {**checked, "url": staged.resolve().as_uri()}
    urls = [url for url in published["urls"] if not offline or url.startswith(LOCAL)]
    if not urls and not path.is_file():
        why = "it is never fetched automatically"
        if published["urls"]:
            why = f"offline is set ({' and '.join(published['urls'])} has it)"
        raise FetchError(
            f"{name}: {file} ({_describe(published)}) is missing and {why}; put it into the folder "
            f"that data.manual_dir names (now {manual_dir or 'not set'})"
        )
    return fetch_file(urls, path, **known, max_bytes=published.get("max_bytes", MAX_BYTES))


def _check_staged(name, file, staged, known):
    try:
        return check_file(staged, **known)
    except WrongFile as error:
        # Of which other known file of the dataset is this the MD5?
        dataset = plugins.load("datasets", name)
        sums = {entry["md5"]: other for other, entry in dataset.FILES.items() if other != file}
        sums |= {md5: other for other, md5 in getattr(dataset, "OTHERS", {}).items()}
        with open(staged, "rb") as content:
            other = sums.get(hashlib.file_digest(content, "md5").hexdigest())
        hint = f"; this is {other}" if other else ""
        raise FetchError(f"{name}: {staged} is not the published {file}: {error}{hint}") from error


def fetch_file(
    urls: Sequence[str],
    path: Path | str,
    size_bytes: int | None = None,
    sha256: str | None = None,
    md5: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """Download one file to `path` and compare it with its published size and digests.

    HTTP proxies are taken from the environment: HTTPS_PROXY, HTTP_PROXY, NO_PROXY. A file without
    published values is trusted, and the caller records its digest.

    Args:
        urls: mirrors, tried in order.
        max_bytes: largest size of a file whose size is not published.

    Returns:
        {"bytes", "sha256", "url"} of the file; url is None if the file existed already.

    Raises:
        DownloadError: no mirror has the published file, or the disk is too small.
        WrongFile: the file that exists at `path` is not the published one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        if path.is_file():  # perhaps another process has downloaded it
            return {**check_file(path, size_bytes, sha256, md5), "url": None}
        published, problems = {"bytes": size_bytes, "sha256": sha256, "md5": md5}, []
        for url in urls:
            try:
                arrived = _Transfer(url, path, published, max_bytes).run()
            except (TransportError, WrongFile, plugins.UnknownName) as error:
                problems.append(f"- {url}: {error}")
                continue
            _part_path(path).replace(path)
            _note_path(path).unlink(missing_ok=True)
            return {**arrived, "url": url}
    raise DownloadError("\n".join([f"{path.name} could not be fetched:", *problems]))


def _part_path(path):
    return path.with_name(f"{path.name}.part")


def _note_path(path):
    """The JSON file with URL, validator and size of the version of FILE.part."""
    return path.with_name(f"{path.name}.part.json")


@contextlib.contextmanager
def _locked(path):
    """Lock a file's download: a second process waits until the first has downloaded the file."""
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_line(f"{path.name}: waiting for another process that fetches it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # some parallel file systems have none
            print_line(
                f"{path.name}: this file system has no locks ({error.strerror}); download with one "
                "process only"
            )
        yield


def print_line(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


class _Transfer:
    def __init__(self, url, path, published, max_bytes):
        self._url, self._path, self._published = url, path, published
        self._max_bytes = max_bytes
        self._part, self._note = _part_path(path), _note_path(path)
        self._transport = plugins.load("transports", urlsplit(url).scheme)
        self._reported_s = time.monotonic()
        self._rate_from = self._reported_s, 0  # time, and bytes that had arrived
        self._arrived = 0

    def run(self):
        """Download FILE.part and compare it with the published values. Returns bytes and sha256."""
        inherited = self._part.exists()
        try:
            return self._fetch()
        except WrongFile as error:
            if not inherited:
                raise
            # An earlier process may have left damaged bytes, or those of another version.
            print_line(f"{error}; fetching it again")
            return self._fetch()

    def _fetch(self):
        self._furthest = fruitless = 0
        while True:
            before = self._furthest
            try:
                self._attempt()
                return self._check_published()
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
            file.seek(response.offset)
            # Written only now: older bytes must not be listed with a newer version's validator.
            version = {"validator": response.validator, "total_bytes": response.total_bytes}
            write_json(self._note, {"url": self._url, **version})
            started = position = response.offset
            started_s = time.monotonic()
            for chunk in response.chunks:
                if position == 0 and (impostor := _describe_non_data(self._path, chunk)):
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
        if response.content_type == "text/html" and not _is_page(self._path):
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
        print_line(f"{self._path.name}: {done}{of} MB, {rate / 1e6:.1f} MB/s{left}")

    def _check_published(self):
        """Compare FILE.part with the published values; one that differs is moved to FILE.bad."""
        try:
            return _check_digests(self._part, self._published)
        except WrongFile as error:
            bad = self._path.with_name(f"{self._path.name}.bad")
            self._part.replace(bad)
            self._note.unlink(missing_ok=True)
            raise WrongFile(f"{error}; the file is {bad}") from None


def check_file(
    path: Path | str,
    size_bytes: int | None = None,
    sha256: str | None = None,
    md5: str | None = None,
) -> dict[str, Any]:
    """Compare a file with its published values. Returns its {"bytes", "sha256"}.

    Raises WrongFile: they differ; or no digest is published and the file is e.g. an HTML page. The
    file is left in place.
    """
    try:
        return _check_digests(Path(path), {"bytes": size_bytes, "sha256": sha256, "md5": md5})
    except WrongFile as error:
        raise WrongFile(f"{error}; the file is {path}") from None


def _check_digests(path, published):
    # MD5 takes twice as long.
    names = ("sha256",) if published["sha256"] or not published["md5"] else ("sha256", "md5")
    digests = _digests(path, names)
    with open(path, "rb") as file:
        impostor = _describe_non_data(path, file.read(CHUNK_BYTES))
    equal = all(published[name] in (None, value) for name, value in digests.items())
    if equal and (published["sha256"] or published["md5"] or not impostor):
        return {"bytes": digests["bytes"], "sha256": digests["sha256"]}
    # With both digests, if both are published, the message helps to identify the file.
    digests = _digests(path, ("sha256", "md5"))
    comparable = {name: value for name, value in digests.items() if published[name] is not None}
    cause = impostor or _likely_cause(path, digests, published)
    raise WrongFile(f"expected {_describe(published)}, found {_describe(comparable)}: {cause}")


def _digests(path, names):
    """The size of a file, and its digests of some kinds."""
    totals = {name: hashlib.new(name, usedforsecurity=False) for name in names}
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            for total in totals.values():
                total.update(chunk)
        size_bytes = file.tell()
    return {"bytes": size_bytes, **{name: total.hexdigest() for name, total in totals.items()}}


def _describe(published):
    """The values that are known, as in `bytes 4542, md5 9fb6`."""
    known = ((name, published.get(name)) for name in ("bytes", "sha256", "md5"))
    values = [f"{name} {value}" for name, value in known if value is not None]
    return ", ".join(values) or "of unknown size and digest"


def _is_page(path):
    """Whether a file should be an HTML page, by its name."""
    return _published_name(path).endswith((".html", ".htm"))


def _describe_non_data(path, start):
    """What a file is if its beginning shows that it is no data, e.g. an HTML page; else None."""
    head = start[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")) and not _is_page(path):
        return PAGE
    if head.startswith(b"version https://git-lfs"):
        return (
            "a git-LFS pointer, not the file: `git lfs pull` or the repository's media URL has it"
        )
    return "an empty file" if not start else None


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
