"""Report the images that could not be made or prepared."""

from collections.abc import Iterable
from pathlib import Path

from dlbench import Error
from dlbench.images import trainer_image


def check(forms: Iterable[Path]) -> None:
    """Check that all forms of images could be made.

    Args:
        forms: paths of the descriptions that dlbench prepare-image wrote.

    Raises:
        Error: some could not be made; the message has one line for each reason.
    """
    failures = dict.fromkeys(filter(None, map(trainer_image.failure, forms)))
    if failures:
        raise Error("\n".join(failures))
