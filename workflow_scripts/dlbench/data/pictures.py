"""Check that trainers can read encoded images, during the conversion of a dataset.

Trainers read JPEG. A file of another format, a truncated file or no image at all is named here; a
trainer would fail on it hours later and name no file.
"""

import io
import re
from typing import TYPE_CHECKING

from dlbench import Error

if TYPE_CHECKING:
    import PIL.Image

CHECKS = ("none", "header", "decode")
MAX_PIXELS = 178_956_970  # twice Pillow's limit, beyond which it suspects an attack
START, END = b"\xff\xd8", b"\xff\xd9"
EXIF_ORIENTATION = 0x0112
SOS = 0xDA  # start of scan
# Baseline, extended and progressive; TensorFlow decodes no lossless or arithmetic coding.
FRAMES = (0xC0, 0xC1, 0xC2)
KINDS = {
    b"\x89PNG": "a PNG",
    b"GIF8": "a GIF",
    b"RIFF": "a WebP",
    b"BM": "a BMP",
    b"II*\0": "a TIFF",
    b"MM\0*": "a TIFF",
    b"\x1f\x8b": "a gzip file",
    b"version http": "a git-LFS pointer, not the file",
}
PAGE = re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE)


class PictureError(Error):
    """No trainer can read an image; the message says which image and why."""


def check(content: bytes, level: str, where: str) -> None:
    """Check that trainers can read an encoded image.

    Args:
        level: `none`; `header`: the structure is that of a complete JPEG with a size; `decode`:
            the image is decoded, too.
        where: names the image in messages.

    Raises:
        PictureError: they cannot.
    """
    if level == "none":
        return
    jpeg_header(content, where)
    if level == "decode":
        decode(content, where)


def as_jpeg(content: bytes, where: str) -> tuple[bytes, int, int]:
    """(the image as a JPEG in grey or RGB, height, width); a PNG or CMYK JPEG is re-encoded.

    Raises PictureError: the image is neither JPEG nor PNG, or does not decode.
    """
    if content.startswith(b"\x89PNG"):
        content = _encoded_again(content, where)
    height, width, components = jpeg_header(content, where)
    if components == 4:
        content = _encoded_again(content, where)
    return content, height, width


def decode(content: bytes, where: str) -> "PIL.Image.Image":
    """Decode an encoded image to its last byte. Raises PictureError: it does not decode."""
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(content))
        height, width = image.height, image.width
        _check_size(height, width, where)
        image.load()
    except Image.DecompressionBombError as error:
        raise PictureError(f"{where}: {error}") from error
    except Image.UnidentifiedImageError as error:
        message = f"{where} does not decode as an image: it is {_format(content)}"
        raise PictureError(message) from error
    except Exception as error:  # Pillow's decoders raise many kinds of exceptions
        if isinstance(error, Error | MemoryError):
            raise
        message = f"{where} does not decode: {error}; it is damaged: download it again"
        raise PictureError(message) from error
    return image


def orientation(content: bytes, where: str) -> int:
    """The orientation in an image's EXIF data, 1 to 8; 1, which is upright, if it has none.

    Raises PictureError: it is no image.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            found = image.getexif().get(EXIF_ORIENTATION, 1)
    except Exception as error:  # of many kinds, as in `decode`
        raise PictureError(f"{where}: its header does not decode: {error}") from error
    return found if found in range(1, 9) else 1


def upright(content: bytes, where: str) -> "PIL.Image.Image":
    """Decode an image and turn it as its EXIF data say, in RGB.

    Raises PictureError: it does not decode.
    """
    from PIL import ImageOps

    return _rgb(ImageOps.exif_transpose(decode(content, where)))


def jpeg(image: "PIL.Image.Image") -> bytes:
    """An image in RGB as a JPEG of the best quality."""
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=100)
    return encoded.getvalue()


def jpeg_header(content: bytes, where: str) -> tuple[int, int, int]:
    """(height, width, components) from a JPEG's start-of-frame segment.

    Source: ITU-T T.81, B.1 and B.2.2. Raises PictureError: the image is not a whole JPEG of a kind
    that TensorFlow decodes.
    """
    if not content.startswith(START):
        raise PictureError(f"{where}: expected a JPEG, found {_format(content)}")
    frame, position = None, len(START)
    while position + 4 <= len(content) and content[position] == 0xFF:
        marker = content[position + 1]
        if marker == 0xFF:  # fill
            position += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # without a length
            position += 2
        elif marker == SOS and frame:
            # The coded pixels in between cannot contain this marker.
            if content.rfind(END, position) < 0:
                raise PictureError(f"{where}: this JPEG has no end: it is cut off")
            return frame
        else:
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                frame = _frame(marker, content[position + 4 : position + 10], where)
            position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
    missing = "pixels" if frame else "frame"
    raise PictureError(f"{where}: no {missing} in this JPEG: it is cut off or damaged")


def _frame(marker, fields, where):
    """(height, width, components) from the fields after a start-of-frame segment's length."""
    if len(fields) < 6:
        raise PictureError(f"{where}: no frame in this JPEG: it is cut off or damaged")
    bits, components = fields[0], fields[5]
    height, width = int.from_bytes(fields[1:3], "big"), int.from_bytes(fields[3:5], "big")
    if marker not in FRAMES or bits != 8 or components not in (1, 3, 4):
        raise PictureError(
            f"{where}: expected a JPEG of 1, 3 or 4 components of 8 bits, baseline or "
            f"progressive, found {components} of {bits} bits, kind {marker:X}"
        )
    _check_size(height, width, where)
    return height, width, components


def _check_size(height, width, where):
    if not 0 < height * width <= MAX_PIXELS:
        raise PictureError(
            f"{where}: expected 1 to {MAX_PIXELS} pixels, found {width} x {height}: its header "
            "is damaged, or it is made to exhaust memory"
        )


def _format(content):
    """The format of content that is no JPEG, for messages."""
    if not content:
        return "nothing: it is empty"
    if PAGE.match(content):
        return "a web page"
    for start, kind in KINDS.items():
        if content.startswith(start):
            return kind
    return f"what begins with {content[:4].hex()}"


def _encoded_again(content, where):
    return jpeg(_rgb(decode(content, where)))


def _rgb(image):
    if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would cut off at 255
        image = image.point(lambda value: value / 256).convert("L")
    return image.convert("RGB")
