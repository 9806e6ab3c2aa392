"""numpy: arrays of images with their labels, mapped into memory."""

import numpy as np
import pytest

from dlbench.data import picture_index
from dlbench.data.forms import numpy
from dlbench.data.picture_index import IndexingError

IMAGES = np.random.default_rng(1).integers(0, 256, (12, 4, 6, 3), np.uint8)
LABELS = np.arange(12) % 3
SPLIT = {"x_train": IMAGES[:6], "y_train": LABELS[:6], "x_test": IMAGES[6:], "y_test": LABELS[6:]}


def source(path, place, **given):
    index = numpy.index({"numpy": str(path)} | given, place)
    return numpy.source(index, picture_index.split(index, 0.34, 1))


def stored(path, place, **given):
    """{split: arrays as they are stored}."""
    made, found = source(path, place, **given), {}
    for part in ("train", "validation"):
        items = (made.features(part, n)["image/encoded"] for n in range(made.count(part)))
        found[part] = np.frombuffer(b"".join(items), np.uint8).reshape(-1, *made.shape)
    return found


def refused(path, place=None, **given):
    with pytest.raises(IndexingError) as error:
        numpy.index({"numpy": str(path)} | given, place)
    return str(error.value)


def saved(path, save=np.savez, **arrays):
    save(path, **arrays)
    return path


@pytest.fixture
def place(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_as_keras_has_them_is_stored_as_it_is(tmp_path, place, save):
    path = saved(tmp_path / "a.npz", save, **SPLIT)
    index = numpy.index({"numpy": str(path)}, place)
    assert all(isinstance(images, np.memmap) for images in index.images.values())
    assert len(list(place.iterdir())) == (0 if save is np.savez else 4)  # what was unpacked
    index = numpy.index({"numpy": str(path)})  # for the classes alone nothing is
    assert index.classes == ["0", "1", "2"] and index.images["train"].shape == (6, 4, 6, 3)
    found = stored(path, place)
    in_order = [0, 3, 1, 4, 2, 5]  # by class
    assert (found["train"] == IMAGES[:6][in_order]).all()
    assert (found["validation"] == IMAGES[6:][in_order]).all()
    assert source(path, place).features("validation", 2)["image/class/label"] == 1


def test_a_folder_of_npy_files_and_a_pair_of_them_are_read(tmp_path, place):
    for name, array in SPLIT.items():
        np.save(tmp_path / f"{name}.npy", array)
    assert (stored(tmp_path, place)["validation"] == IMAGES[6:][[0, 3, 1, 4, 2, 5]]).all()
    given = {"labels": str(tmp_path / "y_train.npy")}
    found = stored(tmp_path / "x_train.npy", place, **given)
    assert [len(found[part]) for part in ("train", "validation")] == [3, 3]


def test_without_a_test_split_a_share_of_each_class_is_held_out(tmp_path, place):
    arrays = {name: SPLIT[name] for name in ("x_train", "y_train")}
    made = source(saved(tmp_path / "a.npz", **arrays), place)
    assert (made.count("train"), made.count("validation")) == (3, 3)
    labels = [made.features("validation", n)["image/class/label"] for n in range(3)]
    assert labels == [0, 1, 2]


@pytest.mark.parametrize(
    ("images", "kept"),
    [
        (IMAGES[..., 0], IMAGES[..., :1]),
        (IMAGES.transpose(0, 3, 1, 2), IMAGES),  # as PyTorch has them
        (np.asfortranarray(IMAGES), IMAGES),
        (IMAGES / np.float32(255), IMAGES),
        (IMAGES.astype(np.float64), IMAGES),
        (IMAGES > 99, 255 * (IMAGES > 99)),
    ],
    ids=["grey", "channels first", "Fortran", "0 to 1", "floats", "bool"],
)
def test_layouts_and_dtypes_become_bytes_with_channels_last(tmp_path, place, images, kept):
    labels = np.repeat([0, 1, 2], 4)
    both = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    path = saved(tmp_path / "a.npz", **both)
    assert (stored(path, place)["train"] == kept).all()


def test_other_ranges_of_values_must_be_given(tmp_path, place):
    images = IMAGES.astype(np.float32) - 100
    path = saved(tmp_path / "a.npz", x_train=images, y_train=LABELS)
    message = refused(path, place)
    assert f"expected values from 0 to 255, found {images.min():g} to {images.max():g}" in message
    assert "value_range" in message
    every = np.concatenate([*stored(path, place, value_range=[-100, 155]).values()])
    assert sorted(every.ravel()) == sorted(IMAGES.ravel())
    assert "expected values from -100 to 99" in refused(path, place, value_range=[-100, 99])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (LABELS[:, None], ["0", "1", "2"]),
        (LABELS.astype(np.float32), ["0", "1", "2"]),
        (np.array(["dog", "cat", "10"])[LABELS], ["10", "cat", "dog"]),
        (np.array([10, 9, 7])[LABELS], ["7", "9", "10"]),
        (np.array([b"10", b"9", b"7"])[LABELS], ["7", "9", "10"]),
    ],
)
def test_labels_are_whole_numbers_or_names(tmp_path, labels, classes):
    path = saved(tmp_path / "a.npz", x_train=IMAGES, y_train=labels)
    assert numpy.index({"numpy": str(path)}).classes == classes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:9], "x_train has 12 items, but {path}: y_train has 9 labels"),
        (np.where(LABELS == 1, np.nan, 0), "found nan as label 1 (counted from 0), and 4 such"),
        (LABELS / 2, "found 0.5 as label 1"),
        (LABELS - 1, "whole numbers from 0 on or names, found -1"),
        (np.eye(3)[LABELS], "found (12, 3): if they are one-hot, y.argmax(axis=1) is the class"),
        (np.array([None, 1, 2] * 4), "pickle"),
        (LABELS.astype(complex), "found the dtype complex128"),
    ],
)
def test_labels_that_are_no_classes_are_refused(tmp_path, labels, message):
    path = saved(tmp_path / "a.npz", x_train=IMAGES, y_train=labels)
    assert message.format(path=path) in refused(path)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (IMAGES.reshape(12, 72), "found (12, 72)"),
        (np.zeros((12, 5, 6, 7)), "found (12, 5, 6, 7)"),
        (IMAGES[:0], "expected items, found none"),
        (IMAGES.astype("S3"), "expected numbers, found the dtype |S3"),
        (np.where(IMAGES[5, 0, 0, 0] == IMAGES, np.nan, 0.5), "found NaN or infinity in item"),
    ],
)
def test_arrays_that_are_no_images_are_refused(tmp_path, place, images, message):
    path = saved(tmp_path / "a.npz", x_train=images, y_train=LABELS[: len(images)])
    assert message in refused(path, place)


def test_pickles_are_refused_and_not_opened(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    np.save(tmp_path / "y.npy", LABELS)
    labels = {"labels": str(tmp_path / "y.npy")}
    np.save(tmp_path / "x.npy", np.array([Harmful(), 1], object), allow_pickle=True)
    assert "which NumPy stores as a pickle" in refused(tmp_path / "x.npy", **labels)
    (tmp_path / "x.npy").write_bytes(b"\x80\x04K\x01.")
    assert "pickles are not read" in refused(tmp_path / "x.npy", **labels)
    assert not (tmp_path / "ran").exists()


def test_files_that_are_missing_or_cut_short_are_refused(tmp_path):
    assert "found none" in refused(tmp_path / "none.npz")
    assert "found no x_train; there are: no arrays" in refused(tmp_path)
    path = saved(tmp_path / "a.npz", x_train=IMAGES, x_test=IMAGES, y_train=LABELS)
    assert "expected labels beside x_test, found no y_test" in refused(path)
    path.write_bytes(path.read_bytes()[:-30])
    assert "expected a complete .npz file" in refused(path)
    np.save(tmp_path / "x.npy", IMAGES)
    assert "with `labels`, that of their labels" in refused(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:500])
    message = refused(tmp_path / "x.npy", labels=str(tmp_path / "x.npy"))
    assert "expected 864 bytes of values, found 372: the file is cut off" in message


def test_items_of_both_splits_have_one_shape(tmp_path):
    path = saved(tmp_path / "a.npz", **SPLIT | {"x_test": IMAGES[6:, :3]})
    assert "found (3, 6, 3) of uint8 and (4, 6, 3) of uint8" in refused(path)
