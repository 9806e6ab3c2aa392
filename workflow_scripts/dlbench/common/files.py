"""Files that are either whole or absent, and their checksums."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

LACKING_ROOM = (errno.ENOSPC, errno.EDQUOT)


def name_file(error, path):
    """Have the OSError of a full disk name the file that was written; the system's does not."""
    if error.errno in LACKING_ROOM and error.filename is None:
        error.filename = str(path)


@contextlib.contextmanager
def written_whole(path, force=True):
    """Yield a temporary path beside `path`; it takes its place when the block succeeds.

    Whoever reads `path` sees the old content or the new, never a part, also
    after a kill or a full disk.

    Args:
        force: have it on the disk before it takes its place, so that a power cut leaves the
            old content or the new too.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        if force:
            with open(part, "rb") as file:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        name_file(error, path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_json(path, content):
    """Write plain values as JSON, whole or not at all."""
    with written_whole(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def sha256(path):
    """SHA-256 of a file's content, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def fresh_folder(folder):
    """An empty folder, whatever was there; images have folders that refuse their owner."""
    folder = Path(folder)
    if folder.exists():
        subprocess.run(["chmod", "--recursive", "u+rwX", folder], check=True)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def read_json(path):
    """The JSON object in a file; None where there is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
