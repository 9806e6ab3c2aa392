"""Bring one file from the first mirror that has it, whole and checked.

- FILE is absent or whole. What arrived so far is FILE.part, the server's name for that
  version FILE.part.json; both are continued, also after a kill.
- Progress counts against the furthest byte reached: a server that starts anew or
  sends the same bytes each time is given up after a few fruitless attempts.
- A file that is not the published one is kept as FILE.bad for a look.
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
from pathlib import Path
from urllib.parse import urlsplit

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.files import name_file, write_json
from dlbench.data.transports import CHUNK_BYTES, Answer, TransportError

FRUITLESS_ATTEMPTS = 5  # in a row, on one mirror
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0  # after fruitless attempts, doubled each time
SHOW_EVERY_S = 5.0
QUEUED_CHUNKS = 8  # to be hashed
LOCAL = ("file:", "package:")  # URLs that touch no network
PAGE = "an HTML page, not the file: a login or an error page?"


class DownloadError(Error):
    """A file could not be brought; the message says from where and why."""


class WrongFile(DownloadError):
    """A file is not the published one; the message has expected, found and the likely cause."""


def _say(line):
    print(line, file=sys.stderr, flush=True)


def fetch_file(urls, path, size_bytes=None, sha256=None, md5=None, *, say=_say, offline=False):
    """Bring one file to `path`, which is then whole and as published.

    HTTP proxies are taken from the environment: HTTPS_PROXY, HTTP_PROXY, NO_PROXY.

    Args:
        urls: mirrors, tried in order.
        size_bytes, sha256, md5: what is known of the file, None where nothing is: then
            what arrives is trusted, and the caller records its digest.
        say: called with a line of progress now and then; by default stderr.
        offline: touch no network.

    Returns:
        {"bytes", "sha256", "url"} of what arrived; url is None where it was there already.

    Raises:
        DownloadError: no mirror has it, it is not the published one, it is missing and
            `offline` is set, or the disk is too small.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {"bytes": size_bytes, "sha256": sha256, "md5": md5}
    with _alone(path, say):
        if path.is_file():  # another process was faster
            return {**_checked(path, _digests_of(path, known), known), "url": None}
        problems = []
        for url in urls:
            if offline and not url.startswith(LOCAL):
                continue
            try:
                found = _Transfer(url, path, known, say).run()
            except (TransportError, WrongFile, plugins.UnknownName) as error:
                problems.append(f"- {url}: {error}")
                continue
            _part(path).replace(path)
            _note(path).unlink(missing_ok=True)
            return {**found, "url": url}
    if offline and not problems:
        raise DownloadError(
            f"{path.name} is missing and offline is set: put the file by hand at {path} "
            f"({_described(known)}; it is published at {' and '.join(urls) or 'no URL'})"
        )
    raise DownloadError("\n".join([f"{path.name} could not be fetched:", *problems]))


def check_file(path, *, size_bytes=None, sha256=None, md5=None):
    """Compare a file with what is known of it.

    Returns:
        Its {"bytes", "sha256"}.

    Raises:
        WrongFile: it is another file.
    """
    known = {"bytes": size_bytes, "sha256": sha256, "md5": md5}
    return _checked(Path(path), _digests_of(path, known), known, keep=True)


def _name(path):
    return path.name.removesuffix(".part")


def _part(path):
    return path.with_name(f"{path.name}.part")


def _note(path):
    """Where the server's name for the version of FILE.part is kept."""
    return path.with_name(f"{path.name}.part.json")


@contextlib.contextmanager
def _alone(path, say):
    """Only one process fetches a file; a second one waits and finds it there."""
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{path.name}: waiting for another process that fetches it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # some parallel file systems are mounted without
            say(f"{path.name}: no locks here ({error.strerror}); fetch it with one process only")
        yield


class _Transfer:
    """One file from one mirror."""

    def __init__(self, url, path, known, say):
        self._url, self._path, self._known, self._say = url, path, known, say
        self._part, self._note = _part(path), _note(path)
        self._transport = plugins.load("transports", urlsplit(url).scheme)
        self._shown_s = time.monotonic()

    def run(self):
        """Fetch until FILE.part is whole and as published. Returns its bytes and sha256."""
        inherited = self._part.exists()
        with _Digests(self._known) as self._digests:
            try:
                return self._fetch()
            except WrongFile as error:
                if not inherited:
                    raise
                # What was there may have been damaged, or of another mirror's version.
                self._say(f"{error}; fetched anew")
                return self._fetch()

    def _fetch(self):
        self._best = fruitless = 0
        while True:
            before = self._best
            try:
                self._attempt()
                return _checked(self._part, self._digests.result(), self._known)
            except TransportError as error:
                if not error.passing:
                    raise
                fruitless = 0 if self._best > before else fruitless + 1
                if fruitless == FRUITLESS_ATTEMPTS:
                    raise TransportError(
                        f"{error}; given up at byte {self._best} after {fruitless} attempts "
                        "without progress"
                    ) from error
                if fruitless:
                    time.sleep(min(FIRST_WAIT_S * 2 ** (fruitless - 1), LONGEST_WAIT_S))
            except OSError as error:
                name_file(error, self._part)
                raise

    def _attempt(self):
        """Read what the mirror sends into FILE.part until it is whole."""
        answer = self._open()
        limit = answer.total_bytes if self._known["bytes"] is None else self._known["bytes"]
        if answer.total_bytes not in (None, limit):
            raise TransportError(
                f"offers {answer.total_bytes} bytes, expected {limit}: another file, or a page "
                "in its place"
            )
        self._check_space(limit, answer.offset)
        with open(self._part, "r+b" if answer.offset else "w+b") as file:
            self._digests.catch_up(file, answer.offset)
            # Only now: no older content may stand under a newer version's name.
            version = {"validator": answer.validator, "total_bytes": answer.total_bytes}
            write_json(self._note, {"url": self._url, **version})
            started = position = answer.offset
            started_s = time.monotonic()
            for chunk in answer.chunks:
                if position == 0 and (what := _impostor(self._path, chunk)):
                    raise TransportError(f"sends {what}")
                position += len(chunk)
                if limit is not None and position > limit:
                    raise TransportError(f"sends more than the {limit} bytes expected")
                file.write(chunk)
                self._digests.add(chunk)
                self._best = max(self._best, position)
                self._show(position, limit, position - started, started_s)
            file.flush()
            os.fsync(file.fileno())
        if limit is not None and position < limit:
            raise TransportError(
                f"the connection ended at byte {position} of {limit}", passing=True
            )

    def _open(self):
        """The mirror's answer: it continues FILE.part where that is of the same version."""
        offset, validator, total_bytes = self._there()
        whole = total_bytes if self._known["bytes"] is None else self._known["bytes"]
        if offset and offset == whole:  # killed before the last step
            return Answer([], offset, whole, validator)
        answer = self._transport.open(self._url, offset, validator)
        same_version = validator is None or answer.validator in (None, validator)
        same_size = None in (total_bytes, answer.total_bytes) or total_bytes == answer.total_bytes
        if answer.offset and not (answer.offset == offset and same_version and same_size):
            # It continues another version, as servers do that know no If-Range.
            answer = self._transport.open(self._url, 0, None)
            if answer.offset:
                raise TransportError(f"was asked for byte 0, sends from byte {answer.offset}")
        if answer.offset:
            answer.validator = answer.validator or validator  # it need not be said again
        if answer.content_type == "text/html" and not _is_page(self._path):
            raise TransportError(f"sends {PAGE}")
        return answer

    def _there(self):
        """Of FILE.part: bytes that can be continued, the version's name, its whole size."""
        try:
            size_bytes = self._part.stat().st_size
            note = json.loads(self._note.read_text(encoding="utf-8"))
            url, validator, total_bytes = (note[k] for k in ("url", "validator", "total_bytes"))
        except (OSError, ValueError, KeyError, TypeError):
            return 0, None, None
        limits = [limit for limit in (self._known["bytes"], total_bytes) if limit is not None]
        if any(size_bytes > limit for limit in limits):
            return 0, None, None
        if url == self._url and validator:
            return size_bytes, validator, total_bytes
        # From another mirror, or of no version: only a digest can tell that it is the same file.
        if self._known["sha256"] or self._known["md5"]:
            return size_bytes, None, total_bytes
        return 0, None, None

    def _check_space(self, total_bytes, offset):
        free = shutil.disk_usage(self._part.parent).free
        if total_bytes is not None and total_bytes - offset > free:
            raise DownloadError(
                f"needs {total_bytes - offset} bytes in {self._part.parent}, where {free} are "
                "free: make room, or let this folder be a link to a larger disk"
            )

    def _show(self, position, limit, arrived, started_s):
        now = time.monotonic()
        if now - self._shown_s < SHOW_EVERY_S:
            return
        self._shown_s = now
        rate = arrived / (now - started_s)
        of = f" of {limit / 1e6:.0f}" if limit else ""
        left = f", {(limit - position) / rate:.0f} s left" if limit else ""
        self._say(f"{self._path.name}: {position / 1e6:.0f}{of} MB, {rate / 1e6:.1f} MB/s{left}")


class _Digests:
    """Digests of a stream, computed beside it in a thread of their own.

    SHA-256 always; MD5, which is twice as slow, only where it is all that is known.
    """

    def __init__(self, known):
        need_md5 = known["md5"] and not known["sha256"]
        self._names = ("sha256", "md5") if need_md5 else ("sha256",)
        self._chunks = queue.Queue(QUEUED_CHUNKS)
        self._restart()

    def __enter__(self):
        threading.Thread(target=self._work, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._chunks.put(None)

    def add(self, chunk):
        self._bytes += len(chunk)
        self._chunks.put(chunk)

    def catch_up(self, file, offset):
        """Stand at `offset`, as `file` then does; what is known already is not read again."""
        if self._bytes != offset:
            self._restart()
            while chunk := file.read(CHUNK_BYTES):
                self.add(chunk)
        file.seek(offset)

    def result(self):
        """The number of bytes, and the digests in hexadecimal."""
        self._chunks.join()
        return {"bytes": self._bytes, **{n: d.hexdigest() for n, d in self._digests.items()}}

    def _restart(self):
        self._chunks.join()
        self._bytes = 0
        self._digests = {n: hashlib.new(n, usedforsecurity=False) for n in self._names}

    def _work(self):
        while (chunk := self._chunks.get()) is not None:
            for digest in self._digests.values():
                digest.update(chunk)
            self._chunks.task_done()


def _digests_of(path, known):
    with _Digests(known) as digests, open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digests.add(chunk)
        return digests.result()


def _checked(path, found, known, keep=False):
    """What is found, where it is what is known; else the file is put aside as FILE.bad."""
    with open(path, "rb") as file:
        mistake = _impostor(path, file.read(CHUNK_BYTES))
    same = all(known[name] in (None, value) for name, value in found.items())
    if same and (known["sha256"] or known["md5"] or not mistake):
        return {"bytes": found["bytes"], "sha256": found["sha256"]}
    # All that is published may help to tell what it is.
    found = _digests_of(path, known | {"sha256": None})
    there = {name: value for name, value in found.items() if known[name] is not None}
    cause, place = mistake or _difference(path, found, known), path
    if not keep:
        place = path.with_name(f"{_name(path)}.bad")
        path.replace(place)
        path.with_name(f"{_name(path)}.part.json").unlink(missing_ok=True)
    raise WrongFile(
        f"expected {_described(known)}, found {_described(there)}: {cause}; the file is {place}"
    )


def _described(known):
    words = [f"{name} {value}" for name, value in known.items() if value is not None]
    return ", ".join(words) or "of unknown size and digest"


def _is_page(path):
    return _name(path).endswith((".html", ".htm"))


def _impostor(path, start):
    """What a file that begins with `start` is instead of data, or None."""
    head = start[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")) and not _is_page(path):
        return PAGE
    if head.startswith(b"version https://git-lfs"):
        return (
            "a git-LFS pointer, not the file: `git lfs pull` or the repository's media URL has it"
        )
    return "an empty file" if not start else None


def _difference(path, found, known):
    """The likely cause of a wrong length or digest."""
    with open(path, "rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
    if _name(path).endswith((".gz", ".tgz")) and not gzipped:
        return "not compressed: was it unpacked on the way?"
    if known["bytes"] is not None and found["bytes"] < known["bytes"]:
        return "cut short"
    if known["bytes"] == found["bytes"]:
        return "as long as it should be: damaged, or another version"
    return "another version of the file, or another file, or damaged"
