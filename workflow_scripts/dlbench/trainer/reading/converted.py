"""The items of a run: a converted dataset, as its manifest describes it, or synthetic items.

Each framework reads and augments them in its users' way, with its own random numbers:
tensorflow/pipelines.py, and reader.py for JAX and PyTorch.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.run_fields import DECLARED
from dlbench.trainer.reading import manifest, text
from dlbench.trainer.strategy import Spec
from dlbench.trainer.tasks import Task

CACHED_BYTES = 1 << 30
SHUFFLED_RECORDS = 10_000  # the window, for a split that is not kept in memory
# Szegedy et al. (2015), as tensorflow/models and tf_cnn_benchmarks crop photographs.
CROP_AREA, CROP_RATIO, CENTRAL_SHARE = (0.08, 1.0), (3 / 4, 4 / 3), 0.875
CROP_ATTEMPTS = 10
SHIFT_PIXELS = 4  # of small images: He et al. (2016), section 4.2

Batch = tuple[Any, np.ndarray]  # (inputs, targets)


class ConvertedDataset:
    """A converted dataset, opened by its manifest.

    Args:
        folder: where manifest.json lies; the shards may lie elsewhere, as it says.
        image_shape: (height, width, channels) to which encoded images are brought.
        augment: whether training items are augmented in the way that the dataset names.
        cache: whether the training items are kept in memory: `memory` does, `none` does not,
            `auto` does if they have at most CACHED_BYTES. A text is always kept.
        tokens: of an item, if the dataset is a text.
        workers: threads or processes that prepare items; None: as the reader chooses.
        prefetch: batches that are prepared ahead; None: as the reader chooses.

    Attributes:
        item_shape: shape of one input, an image or a window of tokens.
        classes: labels are 0 .. classes - 1; None where targets are masks.
        reader: how a record is read, as the manifest has it.
        streamed: whether the dataset is one sequence of tokens, cut into items when it is read.
        mask: the token that replaces masked tokens; None where none are masked.
    """

    def __init__(
        self,
        folder: str | Path,
        image_shape: tuple[int, ...] | None = None,
        augment: bool = True,
        cache: str = "auto",
        tokens: int | None = None,
        workers: int | None = None,
        prefetch: int | None = None,
    ):
        self.manifest: dict[str, Any] = manifest.read(folder)
        self.name = self.manifest["dataset"]
        self._path = Path(folder) / manifest.NAME
        self._place = Path(self.manifest.get("folder", folder))
        self.reader: dict[str, Any] = self.manifest["reader"]
        self.encoded = self.reader["encoding"] == "jpeg"
        self.augmentation: str | None = self.reader.get("augmentation") if augment else None
        self.streamed = self.reader["encoding"] == "stream"
        shape = self.reader.get("shape", (tokens,))
        if self.encoded:  # pictures have three channels, whatever those of the model
            shape = image_shape and (*image_shape[:2], 3)
        self.item_shape: tuple[int, ...] = tuple(shape or ())
        self.classes: int | None = self.reader.get("classes")
        small = self._bytes("train") <= CACHED_BYTES
        self.in_memory = self.streamed or cache == "memory" or (cache == "auto" and small)
        self.workers, self.prefetch = workers, prefetch
        self.mask: int | None = None
        self._rows: dict[str, np.ndarray] = {}

    def records(self, split: str) -> int:
        """How many items a split has. Raises Error: it is a text that is shorter than one item."""
        if self.streamed:
            tokens, length = len(self.row(split)), self.item_shape[0]
            if not (windows := text.count(tokens, length)):
                raise Error(
                    f"{self.name}: the {split} text has {tokens} tokens, fewer than the "
                    f"{length + 1} of one window: a shorter sequence_length, or more text"
                )
            return windows
        return self.manifest["splits"][split]["records"]

    def row(self, split: str) -> np.ndarray:
        """All tokens of a split, if the dataset is one sequence of them."""
        if split not in self._rows:
            paths = [path for path, _ in self.shards(split)]
            self._rows[split] = text.load(self.name, paths, self.reader["dtype"])
        return self._rows[split]

    def shards(self, split: str) -> list[tuple[Path, int]]:
        """(path, records) of each shard of a split. Raises Error: a file is missing."""
        shards = self.manifest["splits"][split]["shards"]
        paths = [self._place / shard["file"] for shard in shards]
        missing = [str(path) for path in paths if not path.is_file()]
        if missing:
            raise Error(
                f"missing shards: {', '.join(missing[:5])}; the rule convert_dataset makes them: "
                f"delete {self._path} and run the workflow again"
            )
        return [(path, shard["records"]) for path, shard in zip(paths, shards, strict=True)]

    def content_sha256(self) -> str:
        """Digest of the manifest's entries for all shards, which include the shards' digests."""
        listed = json.dumps(self.manifest["splits"], sort_keys=True)
        return hashlib.sha256(listed.encode()).hexdigest()

    def held_out_windows(self, batch: int) -> Iterator[Batch]:
        """All held-out items of a text once, in their order; those of a seed are masked."""
        row, count = self.row("validation"), self.records("validation")
        random = np.random.default_rng(text.HELD_OUT_SEED)
        for first in range(0, count, batch):
            numbers = np.arange(first, min(first + batch, count))
            tokens, following = text.windows(row, numbers, self.item_shape[0])
            if self.mask is None:
                yield tokens, following
            else:
                yield text.masked(tokens, random, self.mask)

    def keys(self) -> tuple[str, str]:
        """Names of the features of an encoded image and of its label."""
        return manifest.KEYS[self.reader.get("layout", "tensorflow/models")]

    def _bytes(self, split):
        return sum(shard["bytes"] for shard in self.manifest["splits"][split]["shards"])


Reader = TypeVar("Reader", bound=ConvertedDataset)


class InputSettings(NamedTuple):
    """All that decides which items a process gets, apart from the dataset."""

    spec: Spec
    strategy: Any  # of this process
    model_module: ModuleType
    task: Task
    scale: Callable[[Any], Any]  # makes the model's inputs from those of a batch
    seed: int  # fixes synthetic items, and the order and augmentation of others


def open_dataset(
    reader: type[Reader], settings: InputSettings, folder: str | None
) -> Reader | None:
    """The dataset of a run; None if its items are synthetic.

    Raises Error: there is no data, or it is of another kind than the model learns.
    """
    spec, model_module, task = settings.spec, settings.model_module, settings.task
    # Names without a file are those of the user's pictures.
    is_known = plugins.is_known("datasets", spec.dataset)
    if is_known and plugins.constants("datasets", spec.dataset)["SYNTHETIC"]:
        return None
    if folder is None:
        plugins.path("datasets", spec.dataset)
        raise Error(f"dataset {spec.dataset} is not synthetic: --data must name its folder")
    tokens = spec.sequence_length or model_module.INPUT_SHAPE[0]
    ahead = spec.input_workers, spec.prefetch
    data = reader(folder, model_module.INPUT_SHAPE, spec.augment, spec.cache, tokens, *ahead)
    if not is_known and data.manifest["dataset"] != spec.dataset:
        raise Error(f"{folder}: expected dataset {spec.dataset}, found {data.manifest['dataset']}")
    kind = data.manifest["kind"]
    if kind != task.KIND:
        raise Error(
            f"model {spec.model} learns {model_module.TASK} and needs data of the kind "
            f"{task.KIND}; {spec.dataset} is of the kind {kind}"
        )
    data.mask = model_module.CLASSES - 1 if task.MASKED else None
    return data


class Source:
    """The items of a run, as far as the model and its step need to know them.

    Attributes:
        data: the dataset; None if the items are synthetic.
        like: the dataset whose shape and classes the items have, synthetic ones of a probe, too;
            None: they have those of the model's own.
        item_shape: of one input.
        classes: how many there are.
        records: of the training split; None if the items have no end.
        content_sha256: digest of the converted dataset; None if the items are synthetic.
        scaled: makes the model's inputs from those of a batch; it returns items of the model's own
            shape, which are scaled beforehand, as they are.

    Raises Error: there is no data, or it is of another kind than the model learns.
    """

    def __init__(
        self, reader: type[ConvertedDataset], settings: InputSettings, data_folder: str | None
    ):
        model, tokens = settings.model_module, settings.spec.sequence_length
        default_shape = (tokens,) if tokens else model.INPUT_SHAPE
        self.like: Any = open_dataset(reader, settings, data_folder)
        made_up = settings.spec.probe in DECLARED["probe"].choices[1:]
        self.data: Any = None if made_up else self.like
        self.item_shape: tuple[int, ...] = self.like.item_shape if self.like else default_shape
        fixed = getattr(model, "FIXED_CLASSES", False)
        self.classes: int = (self.like and not fixed and self.like.classes) or model.CLASSES
        self.records: int | None = self.data.records("train") if self.data else None
        self.content_sha256: str | None = self.data.content_sha256() if self.data else None
        self.scaled: Callable[[Any], Any] = settings.scale if self.like else lambda inputs: inputs
        self.seed, self._task = settings.seed, settings.task
        self._strategy: Any = settings.strategy

    def synthetic(self, count: int) -> Batch:
        """Random items that differ between batches of processes, the same in every step."""
        batch_number = self._strategy.rank // self._strategy.ranks_per_batch
        random = np.random.default_rng(self.seed + batch_number)
        return self._task.synthetic(random, count, self.item_shape, self.classes)
