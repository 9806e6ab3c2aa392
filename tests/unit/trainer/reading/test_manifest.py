"""manifest: every change is noticed, and all fields that training reads are validated."""

import copy
import json

import pytest

from dlbench import Error
from dlbench.data import convert_dataset, fetch_dataset, stores
from dlbench.trainer.reading import manifest


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A converted dataset. Each test writes its manifest anew."""
    folder = tmp_path_factory.mktemp("digits")
    fetch_dataset.fetch("digits", folder / "source")
    convert_dataset.convert("digits", folder / "source", folder / "digits")
    return folder / "digits", json.loads((folder / "digits/manifest.json").read_text())


def places(content, path=()):
    """The path of each value in plain values."""
    below = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in below:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(content, path, value):
    """A copy in which the value at a path is another one; "gone": in which it is missing."""
    content = copy.deepcopy(content)
    part = content
    for key in path[:-1]:
        part = part[key]
    if value == "gone":
        del part[path[-1]]
    else:
        part[path[-1]] = value
    return content


def written(digits, content):
    folder, _ = digits
    (folder / manifest.NAME).write_text(json.dumps(content))
    return folder


def test_what_was_written_is_read_and_is_as_the_shards_are(digits):
    folder = written(digits, digits[1])
    assert manifest.read(folder) == digits[1]
    assert stores.verify(folder) == []


def test_no_changed_or_missing_value_of_a_manifest_is_believed(digits):
    tried = 0
    for path in places(digits[1]):
        for value in ("gone", 77):
            if path == (manifest.DIGEST,) and value == "gone":
                continue
            folder = written(digits, changed(digits[1], path, value))
            with pytest.raises(Error, match=r"manifest.json: .*: expected .*, found .*; convert"):
                manifest.read(folder)
            assert len(stores.verify(folder, content=False)) == 1
            tried += 1
    assert tried > 100


def test_dropped_lines_and_what_is_nested_too_deep_are_named(digits):
    lines = json.dumps(digits[1], indent=1).splitlines()
    for place in range(0, len(lines), 7):
        folder = written(digits, digits[1])
        (folder / manifest.NAME).write_text("\n".join(lines[:place] + lines[place + 1 :]))
        (problem,) = stores.verify(folder)
        assert problem.startswith(f"{folder}/manifest.json: ")
    for text in ("[" * 100_000, '{"a":' * 100_000, "", "[]", "null", "\udcff"):
        (folder / manifest.NAME).write_bytes(text.encode(errors="surrogateescape"))
        (problem,) = stores.verify(folder)
        assert problem.startswith(f"{folder}/manifest.json: ")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("reader", "shape"), [32, 31, 1]),
        (("reader", "shape"), [32, -32, 1]),
        (("reader", "classes"), 0),
        (("reader", "first_label"), -1),
        (("reader", "dtype"), "object"),
        (("reader", "encoding"), "stream2"),
        (("reader", "layout"), "mine"),
        (("reader", "mask"), [32, 32, 1]),
        (("kind",), None),
        (("dataset",), 3),
        (("splits",), {}),
        (("splits", "train", "records"), 1436),
        (("splits", "train", "records"), True),
        (("splits", "train", "shards"), []),
        (("splits", "train", "shards", 0, "file"), "../digits/train-00000-of-00004"),
        (("splits", "train", "shards", 0, "file"), "train-00001-of-00004"),
        (("splits", "train", "shards", 0, "records"), -1),
        (("splits", "train", "shards", 0, "bytes"), 1.5),
        (("splits", "train", "shards", 0, "sha256"), "0"),
    ],
)
def test_without_a_digest_what_training_reads_is_checked(digits, path, value):
    content = {key: part for key, part in digits[1].items() if key != manifest.DIGEST}
    assert stores.verify(written(digits, content)) == []
    problems = stores.verify(written(digits, changed(content, path, value)))
    assert problems and all("manifest.json" in problem for problem in problems)
