"""Bring one file from the first mirror that has it, whole and checked.

- What arrived so far is kept as FILE.part and continued, also after a kill.
- Progress counts against the furthest byte reached: a server that starts anew
  each time is given up after a few fruitless attempts.
- A file that is not the published one is kept as FILE.bad for a look.
"""

import contextlib
import fcntl
import hashlib
import json
import queue
import shutil
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from dlbench import Error, plugins
from dlbench.transports import CHUNK_BYTES, TransportError

FRUITLESS_ATTEMPTS = 5  # in a row, on one mirror
WORTHWHILE_BYTES = 64 << 10  # of progress, for an attempt to count as fruitful
LONGEST_WAIT_S = 30.0
SHOW_EVERY_S = 5.0


class DownloadError(Error):
    """A file could not be brought; the message says from where and why."""


def fetch_file(urls, path, *, size_bytes=None, sha256=None, md5=None, say=None):
    """Bring one file to `path`, which is then whole and as published.

    Args:
        urls: mirrors, tried in order.
        size_bytes, sha256, md5: what is known of the file, None where nothing is.
        say: called with a line of progress now and then; by default stderr.

    Returns:
        {"bytes", "sha256", "url"} of what arrived; url is None where it was there already.

    Raises:
        DownloadError: no mirror has it, or the disk is too small.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    known = {"bytes": size_bytes, "sha256": sha256, "md5": md5}
    with _alone(path):
        if path.is_file():  # another process was faster
            return {**_checked(path, _digests_of(path, known), known), "url": None}
        problems = []
        for url in urls:
            try:
                digests = _Transfer(url, path, known, say).run()
                found = _checked(_part(path), digests, known)
            except (TransportError, DownloadError, plugins.UnknownName) as error:
                problems.append(f"- {url}: {error}")
                continue
            _part(path).replace(path)
            _note(path).unlink(missing_ok=True)
            return {**found, "url": url}
    raise DownloadError("\n".join([f"{path.name} could not be fetched:", *problems]))


def check_file(path, *, size_bytes=None, sha256=None, md5=None):
    """Compare a file with what is known of it.

    Returns:
        Its {"bytes", "sha256"}.

    Raises:
        DownloadError: it is another file.
    """
    known = {"bytes": size_bytes, "sha256": sha256, "md5": md5}
    return _checked(Path(path), _digests_of(path, known), known, keep=True)


def _part(path):
    return path.with_name(f"{path.name}.part")


def _note(path):
    """Where the server's name for the version of FILE.part is kept."""
    return path.with_name(f"{path.name}.part.json")


@contextlib.contextmanager
def _alone(path):
    """Only one process fetches a file; a second one waits and finds it there."""
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Transfer:
    """One file from one mirror."""

    def __init__(self, url, path, known, say):
        self._url, self._known, self._say = url, known, say
        self._part, self._note, self._name = _part(path), _note(path), path.name
        self._transport = plugins.load("transports", urlsplit(url).scheme)
        self._best = 0
        self._shown_s = time.monotonic()

    def run(self):
        """Fetch until FILE.part is whole. Returns its digests."""
        fruitless = 0
        while True:
            before = self._best
            try:
                return self._attempt()
            except TransportError as error:
                if not error.passing:
                    raise
                worthwhile = self._best >= before + WORTHWHILE_BYTES
                fruitless = 0 if worthwhile else fruitless + 1
                if fruitless == FRUITLESS_ATTEMPTS:
                    raise TransportError(
                        f"{error}; given up at byte {self._best} after {fruitless} attempts "
                        "without progress"
                    ) from error
                if fruitless:
                    time.sleep(min(0.1 * 4**fruitless, LONGEST_WAIT_S))

    def _attempt(self):
        offset, validator = self._there()
        answer = self._transport.open(self._url, offset, validator)
        total = answer.total_bytes
        if self._known["bytes"] is not None and total not in (None, self._known["bytes"]):
            raise TransportError(
                f"offers {total} bytes, expected {self._known['bytes']}: another file"
            )
        self._check_space(total, answer.offset)
        version = {"url": self._url, "validator": answer.validator}
        self._note.write_text(json.dumps(version), encoding="utf-8")
        mode = "r+b" if answer.offset else "wb"
        with _Digests(self._known) as digests, open(self._part, mode, buffering=0) as file:
            if answer.offset:
                while chunk := file.read(CHUNK_BYTES):
                    digests.add(chunk)
            position = started = answer.offset
            started_s = time.monotonic()
            limit = self._known["bytes"] or total
            for chunk in answer.chunks:
                if position == 0:
                    self._refuse_page(chunk)
                file.write(chunk)
                digests.add(chunk)
                position += len(chunk)
                self._best = max(self._best, position)
                if limit is not None and position > limit:
                    raise TransportError(f"sends more than the {limit} bytes announced")
                self._show(position, limit, (position - started, started_s))
            if limit is not None and position < limit:
                raise TransportError(
                    f"the connection ended at byte {position} of {limit}", passing=True
                )
            return digests.result()

    def _there(self):
        """(bytes of FILE.part that can be continued, the server's name for its version)."""
        try:
            size_bytes = self._part.stat().st_size
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0, None
        if note["url"] == self._url and note["validator"]:
            return size_bytes, note["validator"]
        # From another mirror, or of no version: only a digest can tell that it is the same file.
        known = self._known["sha256"] or self._known["md5"]
        return (size_bytes, None) if known else (0, None)

    def _check_space(self, total, offset):
        free = shutil.disk_usage(self._part.parent).free
        if total is not None and total - offset > free:
            raise DownloadError(
                f"needs {total - offset} bytes in {self._part.parent}, where {free} are free"
            )

    def _refuse_page(self, start):
        head = start[:64].lstrip().lower()
        if head.startswith((b"<!doctype html", b"<html")):
            raise TransportError("sends an HTML page, not the file: a login or an error page?")
        if head.startswith(b"version https://git-lfs"):
            raise TransportError("sends a git-LFS pointer, not the file")

    def _show(self, position, limit, measured):
        now = time.monotonic()
        if now - self._shown_s < SHOW_EVERY_S:
            return
        self._shown_s = now
        arrived, since_s = measured
        rate = arrived / (now - since_s)
        of = f" of {limit / 1e6:.0f}" if limit else ""
        left = f", {(limit - position) / rate:.0f} s left" if limit and rate else ""
        self._say(f"{self._name}: {position / 1e6:.0f}{of} MB, {rate / 1e6:.1f} MB/s{left}")


class _Digests:
    """Digests of a stream, computed beside it in a thread: SHA-256, and MD5 where it is needed."""

    def __init__(self, known):
        self._chunks = queue.Queue(maxsize=8)
        self._digests = {"sha256": hashlib.sha256()}
        if known["md5"] and not known["sha256"]:
            self._digests["md5"] = hashlib.md5(usedforsecurity=False)
        self._bytes = 0
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._chunks.put(None)
        self._thread.join()

    def add(self, chunk):
        self._chunks.put(chunk)

    def result(self):
        self.__exit__()
        found = {name: digest.hexdigest() for name, digest in self._digests.items()}
        return {"bytes": self._bytes, **found}

    def _work(self):
        while (chunk := self._chunks.get()) is not None:
            self._bytes += len(chunk)
            for digest in self._digests.values():
                digest.update(chunk)


def _digests_of(path, known):
    with _Digests(known) as digests, open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digests.add(chunk)
        return digests.result()


def _checked(path, found, known, keep=False):
    """What is found, where it is what is known; else the file is put aside as FILE.bad."""
    wrong = [
        name
        for name, value in known.items()
        if value is not None and found.get(name, value) != value
    ]
    if not wrong:
        return {"bytes": found["bytes"], "sha256": found["sha256"]}
    expected = ", ".join(f"{name} {known[name]}" for name in wrong)
    there = ", ".join(f"{name} {found[name]}" for name in wrong)
    where = path
    if not keep:
        where = path.with_name(f"{path.name.removesuffix('.part')}.bad")
        path.replace(where)
        where.with_name(f"{where.stem}.part.json").unlink(missing_ok=True)
    raise DownloadError(f"expected {expected}, found {there}; the file is {where}")
