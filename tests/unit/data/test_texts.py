"""sources: sequences of tokens in pieces, and the generated text."""

import hashlib
import json
import math

import numpy as np
import pytest

from dlbench import Error
from dlbench.data import convert_dataset, sources, stores
from dlbench.data.datasets import bytes as generated
from dlbench.study import config
from dlbench.trainer.reading import text as reading_text
from support.studies.made_studies import BLOCK, STUDY


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    convert_dataset.convert("bytes", folder, folder, workers=1)
    return folder


def paths(folder, split):
    return sorted(folder.glob(f"{split}-*"))


def test_pieces_are_put_together_again_to_the_text(converted):
    for split, text in generated.texts().items():
        row = reading_text.load("bytes", paths(converted, split), "uint8")
        assert row.tobytes() == text
        assert len(row) == generated.TOKENS[split]
    reader = json.loads((converted / "manifest.json").read_text())["reader"]
    assert reader == generated.READER
    with pytest.raises(Error, match="pieces of its text are missing"):
        reading_text.load("bytes", paths(converted, "train")[1:], "uint8")


def test_windows_of_any_length_follow_one_another_and_share_one_token():
    row = np.arange(100, dtype=np.uint8)
    for length in (1, 7, 33, 99):
        count = reading_text.count(len(row), length)
        inputs, targets = reading_text.windows(row, np.arange(count), length)
        assert inputs.ravel().tolist() == list(range(count * length))
        assert (targets == inputs + 1).all()
    assert reading_text.count(5, 5) == 0


def test_the_generated_text_is_the_same_everywhere():
    digests = {split: hashlib.sha256(text).hexdigest() for split, text in generated.texts().items()}
    assert digests == {
        "train": "204f1f6e7fe8502abe3acd188b27fcea9e3a6d96d74e78689641f0fb4df05df5",
        "validation": "f89e357090c066f307be65d1ff990362b78ae2de3128a883f2994f32f5074683",
    }


def test_entropy_is_that_of_single_letters():
    assert sources.unigram_entropy(b"abab") == pytest.approx(math.log(2))
    assert sources.unigram_entropy(b"aaaa") == 0


def test_text_of_a_folder_is_read_in_the_order_of_names_and_its_end_is_held_out(tmp_path):
    (tmp_path / "b.txt").write_text("zwei" * 5)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "first.txt").write_text("eins" * 5)
    (tmp_path / "notes.md").write_text("no text of the dataset")
    text = sources.read(tmp_path)
    assert text.decode() == "eins" * 5 + "\n" + "zwei" * 5
    parts = sources.held_out(text)
    assert parts["train"] + parts["validation"] == text
    assert len(parts["validation"]) == 4


def test_marks_of_byte_order_and_kinds_of_newlines_are_no_tokens(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbffour \xef\xbb\xbf")
    text = sources.read(tmp_path)
    assert text == "one\ntwo\nthree\n\nfour \ufeff".encode()  # within a text it is one of its words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "found 0 and no text"),
        (b" \n", "found 1 and no text"),
        ("Käse".encode("latin-1"), "expected text in UTF-8, found the byte 0xe4 at place 1"),
    ],
)
def test_a_folder_without_text_and_other_encodings_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(Error, match=message):
        sources.read(tmp_path)


def adopted(dataset="text", **text):
    data = STUDY["data"] | {"text": text}
    blocks = [BLOCK | {"model": "gpt_tiny", "dataset": dataset, "steps": 5}]
    return stores.adopted(config.study(STUDY | {"data": data, "matrix": blocks}))


def test_own_text_is_converted_and_another_text_has_another_digest(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.txt").write_text("abc " * 3000)
    with pytest.raises(Error, match=r"set its folder in data\.text"):
        adopted()
    before = adopted(path=str(own), tokenizer="bytes")["text"]
    stores.adopt("text", before.folder, tmp_path / "converted" / "manifest.json")
    row = reading_text.load("text", paths(tmp_path / "converted", "train"), "uint8")
    assert row.tobytes() == (b"abc " * 3000)[:10_800]
    (own / "a.txt").write_text("abd " * 3000)
    assert adopted(path=str(own))["text"].digest != before.digest


def test_a_study_reads_several_texts_each_from_its_folder_and_names_the_one_that_is_wrong(tmp_path):
    folders = {name: tmp_path / name for name in ("books", "letters")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "a.txt").write_text(f"{name} " * 2000)
    names = ["text_books", "text_letters"]
    given = {"folders": {name: str(folder) for name, folder in folders.items()}}
    found = adopted(names, **given)
    assert [found[name].folder for name in names] == [*folders.values()]
    assert len({store.digest for store in found.values()}) == 2
    stores.adopt("text_books", folders["books"], tmp_path / "converted" / "manifest.json")
    assert json.loads((tmp_path / "converted/manifest.json").read_text())["dataset"] == "text_books"
    (folders["letters"] / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(Error, match=r"text_letters: .*/letters/a\.txt: expected text in UTF"):
        adopted(names, **given)
    (folders["letters"] / "a.txt").unlink()
    with pytest.raises(Error, match=r"dataset text_letters: .*/letters: expected files \*\.txt"):
        adopted(names, **given)
    folders["letters"].rmdir()
    with pytest.raises(Error, match=r"dataset text_letters: .*/letters: expected a folder"):
        adopted(names, **given)
    with pytest.raises(Error, match=r"dataset text_book is your own text.*did you mean 'books'"):
        adopted("text_book", **given)
    with pytest.raises(Error, match=r"data\.text\.folders"):
        adopted(names, folders={"Books": str(tmp_path)})
