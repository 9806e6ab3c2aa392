"""An image on this machine, as image.json describes it, and the marker file that it carries."""

from dataclasses import dataclass
from pathlib import Path

from dlbench.trainer.containment import IMAGE_MARKER

IMAGES = Path("results/images")
MARKER = str(IMAGE_MARKER.relative_to("/"))


@dataclass(frozen=True)
class Image:
    """An image on this machine.

    Attributes:
        kind: oci (a layout), sif or folder.
        image_id: in the marker.
        marked: whether the image carries the marker already; otherwise its forms get it.
        environment: variables that the image sets (make_image.VARIABLES).
    """

    name: str
    kind: str
    path: Path
    digest: str
    image_id: str
    marked: bool
    environment: dict[str, str]

    @property
    def marker(self) -> Path:
        """The folder that holds the marker file at its path in the image; absolute."""
        # tar takes a relative --directory as relative to the one before it.
        return (IMAGES / self.name / "marker").absolute()
