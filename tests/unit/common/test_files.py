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


@pytest.mark.parametrize("found", ["a link", "a file", "a folder with a link", "nothing"])
def test_of_a_link_the_link_alone_is_removed_for_an_empty_folder(tmp_path, found):
    elsewhere, folder = tmp_path / "scratch", tmp_path / "run" / "output"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("of somebody")
    folder.parent.mkdir()
    match found:
        case "a link":
            folder.symlink_to(elsewhere)
        case "a file":
            folder.write_text("")
        case "a folder with a link":
            folder.mkdir()
            (folder / "data").symlink_to(elsewhere)
    files.make_empty_folder(folder)
    assert folder.is_dir() and not folder.is_symlink() and list(folder.iterdir()) == []
    assert (elsewhere / "kept").read_text() == "of somebody"


def test_no_log_is_written_through_a_link(tmp_path):
    (tmp_path / "theirs").write_text("kept")
    (tmp_path / "train.jsonl").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic links"):
        event_log.EventLog(tmp_path / "train.jsonl")
    assert (tmp_path / "theirs").read_text() == "kept"
