"""Fields of a run: how its items are read, and the seed of their order."""

from dataclasses import dataclass

from dlbench.run_fields.declaring import READING, declared


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Reading:
    """How items are read, and what seeds their order."""

    augment: bool = declared(
        True,
        "Whether training items are varied (cropped, shifted, mirrored), where their dataset "
        "has a way to.",
        changes_speed=False,
        is_axis=False,
    )
    cache: str = declared(
        "auto",
        "Keep the training items in memory, or read them anew each epoch; auto keeps up to 1 GiB.",
        choices=("auto", "memory", "none"),
        changes_speed=False,
        is_axis=False,
    )
    input: str = declared(
        "auto",
        "What reads the items (docs/training.md): auto takes tf.data under TensorFlow, "
        "dlbench's own reader under JAX and PyTorch; grain is Google's Grain, for JAX and "
        "PyTorch; torch is PyTorch's DataLoader.",
        choices=("auto", "dlbench", "grain", "tf.data", "torch"),
        label="input {}",
        part=READING,
        changes_speed=False,
    )
    input_workers: int | None = declared(
        None,
        "Processes (grain, torch, dlbench with photographs) or threads (tf.data, dlbench with"
        " arrays) that make items ready. Not given: as many as the reader takes by itself.",
        minimum=1,
        maximum=1_000,
        bits=32,
        label="{} input workers",
        part=READING,
        changes_speed=False,
    )
    prefetch: int | None = declared(
        None,
        "Batches that are made ready ahead: by grain and torch for each worker, by the others"
        " in all. Not given: as many as the reader takes by itself.",
        minimum=0,
        maximum=1_000,
        bits=32,
        label="{} batches ahead",
        part=READING,
        changes_speed=False,
    )
    page_cache: str = declared(
        "as_found",
        "cold drops the dataset's files from the system's memory before the run opens them, "
        "warm reads them once before; as_found does nothing.",
        choices=("as_found", "cold", "warm"),
        label="page cache {}",
        part=READING,
        changes_memory=False,
        changes_speed=False,
    )
    seed: int = declared(
        1,
        "Seed of initial weights and data order in repeat 1; repeat r trains with seed + r - "
        "1, in every condition alike.",
        minimum=0,
        maximum=4_000_000_000,
        changes_memory=False,
        changes_speed=False,
    )
