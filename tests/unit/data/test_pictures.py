"""pictures: bad images of every kind are reported before training."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dlbench.common import plugins
from dlbench.data import convert_dataset, pictures
from dlbench.data.convert_dataset import DataError
from dlbench.data.pictures import PictureError

PIXELS = np.stack([*np.mgrid[:60, :80], np.full((60, 80), 99)], axis=-1).astype(np.uint8) * 2
PIXELS += np.random.default_rng(1).integers(0, 40, (60, 80, 1), np.uint8)
RGB = Image.fromarray(PIXELS)
GREY_16 = Image.fromarray(np.linspace(0, 65535, 4800).astype(np.uint16).reshape(60, 80))


def encoded(image=RGB, kind="JPEG", **options):
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def with_frame(start, fields):
    """A JPEG whose bytes at an offset after its frame marker are replaced."""
    content = bytearray(encoded())
    frame = content.index(b"\xff\xc0")
    content[frame + start : frame + start + len(fields)] = fields
    return bytes(content)


# A picture in a picture's header, as cameras write them: the end of the small one is none.
THUMBNAIL = b"\xff\xd8\xff\xe1" + struct.pack(">H", len(encoded()) + 2) + encoded()

GOOD = {
    "rgb": encoded(),
    "grey": encoded(RGB.convert("L")),
    "cmyk": encoded(RGB.convert("CMYK")),
    "progressive": encoded(progressive=True),
    "without subsampling": encoded(subsampling=0),
    "with something after it": encoded() + b"more" * 100,
    "with a thumbnail": THUMBNAIL + encoded()[2:],
}
BAD = {
    "empty": (b"", "expected a JPEG, found nothing: it is empty"),
    "HTML": (b"\n<!DOCTYPE html><html>404</html>", "found a web page"),
    "PNG": (encoded(kind="PNG"), "found a PNG"),
    "GIF": (encoded(kind="GIF"), "found a GIF"),
    "WebP": (encoded(kind="WEBP"), "found a WebP"),
    "BMP": (encoded(kind="BMP"), "found a BMP"),
    "TIFF": (encoded(kind="TIFF"), "found a TIFF"),
    "gzip": (b"\x1f\x8b\x08\0", "found a gzip file"),
    "git-LFS": (b"version https://git-lfs.github.com/spec/v1\n", "found a git-LFS pointer"),
    "text": (b"hello", "found what begins with 68656c6c"),
    "half": (encoded()[: len(encoded()) // 2], "this JPEG has no end: it is cut off"),
    "all but its end": (encoded()[:-2], "this JPEG has no end"),
    "half with a thumbnail": (THUMBNAIL + encoded()[2:-900], "this JPEG has no end"),
    "its header": (encoded()[:100], "no frame in this JPEG"),
    "nothing in it": (b"\xff\xd8\xff\xd9", "no frame in this JPEG"),
    "bomb": (with_frame(5, struct.pack(">HH", 50_000, 50_000)), "found 50000 x 50000: its header"),
    "no height": (with_frame(5, bytes(2)), "found 80 x 0: its header"),
    "12 bits": (with_frame(4, b"\x0c"), "found 3 of 12 bits, kind C0"),
    "lossless": (with_frame(1, b"\xc3"), "found 3 of 8 bits, kind C3"),
    "2 components": (with_frame(9, b"\x02"), "found 2 of 8 bits"),
}


@pytest.mark.parametrize("how", ["header", "decode"])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_whole_jpeg_is_refused_with_its_name_and_what_it_is(name, how):
    content, message = BAD[name]
    with pytest.raises(PictureError) as error:
        pictures.check(content, how, "cat.JPEG")
    assert str(error.value).startswith("cat.JPEG: ")
    assert message in str(error.value)


@pytest.mark.parametrize("how", pictures.CHECKS)
def test_every_kind_of_jpeg_that_trainers_read_is_taken(how):
    for name, content in GOOD.items():
        pictures.check(content, how, name)
    pictures.check(b"", "none", "cat.JPEG")  # which looks at nothing


def test_pixels_that_do_not_decode_are_found_by_decoding_alone():
    content = bytearray(encoded())
    table = content.index(b"\xff\xc4") + 5  # lengths of Huffman's codes: more than there can be
    content[table : table + 16] = bytes([255]) * 16
    pictures.check(bytes(content), "header", "cat.JPEG")
    with pytest.raises(PictureError, match=r"cat\.JPEG does not decode: .*download it again"):
        pictures.check(bytes(content), "decode", "cat.JPEG")


# Of 50 000 pixels each way by its header, whose checksum is then wrong.
PNG_BOMB = encoded(kind="PNG")[:16] + struct.pack(">II", 50_000, 50_000) + encoded(kind="PNG")[24:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encoded(kind="PNG")[:300], "does not decode"),
        (BAD["bomb"][0], "found 50000 x 50000"),
        (PNG_BOMB, "does not decode as an image: it is a PNG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "does not decode"),
        (b"", "found nothing"),
        (encoded(kind="GIF"), "found a GIF"),
    ],
)
def test_what_cannot_be_encoded_anew_is_one_kind_of_error(content, message):
    with pytest.raises(PictureError, match=message):
        pictures.as_jpeg(content, "cat.JPEG")


def test_a_png_and_a_cmyk_jpeg_are_encoded_anew_and_others_kept():
    for name in ("rgb", "grey", "progressive"):
        assert pictures.as_jpeg(GOOD[name], name) == (GOOD[name], 60, 80)
    for content in (encoded(kind="PNG"), GOOD["cmyk"]):
        made, height, width = pictures.as_jpeg(content, "cat.png")
        image = Image.open(io.BytesIO(made))
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (width, height))
        assert np.abs(np.asarray(image).astype(int) - PIXELS).mean() < 10


def test_sixteen_bits_of_grey_are_scaled_and_not_cut_off():
    made, _, _ = pictures.as_jpeg(encoded(GREY_16, "PNG"), "x-ray.png")
    shown = np.asarray(Image.open(io.BytesIO(made)))[..., 0].astype(int)
    assert np.abs(shown - np.asarray(GREY_16) // 256).max() < 8


@given(st.sampled_from([*GOOD.values()]), st.integers(0, 4000), st.binary(max_size=6))
def test_no_change_of_some_bytes_is_another_error_than_ours(content, location, put):
    location %= len(content)
    changed = content[:location] + put + content[location + len(put) :]
    for how in ("header", "decode"):
        try:
            pictures.check(changed, how, "cat.JPEG")
        except PictureError as error:
            assert str(error).startswith("cat.JPEG")


# A dataset of the user's, of pictures in files.

DATASET = """
TITLE = AUTHOR = DESCRIPTION = LICENCE = CITATION = HOMEPAGE = TERMS = ""
KIND, SYNTHETIC, FILES = "image", False, {}
SPLITS, SHARDS = {"train": 3, "validation": 1}, {"train": 2, "validation": 1}
READER = {"encoding": "jpeg", "classes": 2, "first_label": 0}


class open:
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.JPEG"))

    def count(self, split):
        return SPLITS[split]

    def location(self, split, index):
        return str(self.files[index])

    def features(self, split, index):
        features = {"image/encoded": self.files[index].read_bytes(), "image/class/label": index % 2}
        return features | CHANGES
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A function that writes a dataset of files and converts it."""

    def convert(contents, changes=None):
        source = tmp_path / "source"
        source.mkdir()
        for number, content in enumerate(contents):
            (source / f"{number}.JPEG").write_bytes(content)
        (tmp_path / "datasets").mkdir()
        (tmp_path / "datasets/mine.py").write_text(f"CHANGES = {changes or {}}\n{DATASET}")
        plugins.add_user_folder("datasets", tmp_path / "datasets")
        convert_dataset.convert("mine", source, tmp_path / "out", workers=2)

    yield convert
    plugins.add_user_folder("datasets")


def test_a_bad_picture_ends_the_conversion_with_the_name_of_its_file(mine, tmp_path):
    with pytest.raises(PictureError, match=r"source/1\.JPEG: expected a JPEG, found a GIF"):
        mine([encoded(), encoded(kind="GIF"), encoded()])
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image/class/label": 2}, r"source/\d\.JPEG: expected a label from 0 to 1, found 2"),
        ({"image/class/label": -1}, r"expected a label from 0 to 1, found -1"),
        ({"image/filename": "cat"}, r"cat \(.*source/1\.JPEG\): expected a JPEG, found nothing"),
    ],
)
def test_a_record_that_no_trainer_could_read_is_named(mine, changes, message):
    content = b"" if "image/filename" in changes else encoded()
    with pytest.raises((DataError, PictureError), match=message):
        mine([encoded(), content, encoded()], changes=changes)


def test_items_of_another_size_than_the_dataset_says_are_named(source, tmp_path, monkeypatch):
    digits = plugins.load("datasets", "digits")
    monkeypatch.setitem(digits.READER, "shape", [32, 32, 3])
    with pytest.raises(DataError, match="expected 3072 bytes of image/encoded, found 1024"):
        convert_dataset.convert("digits", source, tmp_path / "out", workers=1)
