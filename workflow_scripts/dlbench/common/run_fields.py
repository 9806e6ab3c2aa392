"""The fields of a run, each declared once: name, type, default, bounds, meaning, label, column.

From a declaration come the field of runs.Run, the trainer's flag, the key of a matrix block in the
config's schema, the columns of tables, the name in figures and pages, and the page docs/config.md.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

REQUIRED = dataclasses.MISSING
NAME = "^[a-z0-9_]+$"  # of a plugin, or of an entry in a mapping of the config
# The topic of a field that not all runs have: the model, which runs of mode input lack, or the
# reading of stored items, which runs on synthetic datasets lack.
MODEL, READING = "model", "reading"
# Tags: a short label has the field always, or whenever runs differ in it.
ALWAYS, VARIED = "always", "varied"
FLAGGED = "flagged"  # a comparison is flagged if its sides differ in it
SOFTWARE = "software"  # runs that differ in it have other software by intent
READS = "reads"  # items are read otherwise, at another speed
# It distinguishes all measurements without a model, those of an exchange, those of one device.
BASELINES, EXCHANGE, DEVICE = "baselines", "exchange", "device"
LARGEST = {int: 1_000_000_000, float: 3.4e38}


class Declaration(NamedTuple):
    """The declaration of a field, in addition to its name, its type and its default.

    Attributes:
        meaning: its description in docs/config.md and `train.py --help`.
        choices: the values that it may have; () for any.
        minimum, above, maximum: its bounds, if it is a number; `above` is exclusive.
        pattern: regular expression for its text in a config, if it has no choices.
        folder: kind of the plugins whose names it may have, see common/plugins.py.
        is_mapping: whether its value in a config is a mapping of options.
        names: pattern of the names in the mapping, if they are free; "" if a file lists them.
        or_max: whether a config may set it to max, for the largest value that fits.
        unit, note: of its column in the table of runs; "" for a note that is its meaning.
        bits: of that column, if it has whole numbers.
        label: format of its label with the value; "" for `name value`.
        switch: name of what it switches on or off, if it is a boolean.
        part: MODEL or READING, if only runs with these have it.
        needs_gradients: whether mode forward, which computes none, lacks it.
        frameworks: those that have it; () for all. The reason why a framework lacks a field is in
            UNSUPPORTED_FIELDS of its engine.py.
        changes_memory: whether the largest batch that fits may depend on it.
        changes_speed: whether the work of a step may depend on it.
        of_condition: whether runs that differ in it are different conditions, not repeats.
        is_axis: whether it distinguishes the series and rows of figures.
        contrast: the figure of findings that compare runs which differ only in this field; "" for
            fields that findings do not compare.
        only_recorded: whether the trainer only writes it into its log.
        rank: its place in a label, see RANKS; 0 for that of its group.
        tags: what lists it belongs to: the constants from ALWAYS to DEVICE.
    """

    meaning: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    pattern: str = NAME
    folder: str = ""
    is_mapping: bool = False
    names: str = ""
    or_max: bool = False
    unit: str = ""
    note: str = ""
    bits: int = 64
    label: str = ""
    switch: str = ""
    part: str = ""
    needs_gradients: bool = False
    frameworks: tuple[str, ...] = ()
    changes_memory: bool = True
    changes_speed: bool = True
    of_condition: bool = True
    is_axis: bool = True
    contrast: str = ""
    only_recorded: bool = False
    in_config: bool = True
    rank: int = 0
    tags: tuple[str, ...] = ()


def declared(default: Any, meaning: str, **further: Any) -> Any:
    """A field of a dataclass with its Declaration.

    `default`: REQUIRED if there is none. Run ids depend on it, so it never changes.
    """
    return dataclasses.field(
        default=default, metadata={"declared": Declaration(meaning, **further)}
    )


def value_type(field: dataclasses.Field[Any]) -> type:
    """The type of a field's values; None, of fields that may be left out, is ignored."""
    kinds = [kind for kind in (str, bool, int, float) if field.type in (kind, kind | None)]
    return kinds[0]


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Learning:
    """How gradients become new weights."""

    optimizer: str = declared(
        "sgd",
        "sgd, momentum (sgd with momentum 0.9), rmsprop, adam, or adamw, which needs a "
        "weight_decay.",
        choices=("sgd", "momentum", "rmsprop", "adam", "adamw"),
        label="{}",
    )
    weight_decay: float = declared(
        0.0,
        "Of adamw: each step shrinks a weight by this times the learning rate; weights with "
        "one axis (biases, gains) keep their size. 0 for all other optimizers.",
        minimum=0,
        changes_speed=False,
    )
    clip_norm: float = declared(
        0.0,
        "Gradients whose common norm is larger are shortened to it, after their mean over the"
        " devices; 0: none are.",
        minimum=0,
        label="gradients up to {}",
        part=MODEL,
        needs_gradients=True,
    )
    accumulate_steps: int = declared(
        1,
        "Equal parts of batch_per_device that a device computes one after the other before "
        "the weights are updated; must divide it.",
        minimum=1,
        label="in {} parts",
        part=MODEL,
        needs_gradients=True,
    )
    learning_rate: float = declared(
        0.01,
        "Learning rate; that of every step, unless it is scaled, warmed up or brought down.",
        above=0,
        note="before scaling",
        label="rate {}",
        changes_memory=False,
        changes_speed=False,
    )
    learning_rate_scaling: str = declared(
        "none",
        "Multiply the learning rate with global batch / learning_rate_batch, or with its root.",
        choices=("none", "linear", "sqrt"),
        label="{} scaling of the rate",
        changes_memory=False,
        changes_speed=False,
    )
    learning_rate_batch: int = declared(
        256,
        "The global batch for which learning_rate is meant, where it is scaled.",
        minimum=1,
        unit="items",
        note="reference batch size of the learning-rate scaling",
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
    learning_rate_warmup_steps: int = declared(
        0,
        "Steps in which the learning rate rises linearly: to the scaled one from that before "
        "scaling, without scaling from zero.",
        minimum=0,
        unit="steps",
        changes_memory=False,
        changes_speed=False,
        is_axis=False,
    )
    learning_rate_decay: str = declared(
        "none",
        "cosine: after its warm-up the learning rate falls along half a cosine, to zero "
        "behind the last step.",
        choices=("none", "cosine"),
        label="{} decay of the rate",
        changes_memory=False,
        changes_speed=False,
    )


OPTION = "^[A-Za-z][A-Za-z0-9_-]+$"  # the long name of an option of a program
VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"  # the name of a variable of the environment


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Place:
    """On which devices, started by what, in which software."""

    nodes: int = declared(
        1,
        "Number of nodes.",
        minimum=1,
        maximum=100_000,
        bits=32,
        label="{} nodes",
        rank=60,
        tags=(VARIED, READS, EXCHANGE),
    )
    node: str | None = declared(
        None,
        "Name of the node on which the run is to be trained, or a list as Slurm writes it, "
        "n[1-8], for a run on each; if the run has several nodes, a list of as many. Schedulers "
        "are asked for them; elsewhere the run is skipped (docs/clusters.md).",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._,\[\]-]*$",
        changes_memory=False,
        is_axis=False,
        only_recorded=True,
        tags=(READS, BASELINES),
    )
    devices_per_node: int = declared(
        1,
        "Devices used on each node.",
        minimum=1,
        maximum=10_000,
        bits=32,
        label="{} devices",
        is_axis=False,
        rank=60,
        tags=(VARIED, READS, EXCHANGE),
    )
    threads_per_device: int = declared(
        1,
        "Cores that make up one device, where devices are CPUs; the run is pinned to them.",
        minimum=1,
        maximum=100_000,
        bits=32,
        label="{} threads a device",
        tags=(READS, BASELINES),
    )
    binding: str = declared(
        "",
        "Which cores each process of a run on GPUs is bound to, to measure what that makes of a "
        "run (docs/training.md); without the key as site.binding says.",
        choices=("auto", "none", "cores"),
        note="asked for, of processes to cores; empty: that of the site",
        label="binding {}",
        changes_memory=False,
    )
    power_limit_w: int | None = declared(
        None,
        "Watts that each GPU of the run may take: set before the trainer starts, restored "
        "once it has ended; needs root, or site.power_limit_command. Without the key limits "
        "are left as they are.",
        minimum=1,
        maximum=100_000,
        unit="W",
        note="asked for, of each GPU; none: as it was found",
        label="limit {} W",
        changes_memory=False,
        only_recorded=True,
        tags=(FLAGGED,),
    )
    strategy: str = declared(
        "single",
        "Name of a file in the folder strategies/ of the framework, as in "
        "workflow_scripts/dlbench/trainer/tensorflow/strategies/: how the work is spread over"
        " devices.",
        folder="strategies",
        label="{}",
        contrast="scaling",
        rank=50,
        tags=(VARIED, FLAGGED, READS, EXCHANGE),
    )
    strategy_options: str = declared(
        "",
        "Settings of the strategy, as in {cycle_time_ms: 1, compression: fp16}; the file of "
        "the strategy lists them.",
        is_mapping=True,
        label="{}",
        rank=50,
        tags=(FLAGGED, EXCHANGE),
    )
    launcher: str = declared(
        "none",
        "Name of a file in dlbench/starting/launchers/: what starts the processes. Left out, the "
        "strategy's own.",
        folder="launchers",
        label="{}",
        rank=50,
        tags=(READS, EXCHANGE),
    )
    runtime: str = declared(
        "bare",
        "Name of a file in workflow_scripts/dlbench/images/runtimes/: bare metal or a "
        "container runtime.",
        folder="runtimes",
        label="{}",
        contrast="overhead",
        rank=50,
        tags=(VARIED, FLAGGED, SOFTWARE, READS, BASELINES),
    )
    runtime_options: str = declared(
        "",
        "Settings of the runtime, as in {execmode: S1} for udocker or {start: command} for "
        "apptainer; the file of the runtime lists them.",
        is_mapping=True,
        label="{}",
        changes_memory=False,
        only_recorded=True,
        rank=50,
        tags=(FLAGGED, READS, BASELINES),
    )
    copies_per_node: int = declared(
        1,
        "Copies of the run that are trained at once on the node, each on devices of its own: "
        "job packing. What is measured is the throughput of one copy. For strategies of one "
        "process on one node; not together with checkpoint_every_min.",
        minimum=1,
        maximum=10_000,
        note="trained at once; all numbers are of one copy",
        bits=32,
        label="{} at once",
        tags=(FLAGGED, READS),
    )
    environment: str = declared(
        "train",
        "What the trainer's packages come from: on bare metal a folder in envs/, in "
        "containers the image of that name (`images`), which is built from that folder unless"
        " the config says otherwise. Left out, the framework's own; where no Python of the "
        "machine fits that, one that stands in for it (docs/training.md).",
        pattern=r"^[A-Za-z0-9_.-]+$",
        only_recorded=True,
        contrast="overhead",
        rank=50,
        tags=(FLAGGED, SOFTWARE, READS, BASELINES),
    )
    trainer: str = declared(
        "dlbench",
        "What trains: dlbench, our own, or a name under trainers.",
        label="by {}",
        is_axis=False,
        tags=(SOFTWARE,),
    )
    variables: str = declared(
        "",
        "Variables of the environment with which the run's processes are started, as in "
        "{NCCL_ALGO: Ring}; {} for none. Launcher and container runtime get them, too. Secrets "
        "are refused, by their names.",
        is_mapping=True,
        names=VARIABLE,
        label="{}",
        only_recorded=True,
        tags=(SOFTWARE,),
    )
    launcher_options: str = declared(
        "",
        "Options of the launcher that dlbench does not set, as in {mpi: pmix} of srun; of mpirun "
        "its MCA parameters, as in {btl: tcp}.",
        is_mapping=True,
        names=OPTION,
        label="{}",
        only_recorded=True,
    )
    trainer_parameters: str = declared(
        "",
        "Parameters of another program, as its block gives them under `parameters`.",
        label="{}",
        in_config=False,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Reading:
    """How items are read, and what seeds their order."""

    augment: bool = declared(
        True,
        "Whether training items are varied (cropped, shifted, mirrored), where their dataset "
        "has a way to.",
        changes_speed=False,
        is_axis=False,
        tags=(READS,),
    )
    cache: str = declared(
        "auto",
        "Keep the training items in memory, or read them anew each epoch; auto keeps up to 1 GiB.",
        choices=("auto", "memory", "none"),
        changes_speed=False,
        is_axis=False,
        tags=(READS,),
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
        tags=(READS,),
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
        tags=(READS,),
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
        tags=(READS,),
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
        tags=(READS,),
    )
    seed: int = declared(
        1,
        "Seed of initial weights and data order in repeat 1; repeat r trains with seed + r - "
        "1, in every condition alike.",
        minimum=0,
        maximum=4_000_000_000,
        changes_memory=False,
        changes_speed=False,
        rank=140,
        tags=(FLAGGED,),
    )


OF_PROGRAMS = ("float8", "mxfp8", "nvfp4")  # precisions that our trainer has not


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Work:
    """What a step computes."""

    model: str = declared(
        REQUIRED,
        "Name of a model in workflow_scripts/dlbench/trainer/keras/models/.",
        folder="models",
        label="{}",
        tags=(ALWAYS, FLAGGED, READS),
    )
    dataset: str = declared(
        REQUIRED,
        "Name of a file in workflow_scripts/dlbench/data/datasets/.",
        folder="datasets",
        label="{}",
        changes_speed=False,
        contrast="real_vs_synthetic",
        tags=(ALWAYS, FLAGGED, READS),
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
        rank=70,
        tags=(ALWAYS, READS),
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
        tags=(READS,),
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Computing:
    """How a step is computed."""

    framework: str = declared(
        "tensorflow",
        "The framework that trains; other ones than tensorflow, jax and pytorch need a "
        "trainer of their own.",
        label="{}",
        rank=30,
        tags=(SOFTWARE, READS, BASELINES),
    )
    precision: str = declared(
        "float32",
        "What the layers compute in; variables are float32 in each. float16 scales its loss; "
        "tf32 is float32 with the short products of NVIDIA's GPUs, which float32 itself does "
        "without. The shorter ones are of other programs.",
        choices=("float32", "tf32", "bfloat16", "float16", *OF_PROGRAMS),
        label="{}",
        contrast="batch_size",
        tags=(VARIED, FLAGGED, DEVICE),
    )
    xla: bool = declared(
        False,
        "Whether forward and backward pass are compiled by XLA; the exchange of gradients and"
        " the update are outside of it.",
        switch="XLA",
        part=MODEL,
        contrast="scaling",
        tags=(FLAGGED,),
    )
    compile: bool = declared(
        False,
        "Whether forward and backward pass are compiled by torch.compile; a field of "
        "framework pytorch.",
        frameworks=("pytorch",),
        switch="torch.compile",
        part=MODEL,
        contrast="scaling",
        tags=(FLAGGED,),
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


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Length:
    """Which steps are taken, and how many."""

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
        rank=40,
        tags=(FLAGGED,),
    )
    checkpoint_writer: str = declared(
        "numpy",
        "What writes checkpoints (checkpoint_every_min): numpy; under PyTorch also dcp, its "
        "torch.distributed.checkpoint, and dcp_async, the same while steps go on.",
        choices=("numpy", "dcp", "dcp_async"),
        frameworks=("pytorch",),
        label="checkpoints by {}",
        part=MODEL,
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


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RunFields(Place, Reading, Learning, Length, Computing, Work):
    """All fields of a run; those of the last base class come first."""

    repeat: int = declared(
        1,
        "from 1; runs that differ only in it (and in the seed) are one combination",
        bits=32,
        changes_memory=False,
        changes_speed=False,
        of_condition=False,
        is_axis=False,
        in_config=False,
    )
    sentinel: int = declared(
        0,
        "Number of the session, from 1, in which a finished run was repeated; 0: no sentinel.",
        bits=32,
        changes_memory=False,
        changes_speed=False,
        of_condition=False,
        is_axis=False,
        only_recorded=True,
        in_config=False,
    )
    probe: str = declared(
        "",
        "A run of no statistics: with its items (stored), or with made-up ones of their shape, on"
        " the devices (synthetic) or copied there for each step (copied).",
        choices=("stored", "synthetic", "copied"),
        changes_speed=False,
        of_condition=False,
        is_axis=False,
        in_config=False,
    )


FIELDS = {field.name: field for field in dataclasses.fields(RunFields)}
DECLARED: dict[str, Declaration] = {name: f.metadata["declared"] for name, f in FIELDS.items()}
DEFAULTS = {n: f.default for n, f in FIELDS.items() if f.default is not dataclasses.MISSING}
# Where groups of fields stand in a label; those of one rank stand in the order of declaration.
# Between them are fields with a rank of their own, and facts (study/wording.py).
RANKS = {Work: 10, Computing: 80, Place: 90, Learning: 100, Reading: 110, Length: 130}


def group(*kinds: type) -> tuple[str, ...]:
    """The names of the fields in some groups.

    >>> group(Computing)[:3]
    ('framework', 'precision', 'xla')
    """
    return tuple(field.name for kind in kinds for field in dataclasses.fields(kind))


def tagged(tag: str) -> tuple[str, ...]:
    """The names of the fields with a tag.

    >>> tagged(ALWAYS)
    ('model', 'dataset', 'batch_per_device')
    """
    return tuple(name for name, field in DECLARED.items() if tag in field.tags)


def rank(name: str) -> int:
    """The place of a field in a label; those without group and rank come last.

    >>> rank("model"), rank("framework"), rank("repeat")
    (10, 30, 150)
    """
    return DECLARED[name].rank or next((r for kind, r in RANKS.items() if name in group(kind)), 150)
