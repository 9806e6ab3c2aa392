"""files: atomic writes, and the file name in the error of a full disk."""

import errno

import pytest

from dlbench.common import files
from dlbench.log import event_log


def test_a_full_disk_is_named_with_the_file_that_was_written(tmp_path):
    table = tmp_path / "results" / "table.json"
    full = pytest.raises(OSError, match=rf"No space left on device: '{table}'")
    with full, files.atomic_write(table) as part:
        part.symlink_to("/dev/full")
        part.write_text("more than fits")
    assert list(table.parent.iterdir()) == []
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        event_log.EventLog("/dev/full").write("launch")


def test_other_errors_are_left_as_they_are(tmp_path):
    reset = pytest.raises(OSError, match="reset by peer")
    with reset as caught, files.atomic_write(tmp_path / "table.json"):
        raise OSError(errno.ECONNRESET, "reset by peer")
    assert caught.value.filename is None


def test_equal_values_have_one_canonical_json_and_one_digest():
    assert files.canonical_json({"b": 1.5, "a": "\u00e9"}) == b'{"a":"\\u00e9","b":1.5}'
    assert files.json_digest({"b": [], "a": 1}) == files.json_digest({"a": 1, "b": []})
    assert files.json_digest({"a": 1}) != files.json_digest({"a": "1"})
