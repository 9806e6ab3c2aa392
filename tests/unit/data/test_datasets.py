"""datasets: conversion of synthetic archives with exactly the published layouts."""

import gzip
import io
import json
import random
import struct
import tarfile
import tracemalloc

import numpy as np
import pytest
import scipy.io
from PIL import Image

from dlbench import Error
from dlbench.common import plugins, tfrecord
from dlbench.data import archives, convert_dataset, sources
from dlbench.data.archives import ArchiveError
from dlbench.data.convert_dataset import DataError
from dlbench.data.datasets import cifar10, imagenet, mnist, ptb, ramp_astro
from dlbench.data.picture_index import ClassFolders
from dlbench.data.pictures import PictureError
from dlbench.trainer.reading import text as reading_text


@pytest.mark.parametrize("name", plugins.names("datasets"))
def test_every_dataset_says_what_it_is_and_which_digests_its_files_have(name):
    dataset = plugins.load("datasets", name)
    for key in ("TITLE", "AUTHOR", "DESCRIPTION", "LICENCE"):
        assert getattr(dataset, key), key
    assert dataset.KIND in ("image", "mask", "text")
    if not dataset.SYNTHETIC:
        assert set(dataset.SPLITS) == set(dataset.SHARDS) == {"train", "validation"}
        for file, known in dataset.FILES.items():
            assert set(known) == {"bytes", "sha256", "md5", "urls"}, file
            assert len(known["sha256"] or "0" * 64) == 64
            assert len(known["md5"] or "0" * 32) == 32


def tar(files, mode="w", **extra):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode, format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 0
            for key, value in extra.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def records_of(folder):
    """The parsed records of a converted folder, by split."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return {
        split: [record for shard in part["shards"] for record in parsed(folder / shard["file"])]
        for split, part in manifest["splits"].items()
    }


def parsed(shard):
    with open(shard, "rb") as file:
        return [tfrecord.parse_example(payload) for _, payload in tfrecord.payloads(file, shard)]


@pytest.fixture(params=["cifar10", "cifar100"])
def cifar(request, tmp_path, monkeypatch):
    dataset = plugins.load("datasets", request.param)
    labels = 1 if dataset is cifar10 else 2
    monkeypatch.setattr("dlbench.data.datasets.cifar10.SPLITS", {"train": 50, "validation": 10})
    monkeypatch.setattr(dataset, "SPLITS", {"train": 50, "validation": 10})
    random.seed(1)
    files = {}
    for split, names in dataset.MEMBERS.items():
        for name in names:
            files[name] = b"".join(
                bytes([random.randrange(10) for _ in range(labels)]) + random.randbytes(3072)
                for _ in range(dataset.SPLITS[split] // len(names))
            )
    files["readme.html"] = b"<html>"
    (archive,) = dataset.FILES
    (tmp_path / archive).write_bytes(tar(files, "w:gz"))
    return dataset, tmp_path / archive, files, labels


def test_cifar_is_read_from_its_archive(cifar, tmp_path):
    dataset, archive, files, labels = cifar
    opened = dataset.open(archive.parent)
    first = files[dataset.MEMBERS["train"][0]]
    features = opened.features("train", 0)
    assert features["image/class/label"] == first[labels - 1]
    planes = np.frombuffer(first[labels : labels + 3072], np.uint8).reshape(3, 32, 32)
    pixels = np.frombuffer(features["image/encoded"], np.uint8).reshape(32, 32, 3)
    assert (pixels == planes.transpose(1, 2, 0)).all()
    convert_dataset.convert(dataset.__name__.rpartition(".")[2], tmp_path, tmp_path / "out")
    found = records_of(tmp_path / "out")
    assert {split: len(records) for split, records in found.items()} == dataset.SPLITS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files, name: files.pop(name), "members missing"),
        (lambda files, name: files.update({name: files[name] + b"x"}), "bytes, found"),
        (lambda files, name: files.update({"../evil": b""}), "leads out of the archive's folder"),
        (lambda files, name: files.update({"/evil": b""}), "leads out of the archive's folder"),
    ],
)
def test_an_archive_that_is_not_the_published_one_is_refused(cifar, change, message):
    dataset, archive, files, _ = cifar
    change(files, dataset.MEMBERS["validation"][0])
    archive.write_bytes(tar(dict(reversed(files.items())), "w:gz"))
    with pytest.raises(ArchiveError, match=message):
        dataset.open(archive.parent)


def test_an_archive_that_is_cut_off_or_has_links_is_refused(cifar):
    dataset, archive, files, _ = cifar
    archive.write_bytes(archive.read_bytes()[:-1000])
    with pytest.raises(ArchiveError, match=r"binary\.tar\.gz: not a complete tar\.gz"):
        dataset.open(archive.parent)
    link = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
    archive.write_bytes(tar(dict.fromkeys(files, b""), "w:gz", **link))
    with pytest.raises(ArchiveError, match="is no plain file"):
        dataset.open(archive.parent)


def test_a_decompression_bomb_ends_at_the_size_the_file_must_have(tmp_path):
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb") as file:
        for _ in range(200):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(ArchiveError, match="expected 100 bytes, found more than 100"):
        archives.gunzipped(bomb, 100)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10 << 20


def test_mnist_is_read_from_its_idx_files(tmp_path, monkeypatch):
    splits = {"train": 30, "validation": 7}
    monkeypatch.setattr(mnist, "SPLITS", splits)
    monkeypatch.setattr(mnist, "FILES", {name: {"sha256": None} for name in mnist.FILES})
    for split, prefix in mnist.PREFIX.items():
        count = splits[split]
        images = random.Random(2).randbytes(count * 784)
        for kind, content in (
            ("images-idx3", struct.pack(">4I", 0x803, count, 28, 28) + images),
            ("labels-idx1", struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count))),
        ):
            (tmp_path / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    convert_dataset.convert("mnist", tmp_path, tmp_path / "out")
    found = records_of(tmp_path / "out")
    assert sorted(r["image/class/label"][0] for r in found["train"]) == sorted([*range(10)] * 3)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"x" * 15))
    with pytest.raises(ArchiveError, match="expected to begin with 0000080100000007"):
        mnist.open(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"<html>")
    with pytest.raises(ArchiveError, match="not a complete gzip file"):
        mnist.open(tmp_path)


def test_words_become_numbers_by_frequency_in_one_row(tmp_path, monkeypatch):
    monkeypatch.setattr(ptb, "TOKENS", {"train": 200, "validation": 9})
    monkeypatch.setattr(ptb, "VOCABULARY", 5)
    monkeypatch.setattr(sources, "PIECE_TOKENS", 64)
    (tmp_path / "ptb.train.txt").write_text(" a b a <unk> \n" * 20 + " a b a N \n" * 20)
    (tmp_path / "ptb.valid.txt").write_text(" b a \n" * 3)
    opened = ptb.open(tmp_path)
    assert (opened.count("train"), opened.count("validation")) == (4, 1)
    pieces = [opened.features("train", number)["tokens"] for number in range(4)]
    assert [len(piece) for piece in pieces] == [128, 128, 128, 16]  # two bytes a token
    row = np.frombuffer(b"".join(pieces), ptb.READER["dtype"]).tolist()
    # a: 80; <eos> and b: 40 each, in the order of the alphabet; <unk> and N: 20 each.
    assert row == [0, 2, 0, 3, 1] * 20 + [0, 2, 0, 4, 1] * 20
    (tmp_path / "ptb.train.txt").write_text("one line\n")
    with pytest.raises(Error, match="expected 200 words, ends of lines included, found 3"):
        ptb.open(tmp_path)


def test_the_pieces_of_penn_treebank_are_those_of_its_words():
    assert {split: sources.pieces(count) for split, count in ptb.TOKENS.items()} == ptb.SPLITS
    # The items of 20 words that Zaremba et al. train with.
    counts = {split: reading_text.count(count, 20) for split, count in ptb.TOKENS.items()}
    assert counts == {"train": 46_479, "validation": 3_687}


def test_masks_are_read_from_numpy_files_without_pickles(tmp_path, monkeypatch):
    monkeypatch.setattr(ramp_astro, "SPLITS", {"train": 3, "validation": 2})
    data = np.random.default_rng(1).normal(size=(5, 128, 128)).astype(np.float64)
    np.save(tmp_path / "data_train.npy", data)
    np.save(tmp_path / "labels_train.npy", data > 1)
    opened = ramp_astro.open(tmp_path)
    features = opened.features("validation", 0)
    image = np.frombuffer(features["image/encoded"], np.float32)
    assert (image == data[3].astype(np.float32).ravel()).all()
    assert (np.frombuffer(features["image/mask"], np.uint8) == (data[3] > 1).ravel()).all()
    np.save(tmp_path / "labels_train.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects in dtype"):
        ramp_astro.open(tmp_path)


def jpeg(seed, mode="RGB", size=(40, 30), kind="JPEG"):
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).resize(size).convert(mode).save(content, kind)
    return content.getvalue()


SYNSETS = ["n01440764", "n01443537", "n02105855"]


@pytest.fixture
def imagenet_files(tmp_path, monkeypatch):
    """Three classes of four images, one of them a PNG and one in CMYK; six held-out images."""
    monkeypatch.setattr(imagenet, "SPLITS", {"train": 12, "validation": 6})
    monkeypatch.setattr(imagenet, "SHARDS", {"train": 4, "validation": 2})
    monkeypatch.setattr(imagenet, "FILES", {name: {"sha256": None} for name in imagenet.FILES})
    images = {
        synset: {f"{synset}_{n}.JPEG": jpeg(n, size=(40 + n, 30)) for n in range(4)}
        for synset in SYNSETS
    }
    images["n02105855"]["n02105855_2933.JPEG"] = images["n02105855"].pop("n02105855_3.JPEG")
    images["n02105855"]["n02105855_2933.JPEG"] = jpeg(9, kind="PNG")
    images["n01440764"]["n01440764_1.JPEG"] = jpeg(8, mode="CMYK")
    train = {f"{synset}.tar": tar(files) for synset, files in images.items()}
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(tar(train))
    held_out = {f"ILSVRC2012_val_{n:08d}.JPEG": jpeg(100 + n) for n in range(1, 7)}
    (tmp_path / "ILSVRC2012_img_val.tar").write_bytes(tar(held_out))
    # The kit's own order is not the alphabet's; a group of classes has children.
    order = [SYNSETS[2], SYNSETS[0], SYNSETS[1], "n00001740"]
    columns = ("ILSVRC2012_ID", "WNID", "words", "num_children")
    rows = np.zeros(4, dtype=[(column, object) for column in columns])
    for number, synset in enumerate(order):
        rows[number] = (number + 1, synset, f"words of {synset}", 2 * (number == 3))
    meta = io.BytesIO()
    scipy.io.savemat(meta, {"synsets": rows})
    kit = {
        imagenet.KIT + "meta.mat": meta.getvalue(),
        imagenet.KIT + "ILSVRC2012_validation_ground_truth.txt": b"1\n2\n3\n3\n2\n1\n",
    }
    (tmp_path / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(tar(kit, "w:gz"))
    return tmp_path, images, held_out


def test_imagenet_is_converted_straight_from_its_tars(imagenet_files):
    folder, images, held_out = imagenet_files
    convert_dataset.convert("imagenet", folder, folder / "out", check="decode")
    found = records_of(folder / "out")
    assert len(list((folder / "out").glob("train-0000?-of-00004"))) == 4
    every = {name: content for files in images.values() for name, content in files.items()}
    assert {r["image/filename"][0].decode() for r in found["train"]} == set(every)
    for record in found["train"]:
        name = record["image/filename"][0].decode()
        synset = name.partition("_")[0]
        assert record["image/class/label"] == [SYNSETS.index(synset) + 1]
        assert record["image/class/text"] == [f"words of {synset}".encode()]
        image = Image.open(io.BytesIO(record["image/encoded"][0]))
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert image.size == (record["image/width"][0], record["image/height"][0])
        changed = name in ("n02105855_2933.JPEG", "n01440764_1.JPEG")
        assert (record["image/encoded"][0] == every[name]) != changed
    for record in found["validation"]:
        number = int(record["image/filename"][0][-13:-5])
        assert record["image/encoded"][0] == held_out[f"ILSVRC2012_val_{number:08d}.JPEG"]
        kits_class = [1, 2, 3, 3, 2, 1][number - 1]
        assert record["image/class/label"] == [{1: 3, 2: 1, 3: 2}[kits_class]]


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda c: c[: len(c) // 2], "the file is cut off"),
        (lambda c: c[: c.index(b"n01443537.tar")], "the end of the archive is missing"),
        (lambda c: c[:600] + b"x" + c[601:], "no tar header at byte 512|lies in"),
        (lambda c: b"<html>" + bytes(1000), "no tar header at byte 0 .* delete it and .*json, th"),
    ],
)
def test_a_damaged_tar_is_named_with_its_place(imagenet_files, cut, message):
    folder, _, _ = imagenet_files
    path = folder / "ILSVRC2012_img_train.tar"
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(ArchiveError, match=message):
        imagenet.open(folder)


def test_archives_without_images_are_refused(imagenet_files):
    folder, images, _ = imagenet_files
    train = {f"{synset}.tar": tar({}) for synset in images}
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar(train))
    with pytest.raises(DataError, match="expected 12 train records, found 0"):
        convert_dataset.convert("imagenet", folder, folder / "out")
    (folder / "ILSVRC2012_img_val.tar").write_bytes(tar({}))
    with pytest.raises(ArchiveError, match="expected 6 images, as the development kit has labels"):
        imagenet.open(folder)


def test_classes_that_are_missing_are_counted(imagenet_files):
    folder, images, _ = imagenet_files
    path = folder / "ILSVRC2012_img_train.tar"
    path.write_bytes(tar({"n01440764.tar": tar(images["n01440764"])}))
    with pytest.raises(ArchiveError, match="2 of 3 classes are missing, n01443537 the first"):
        imagenet.open(folder)
    path.write_bytes((folder / "ILSVRC2012_img_val.tar").read_bytes())
    with pytest.raises(ArchiveError, match="is none of the 3 classes' archives"):
        imagenet.open(folder)


def test_an_image_that_is_none_is_named(imagenet_files):
    folder, images, _ = imagenet_files
    images["n01443537"]["n01443537_2.JPEG"] = b"GIF89a" + bytes(100)
    train = {f"{synset}.tar": tar(files) for synset, files in images.items()}
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar(train))
    with pytest.raises(PictureError, match=r"train\.tar: n01443537_2\.JPEG: .* found a GIF"):
        convert_dataset.convert("imagenet", folder, folder / "out")
    assert not (folder / "out" / "manifest.json").exists()


# A tar with a folder for each class


def packed(path, names, format=tarfile.USTAR_FORMAT):
    with tarfile.open(path, "w", format=format) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


@pytest.mark.parametrize("beginning", ["", "all/ours/"])
def test_each_picture_has_the_label_of_its_folder_and_every_fifth_is_held_out(tmp_path, beginning):
    names = [f"{beginning}{name}/{n}.jpg" for name in ("dog", "cat") for n in range(5)]
    source = ClassFolders(packed(tmp_path / "x.tar", names))
    assert (source.count("train"), source.count("validation")) == (8, 2)
    found = [source.features(s, n) for s in ("train", "validation") for n in range(source.count(s))]
    assert sorted(record["image/filename"] for record in found) == sorted(names)
    for record in found:
        assert record["image/encoded"] == record["image/filename"].encode()
        label = ["cat", "dog"].index(record["image/class/text"])
        assert record["image/class/label"] == label
        assert f"/{record['image/class/text']}/" in f"/{record['image/filename']}"


@pytest.mark.parametrize(
    ("names", "stray", "number"),
    [
        (["cat/1.jpg", "dog/1.jpg", "a.jpg"], "a.jpg", 0),
        (["all/cat/1.jpg", "all/dog/1.jpg", "all/x.jpg"], "all/x.jpg", 2),
        (["1.jpg", "2.jpg"], "1.jpg", 0),
    ],
)
def test_a_picture_in_no_folder_of_a_class_is_refused_with_its_number(
    tmp_path, names, stray, number
):
    with pytest.raises(ArchiveError, match=rf"{stray} \(record {number}, .*as in cat/0001\.jpg"):
        ClassFolders(packed(tmp_path / "x.tar", names))


@pytest.mark.parametrize(
    ("format", "kind"), [(tarfile.PAX_FORMAT, "PAX"), (tarfile.GNU_FORMAT, r"GNU \(a long name\)")]
)
def test_another_format_of_tar_is_named_with_its_remedy(tmp_path, format, kind):
    path = packed(tmp_path / "x.tar", [f"cat/{'ä' * 120}.jpg"], format)
    with pytest.raises(ArchiveError, match=rf"headers of the kind {kind} .*tar --format=ustar"):
        ClassFolders(path)


def test_long_names_are_whole(tmp_path):
    names = [f"{'long' * 20}/{'cat' * 15}/{n}{'x' * 60}.jpg" for n in range(3)]
    path = packed(tmp_path / "x.tar", names)
    assert [name for name, _, _ in archives.tar_index(path)] == names
    gnu = packed(tmp_path / "gnu.tar", ["cat/1.jpg"], tarfile.GNU_FORMAT)
    assert [name for name, _, _ in archives.tar_index(gnu)] == ["cat/1.jpg"]
