"""Fields of a run: what is computed, and for how long."""

from dataclasses import dataclass

from dlbench.run_fields.declaring import MODEL, REQUIRED, declared

OF_PROGRAMS = ("float8", "mxfp8", "nvfp4")  # precisions that our trainer has not


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Work:
    """What is computed, and for how long."""

    model: str = declared(
        REQUIRED,
        "Name of a model in workflow_scripts/dlbench/trainer/keras/models/.",
        folder="models",
        label="{}",
    )
    dataset: str = declared(
        REQUIRED,
        "Name of a file in workflow_scripts/dlbench/data/datasets/.",
        folder="datasets",
        label="{}",
        changes_speed=False,
        contrast="real_vs_synthetic",
    )
    batch_per_device: int = declared(
        REQUIRED,
        "Items per device and step; max: as many as fit into memory, found before the first "
        "run (docs/training.md).",
        minimum=1,
        or_max=True,
        unit="items",
        label="batch {}",
        changes_memory=False,
        contrast="batch_size",
    )
    sequence_length: int | None = declared(
        None,
        "Tokens of an item of text, at most the positions of the model. Not given: the length"
        " that the model was designed for.",
        minimum=1,
        unit="tokens",
        note="asked for; item_shape has what it was",
        label="{} tokens",
        is_axis=False,
    )
    framework: str = declared(
        "tensorflow",
        "The framework that trains; other ones than tensorflow, jax and pytorch need a "
        "trainer of their own.",
        label="{}",
    )
    precision: str = declared(
        "float32",
        "What the layers compute in; variables are float32 in each. float16 scales its loss; "
        "tf32 is float32 with the short products of NVIDIA's GPUs, which float32 itself does "
        "without. The shorter ones are of other programs.",
        choices=("float32", "tf32", "bfloat16", "float16", *OF_PROGRAMS),
        label="{}",
        contrast="batch_size",
    )
    xla: bool = declared(
        False,
        "Whether forward and backward pass are compiled by XLA; the exchange of gradients and"
        " the update are outside of it.",
        switch="XLA",
        part=MODEL,
        contrast="scaling",
    )
    compile: bool = declared(
        False,
        "Whether forward and backward pass are compiled by torch.compile; a field of "
        "framework pytorch.",
        frameworks=("pytorch",),
        switch="torch.compile",
        part=MODEL,
        contrast="scaling",
    )
    compile_mode: str = declared(
        "model",
        "How compile true compiles: the model as one program; each of its blocks by itself (blocks "
        "that are alike share one program); or the model, launched as CUDA graphs.",
        choices=("model", "blocks", "cuda_graphs"),
        frameworks=("pytorch",),
        part=MODEL,
        contrast="scaling",
    )
    deterministic: bool = declared(
        False,
        "Use only operations that give the same bits each time; slower.",
    )
    recompute: bool = declared(
        False,
        "Activation checkpointing: whether each block of a transformer computes its activations "
        "again in the backward pass, which saves memory.",
        switch="recomputing",
        part=MODEL,
    )
    vocabulary_multiple: int | None = declared(
        None,
        "Pad the vocabulary of a model of text to a multiple of this, as 64: GPUs multiply "
        "matrices of such sizes faster. The tokens that are added occur in no item.",
        minimum=1,
        maximum=4096,
        label="vocabulary in multiples of {}",
        part=MODEL,
    )
    profile: bool = declared(
        False,
        "Trace a few further steps after the measured ones and keep that as trace.json.gz "
        "beside the log (docs/training.md).",
        part=MODEL,
        changes_speed=False,
        of_condition=False,
        is_axis=False,
    )
    mode: str = declared(
        "train",
        "train updates the weights; forward only evaluates the model; forward_backward also "
        "takes gradients; input reads items, without a model.",
        choices=("train", "forward", "forward_backward", "input"),
        label="{}",
    )
    steps: int | None = declared(
        None,
        "Measured steps, after the warm-up. Give either steps or epochs.",
        minimum=1,
        unit="steps",
        note="asked for, after the warm-up",
        label="{} steps",
        changes_memory=False,
        changes_speed=False,
    )
    warmup_steps: int = declared(
        10,
        "Steps before the measured ones; recorded and marked, not counted.",
        minimum=0,
        unit="steps",
        note="warm-up steps asked for",
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
    warmup_s: float = declared(
        0.0,
        "Seconds from the end of the first step on that the warm-up lasts at least: steps are added"
        " to warmup_steps until they have passed. For GPUs, which take tens of seconds to settle.",
        minimum=0,
        maximum=86_400,
        unit="s",
        note="asked for, from the end of the first step on; burn_in_steps has the steps taken",
        label="warm-up {} s",
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
    steps_per_sync: int | None = declared(
        None,
        "Steps of a window, which is timed as one and waited for once (docs/methodology.md). "
        "Not given: 1 on CPUs; on GPUs as many as keep the wait under 1 % of the time, found "
        "in the warm-up, or 10 where it is too short for that.",
        minimum=1,
        maximum=1_000,
        unit="steps",
        note="asked for, of a window; none: as many as needed",
        changes_memory=False,
        is_axis=False,
    )
    epochs: int | None = declared(
        None,
        "Passes over the training data, with an evaluation on held-out data after each. The "
        "first is the warm-up where there are several.",
        minimum=1,
        unit="epochs",
        note="asked for instead of steps",
        bits=32,
        label="{} epochs",
        changes_memory=False,
        changes_speed=False,
    )
    evaluate: str = declared(
        "auto",
        "Score held-out items before training, after each epoch and at the end; auto does "
        "where epochs are given.",
        choices=("auto", "yes", "no"),
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
