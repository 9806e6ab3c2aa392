"""Whether dlbench is a clone or was installed from a wheel, and which version it is.

pip puts a wheel's files beside a folder `dlbench-VERSION.dist-info`, whose RECORD has their digests
(the Python packaging specification "Recording installed projects").
"""

import base64
import csv
import functools
import hashlib
from pathlib import Path

from dlbench import __version__
from dlbench.common import own_code

SHOWN = 12  # hexadecimal digits of a digest


def is_wheel() -> bool:
    """Whether this dlbench was installed from a wheel; its files may then be read-only."""
    return own_code.wheel_metadata() is not None


def release() -> str | None:
    """Which wheel this is, as 0.1.0+sha256.0123456789ab; None in a clone, an archive or a copy.

    The digest is that of the installed files as they are now. If some are not those that were
    installed, it ends with `.changed`.
    """
    metadata = own_code.wheel_metadata()
    return _release(metadata) if metadata else None


def version() -> str:
    """The version for people: with the wheel's digest, or the commit of a clone if git knows it."""
    if found := release():
        return found
    state = own_code.git_state()
    if not state["git_commit"]:
        return __version__
    changed = ", with changes" if state["git_dirty"] else ""
    return f"{__version__} (commit {state['git_commit'][:SHOWN]}{changed})"


@functools.cache
def _release(metadata: Path) -> str:
    with open(metadata / "RECORD", encoding="utf-8", newline="") as file:
        recorded = {name: digest for name, digest, _ in csv.reader(file) if digest}
    ours = sorted(name for name in recorded if name.startswith(f"{own_code.PROJECT.name}/"))
    found = {name: _digest(metadata.parent / name) for name in ours}
    listed = "".join(f"{name}\0{digest}\n" for name, digest in found.items())
    digest = hashlib.sha256(listed.encode()).hexdigest()[:SHOWN]
    changed = "" if all(found[name] == recorded[name] for name in ours) else ".changed"
    return f"{__version__}+sha256.{digest}{changed}"


def _digest(path):
    """The SHA-256 of a file as RECORD has it; "" if it cannot be read."""
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return ""
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
