"""Augmentation of photographs and small images in NumPy, as in TensorFlow's pipelines.

- Photographs are decoded by libjpeg-turbo (package simplejpeg), as in TensorFlow.
- A photograph is cropped as by TensorFlow's operation StatelessSampleDistortedBoundingBox; the crop
  follows from seed and position alone.
"""

import sys
from collections.abc import Sequence

import numpy as np

from dlbench import Error
from dlbench.trainer.reading import random_numbers
from dlbench.trainer.reading.converted import (
    CENTRAL_SHARE,
    CROP_AREA,
    CROP_ATTEMPTS,
    CROP_RATIO,
    POSITIONS,
    SHIFT_PIXELS,
    SHUFFLE_ROUNDS,
)

Window = tuple[int, int, int, int]  # top, left, height, width


def shifted(images: np.ndarray, seed: int, positions: np.ndarray) -> np.ndarray:
    """Small images, each moved by up to SHIFT_PIXELS and mirrored at random.

    Args:
        images: (items, height, width, channels).
        positions: of the items in the endless order; shift and mirroring follow from them.
    """
    _, height, width, _ = images.shape
    places = 2 * SHIFT_PIXELS + 1
    drawn = random_numbers.shuffled_places(positions, (seed, 0, 1), POSITIONS - 1, SHUFFLE_ROUNDS)
    top, left = drawn % places, drawn // places % places
    mirrored = drawn // (places * places) % 2 == 1
    pad = (SHIFT_PIXELS, SHIFT_PIXELS)
    padded = np.pad(images, ((0, 0), pad, pad, (0, 0)))
    moved = np.empty_like(images)
    # Image by image: indices for all pixels at once take ten times as long.
    chosen = zip(moved, padded, top.tolist(), left.tolist(), mirrored.tolist(), strict=True)
    for image, source, first, column, mirror in chosen:
        window = source[first : first + height, column : column + width]
        image[:] = window[:, ::-1] if mirror else window
    return moved


def cropped(
    encoded: Sequence[bytes], seed: int, positions: Sequence[int], size: tuple[int, int]
) -> np.ndarray:
    """A random part of each JPEG, mirrored at random: (items, height, width, 3), uint8.

    Args:
        positions: of the items in the endless order; crop and mirroring follow from them.
        size: height and width of the images.

    Raises:
        Error: a content is not a JPEG, or simplejpeg is not installed.
    """
    images = []
    for content, position in zip(encoded, positions, strict=True):
        height, width = _shape(content)
        window = crop_window(height, width, seed, position)
        # With plain upsampling of colours, as in tf_cnn_benchmarks.
        image = _resized(_decoded(content, window, plain=True), size)
        numbers = random_numbers.stream_of_seeds(seed + 1, position + 1)
        mirrored = random_numbers.real(next(numbers)) < 0.5
        images.append(image[:, ::-1] if mirrored else image)
    return np.stack(images)


def centred(encoded: Sequence[bytes], size: tuple[int, int]) -> np.ndarray:
    """The central part of each JPEG in the proportions of `size`: (items, height, width, 3)."""
    images = []
    for content in encoded:
        shape = np.asarray(_shape(content), np.float32)
        scale = np.float32(CENTRAL_SHARE) * np.min(shape / np.asarray(size, np.float32))
        extent = np.round(scale * np.asarray(size, np.float32)).astype(int)
        top, left = (shape.astype(int) - extent) // 2
        images.append(_resized(_decoded(content, (top, left, *extent)), size))
    return np.stack(images)


def crop_window(height: int, width: int, seed: int, position: int) -> Window:
    """The crop of an image of so many pixels at a position; the whole image if none fits.

    The share of its area and the ratio of width to height are those of CROP_AREA and CROP_RATIO.
    """
    numbers = random_numbers.stream_of_seeds(seed, position)
    low, high = map(np.float32, CROP_RATIO)
    for _ in range(CROP_ATTEMPTS):
        ratio = random_numbers.real(next(numbers)) * (high - low) + low
        if window := _window(height, width, ratio, numbers):
            return window
    return 0, 0, height, width


def _window(height, width, ratio, numbers):
    """A random crop with this ratio; None if after rounding none has an allowed area."""
    least, most = (
        np.float32(share) * np.float32(width) * np.float32(height) for share in CROP_AREA
    )

    def width_of(rows):
        return round(float(np.float32(rows) * ratio))

    rows, most_rows = (round(float(np.sqrt(area / ratio))) for area in (least, most))
    if width_of(most_rows) > width:
        most_rows = int((width + 0.5 - float(np.float32(1e-7))) / float(ratio))
        most_rows -= width_of(most_rows) > width
    most_rows = min(most_rows, height)
    rows = min(rows, most_rows)
    if rows < most_rows:
        rows += random_numbers.below(numbers, most_rows - rows + 1)
    columns = width_of(rows)
    if columns * rows < least:
        rows, columns = rows + 1, width_of(rows + 1)
    if columns * rows > most:
        rows, columns = rows - 1, width_of(rows - 1)
    fits = least <= columns * rows <= most and 0 < columns <= width and 0 < rows <= height
    if not fits:
        return None
    top = random_numbers.below(numbers, height - rows) if rows < height else 0
    left = random_numbers.below(numbers, width - columns) if columns < width else 0
    return top, left, rows, columns


def _resized(image, size):
    """Bilinear between the centres of pixels, without smoothing; uint8."""
    for axis, new in enumerate(size):
        old = image.shape[axis]
        places = (np.arange(new, dtype=np.float32) + 0.5) * np.float32(old / new) - 0.5
        below = np.floor(places)
        share = (places - below).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        first = np.take(image, np.maximum(below, 0).astype(int), axis).astype(np.float32)
        second = np.take(image, np.minimum(np.ceil(places), old - 1).astype(int), axis)
        image = first + (second - first) * share
    return (image + 0.5).astype(np.uint8)


def _shape(content):
    """(height, width) of a JPEG."""
    try:
        return _simplejpeg().decode_jpeg_header(content)[:2]
    except ValueError as error:
        raise Error(f"an image of the dataset is no JPEG ({error})") from error


def _decoded(content, window, plain=False):
    top, left, height, width = window
    try:
        # The fast transform is TensorFlow's default.
        image = _simplejpeg().decode_jpeg(content, fastdct=True, fastupsample=plain)
    except ValueError as error:
        raise Error(f"an image of the dataset cannot be decoded ({error})") from error
    return image[top : top + height, left : left + width]


def _simplejpeg():
    try:
        import simplejpeg
    except ModuleNotFoundError as error:
        raise Error(
            "datasets of JPEGs need the package simplejpeg, which is not installed for "
            f"{sys.executable}. The environments envs/pytorch and envs/jax have it "
            "(`dlbench environment` installs them); into a Python of your own: "
            f"{sys.executable} -m pip install simplejpeg"
        ) from error
    return simplejpeg
