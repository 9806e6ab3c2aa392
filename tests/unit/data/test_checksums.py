"""checksums: a file that is not the published one is reported with the likely cause."""

import pytest

from dlbench.data.checksums import WrongFile, check_file
from support.machines.downloads import CONTENT, MD5, SHA256

HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000000\n"


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("data.bin", HTML, "HTML page"),
        ("data.bin", POINTER, "git-LFS pointer"),
        ("data.bin", b"", "an empty file"),
        ("data.bin", CONTENT[:-1], "cut short"),
        ("data.tar.gz", CONTENT, "not compressed"),
    ],
)
def test_a_file_put_there_by_hand_is_checked_and_its_mistake_named(tmp_path, name, content, cause):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WrongFile, match=cause):
        check_file(tmp_path / name, size_bytes=len(CONTENT), sha256="0" * 64)
    assert (tmp_path / name).read_bytes() == content


def test_a_published_file_is_known_by_either_digest(tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    expected = {"bytes": len(CONTENT), "sha256": SHA256}
    assert check_file(tmp_path / "data.bin", sha256=SHA256) == expected
    assert check_file(tmp_path / "data.bin", md5=MD5) == expected


def test_both_digests_of_another_file_are_said_if_both_are_published(tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT[::-1])
    with pytest.raises(
        WrongFile, match=f"md5 {MD5}, found bytes .* sha256 .*, md5 .*: its length is right"
    ):
        check_file(tmp_path / "data.bin", size_bytes=len(CONTENT), sha256=SHA256, md5=MD5)
