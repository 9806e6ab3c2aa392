"""Trees of /proc and /sys that were written here."""

import pytest

from dlbench.machine.hardware import Files


@pytest.fixture
def tree(tmp_path):
    """A function that writes {path: content} below a root, and gives the Files of it."""

    def write(content):
        for path, text in content.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"{text}\n")
        return Files(tmp_path)

    return write
