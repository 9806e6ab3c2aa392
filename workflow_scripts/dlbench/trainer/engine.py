"""The interface of a framework: what its engine does for the loop, the log and checkpoints.

A framework is a folder beside this file whose `engine.py` defines
    Engine(spec, strategy, data_folder): trains one run in one process, as described below
    ENVIRONMENT: the folder in envs/ for runs that name none
    PACKAGES: names that Python must be able to import
    VARIABLES: patterns of environment variables that change its speed and are recorded
    LEFT_OUT_VARIABLES: patterns of those among them that are not recorded, such as addresses
    OUT_OF_MEMORY: the beginnings of its out-of-memory errors, as `Name: message`
    MODELS: the folder of its models, if it shares them with other frameworks: `keras/models`
    BY_DESIGN: what it does differently by design, a clause for caveats of comparisons
    INPUTS: its readers of items; the first is that of `input: auto`
    UNSUPPORTED_FIELDS: the fields of a run that it lacks, each with the reason; fields that are
        declared as those of other frameworks (dlbench/common/run_fields.py) may be left out
whose file `step.py` has LOSSES, the Losses of each task (tasks.py), and whose folders
`strategies` and, unless shared, `models` have the framework's own. `not_combined` of its strategies
says which fields it cannot combine.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dlbench import Error
from dlbench.common import plugins, terminal
from dlbench.common.run_fields import DECLARED, DEFAULTS, OF_PROGRAMS
from dlbench.machine.redaction import Variables
from dlbench.trainer.model_flops import ModelFlops
from dlbench.trainer.strategy import BaseStrategy, Spec

if TYPE_CHECKING:  # the workflow asks for strategies without it
    from concurrent.futures import Future

    import numpy as np

    from dlbench.trainer.calibration import Kernels
    from dlbench.trainer.reading.converted import Source

DEFAULT = "tensorflow"
EVALUATION_BATCH = 256
MAX_CHARACTERS = 200  # of the reason why a peak of memory is unknown
FRAMEWORK_FOLDERS = ("models", "strategies")  # folders that each framework has
# The least compute capability of NVIDIA's GPUs that have these kinds of numbers.
CAPABILITIES = {"tf32": (8, 0), "bfloat16": (8, 0), "float16": (5, 3)}


class Variable(Protocol):
    """An array of the framework that a checkpoint saves."""

    @property
    def shape(self) -> Any: ...

    def numpy(self) -> "np.ndarray": ...

    def assign(self, value: "np.ndarray") -> Any: ...


class CheckpointWriter(Protocol):
    """A framework's own way to save and load a CheckpointState; all ranks call it together."""

    def save(self, place: Path) -> "Future[Any] | None":
        """Save the present values; the Future of a write that goes on, None: it is done."""

    def load(self, place: Path) -> None:
        """Raises Error: the folder is damaged, or of another model."""


class CheckpointState(NamedTuple):
    """The variables that a checkpoint saves: name -> its copies on the devices of this process."""

    replicated: Mapping[str, Sequence[Variable]]  # equal on all ranks; rank 0 saves them
    per_rank: Mapping[str, Sequence[Variable]]  # each rank saves its own
    writer: CheckpointWriter | None = None  # None: checkpoints.py saves them


class Peak(NamedTuple):
    """Peaks in bytes of each device of a process, in the order of its devices.

    They are peaks since the process started, evaluations and the choice of kernels included: JAX
    cannot reset its count, and the peak must fit wherever it occurs. No framework counts what it
    takes of a CPU's memory; sampling.py records the resident set of the process instead. What it
    does not count on all its devices is None.
    """

    allocated: list[int] | None  # by weights, gradients, optimizer, activations and work space
    reserved: list[int] | None  # by the framework's allocator, in use or cached for later arrays
    unknown: str | None  # why some of it is not known; None if all is known
    limit: int | None = None  # the most bytes that the framework takes of a device, if there is one


NOT_COUNTED = Peak(None, None, "the framework does not count it")


class Engine(Protocol):
    """One process of a run: its items, its model, and the step that trains it.

    The constructor sets the precision and the seeds and opens the data. The loop then calls build,
    begin and trace, in this order, and then the steps.

    Attributes:
        strategy: that of this process, which has joined the others.
        records: number of records in the training split; None if the items are synthetic.
        data_sha256: digest of the data; None if the items are synthetic.
        item_shape: shape of one input.
        gpu_count: how many GPUs the framework sees; 0 if the devices are CPUs.
    """

    strategy: BaseStrategy
    records: int | None
    data_sha256: str | None
    item_shape: tuple[int, ...]
    gpu_count: int

    def build(self) -> None:
        """Build model and optimizer; rank 0 broadcasts its values to all processes.

        Raises Error: the model does not fit the items or its task.
        """

    def begin(self, first: int) -> None:
        """Open the stream of items from the step after `first` on."""

    def host_batches(self, first: int) -> Iterator[Any]:
        """Endless batches of this process from the step after `first` on, in host memory.

        A batch holds the items of all devices of this process, as the reader returns it. Nothing is
        copied to a device, and `build` need not have been called. Only for runs with stored items.
        """

    def trace(self) -> None:
        """Trace and compile the step as far as the framework can before its first call."""

    def step(self, index: int, until: int) -> float:
        """Do one step, counted from 1, and wait for its mean loss over this process's devices.

        An evaluation, a checkpoint or the end follows after step `until`.
        """

    def window(self, first: int, last: int, until: int) -> list[float]:
        """Do several steps and wait once, for the last. Returns the loss of each, as `step` does.

        This default waits for each step. Losses, weights and learning rates must be the same either
        way. schedule.Windows chooses the length, so a new length must not compile anew. `first`
        and `last` may be equal; `until` is `last` or later.
        """
        return [self.step(index, until) for index in range(first, last + 1)]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step."""

    def evaluate(self) -> dict[str, float]:
        """The scores over all held-out items, and how many items there are (`examples`)."""

    def parameters(self) -> int | None:
        """Number of parameters of the model, trained or not; None if the run has no model."""

    def attention(self) -> str | None:
        """The call that computes the model's attention, and its kernel; None: no attention."""

    def model_flops(self) -> ModelFlops:
        """FLOPs of the built model for one item, from the shapes of its layers alone.

        This default does not know them.
        """
        return ModelFlops(None, None, ["the framework has no rules for its layers"])

    def peak_memory(self) -> Peak:
        """Peak memory of the devices of this process since it started, if the framework counts it.

        This default does not.
        """
        return NOT_COUNTED

    def checkpoint_state(self) -> CheckpointState:
        """The variables that a checkpoint saves."""

    def weights_sha256(self) -> list[str]:
        """One digest of all weights for each device of this process."""

    def gpu_name(self) -> str:
        """Model name of the first GPU."""

    def versions(self) -> dict[str, str]:
        """Versions of the framework and of the packages it needs, apart from Python and NumPy."""

    def kernels(self) -> "Kernels":
        """The computations by which the first device is calibrated after the run."""
        raise NotImplementedError(f"{type(self).__module__} has no kernels to measure")

    def profile(self, work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
        """Call `work`, which does some steps and waits, under the framework's profiler.

        Its files go into an empty folder. The trace is returned, as events that
        dlbench/trainer/profiling.py describes.
        """
        raise NotImplementedError("the framework has no profiler")

    def build_facts(self) -> dict[str, Any]:
        """How the framework was compiled, as plain values: `FRAMEWORK_build`."""


def reading_only(of_framework: type[Any]) -> type[Any]:
    """The class of a framework's engine, but its objects only read (mode `input`)."""
    return type("InputEngine", (_Reading, of_framework), {})


NO_LOSS = 0.0  # each step of a log has a loss


class _Reading:
    """What differs from Engine.

    - A step takes the next batch from the run's reader and discards it. It ends when the batch is
      in host memory, without a copy to a device.
    - The framework's own engine opens the data and knows the devices. It builds no model, no step.
    - As in other modes the first batch is taken before the first step.
    - The processes of a run read independently; none waits for another between two steps.
    """

    learning_rate = 0.0
    host_batches: Callable[[int], Iterator[Any]]

    def build(self) -> None:
        """Nothing."""

    def begin(self, first: int) -> None:
        self._batches = self.host_batches(first)
        next(self._batches)

    def trace(self) -> None:
        """Nothing."""

    def step(self, index: int, until: int) -> float:
        next(self._batches)
        return NO_LOSS

    window = Engine.window

    def parameters(self) -> None:
        return None

    def attention(self) -> None:
        return None

    def model_flops(self) -> ModelFlops:
        return ModelFlops(None, None, ["mode input has no model"])

    def checkpoint_state(self) -> CheckpointState:
        return CheckpointState({}, {})  # the position in the data follows from the step

    def weights_sha256(self) -> list[str]:
        return []


def read_peaks(
    devices: Iterable[Any], read: Callable[[Any], tuple[int | None, int | None]]
) -> Peak:
    """Read the peaks of some devices.

    `read` returns (allocated, reserved) of a device, None for what it does not count. If it raises,
    nothing is known, and the exception is the reason: no run fails because of it.
    """
    try:
        pairs = [read(device) for device in devices]
    except Exception as error:
        return Peak(
            None, None, terminal.message(f"{type(error).__name__}: {error}", MAX_CHARACTERS)
        )
    allocated, reserved = (_whole([pair[place] for pair in pairs]) for place in (0, 1))
    if allocated is None and reserved is None:
        return NOT_COUNTED
    names = {"what is allocated": allocated, "what is reserved": reserved}
    missing = [name for name, values in names.items() if values is None]
    unknown = f"the framework does not count {missing[0]}" if missing else None
    return Peak(allocated, reserved, unknown)


def _whole(values: list[int | None]) -> list[int] | None:
    """The values if there are any and all are known; None otherwise.

    An unknown value is -1 on some devices under JAX; the peak of a run is never 0.
    """
    counts = [int(value) for value in values if value is not None and value > 0]
    return counts if counts and len(counts) == len(values) else None


def seed(spec: Spec) -> int:
    """The seed of a run, which differs between its repeats."""
    return spec.seed + spec.repeat - 1


def check_precision(precision: str, gpu: str | None, capability: Sequence[int] | None) -> None:
    """Check that a device supports a precision: a GPU of a name and compute capability, or a CPU.

    AMD's GPUs have no compute capability, which is (8, 0) for example.
    """
    least = CAPABILITIES.get(precision)
    if gpu is None and precision == "tf32":
        raise Error("precision tf32 is one of NVIDIA's GPUs; this device is a CPU")
    if gpu is not None and least and capability and tuple(capability) < least:
        needed, found = (".".join(map(str, version)) for version in (least, capability))
        raise Error(f"precision {precision} needs compute capability {needed}; {gpu} has {found}")


def build_checked(
    spec: Spec, model_module: ModuleType, source: "Source", model_class: type, class_name: str
) -> Any:
    """Build the model of a run for the items of a source, and check its class.

    Raises Error: the model cannot be built, or has another class.
    """
    try:
        settings = {"recompute": True} if spec.recompute else {}
        model = model_module.build(source.item_shape, model_classes(spec, source), **settings)
    except ValueError as error:
        raise Error(
            f"model {spec.model} cannot be built for items of shape {source.item_shape} in "
            f"{source.classes} classes of {spec.dataset}; it was designed for "
            f"{model_module.INPUT_SHAPE}: {terminal.message(str(error), 300)}"
        ) from error
    if not isinstance(model, model_class):
        returned = "nothing; is its return missing?" if model is None else type(model).__name__
        raise Error(
            f"models/{spec.model}.py: build: expected it to return a {class_name}, found {returned}"
        )
    return model


def model_classes(spec: Spec, source: "Source") -> int:
    """How many classes the logits of a run's model have: those of its items, perhaps padded."""
    multiple: int = spec.vocabulary_multiple or 1
    return -(-source.classes // multiple) * multiple


@functools.cache
def names() -> list[str]:
    """The frameworks, each the name of a folder that has an engine."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/engine.py"))


def plugin_kind(framework: str, folder: str) -> str:
    """The kind, as `plugins` takes it, of a framework's add-ons, as in `jax/strategies`.

    A framework that only another program knows has no add-ons here: TensorFlow's strategies then
    say how the processes of a run are laid out. A folder that frameworks share is its own kind.
    """
    if folder not in FRAMEWORK_FOLDERS:
        return folder
    path = f"{framework if framework in names() else DEFAULT}/{folder}"
    return _constants(framework).get("MODELS", path) if folder == "models" else path


def environment(framework: str) -> str:
    """The environment of runs of a framework that name none."""
    return _constants(framework)["ENVIRONMENT"]


def packages(framework: str) -> tuple[str, ...]:
    """The packages that Python must be able to import for a framework, the framework first."""
    return _constants(framework)["PACKAGES"]


def variables() -> Variables:
    """The environment variables that are recorded, of all frameworks."""
    lists = [
        [pattern for framework in names() for pattern in _constants(framework).get(name, ())]
        for name in ("VARIABLES", "LEFT_OUT_VARIABLES")
    ]
    return Variables(*(tuple(dict.fromkeys(patterns)) for patterns in lists))


def inputs(framework: str) -> tuple[str, ...]:
    """The readers of items that a framework has, the default first."""
    return _constants(framework)["INPUTS"]


def by_design(framework: str) -> str | None:
    """What a framework does differently by design, as a clause; None if unknown."""
    return _constants(framework).get("BY_DESIGN") if framework in names() else None


def unsupported(run: Spec) -> str | None:
    """Why a run cannot be trained with its framework, or None.

    It does not support a field that the run sets, lacks the run's strategy, or cannot combine them.
    """
    lacked = dict(_constants(run.framework).get("UNSUPPORTED_FIELDS", {}))
    if run.precision in OF_PROGRAMS:
        lacked["precision"] = f"precision {run.precision} is for trainers of others only"
    for name, field in DECLARED.items():
        if field.frameworks and run.framework not in field.frameworks:
            others = " and ".join(field.frameworks)
            lacked.setdefault(name, f"{name} is a field of framework {others}: leave it out")
    reasons = (why for name, why in lacked.items() if getattr(run, name) != DEFAULTS[name])
    return next(reasons, None) or unsupported_strategy(run) or strategy_of(run).not_combined(run)


def _constants(framework):
    """The constants in the `engine.py` of a framework; DEFAULT's if it is another program's."""
    return plugins.constants(framework if framework in names() else DEFAULT, "engine")


def strategy_of(run: Spec) -> type[BaseStrategy]:
    """The class of a run's strategy, which says how its processes are laid out.

    If only another framework has the strategy, its class is returned: see `unsupported_strategy`.
    Raises UnknownName: no framework has a strategy of this name.
    """
    return plugins.load(
        plugin_kind_of(run.framework, "strategies", run.strategy), run.strategy
    ).Strategy


def plugin_kind_of(framework: str, folder: str, name: str) -> str:
    """As `plugin_kind`, for one add-on; of a strategy that a framework lacks, another's kind."""
    usual = plugin_kind(framework, folder)
    if folder != "strategies" or name in plugins.names(usual):
        return usual
    others = (plugin_kind(other, folder) for other in names())
    return next((other for other in others if name in plugins.names(other)), usual)


def unsupported_strategy(run: Spec) -> str | None:
    """Why a run's framework cannot run its strategy: only others have it; None if it can."""
    strategies = plugin_kind(run.framework, "strategies")
    if run.strategy in plugins.names(strategies):
        return None
    others = [
        name for name in names() if run.strategy in plugins.names(plugin_kind(name, "strategies"))
    ]
    found = {name: plugins.load(strategies, name).Strategy for name in plugins.names(strategies)}
    # Options and launcher belong to the strategy that the run names, not to the alternatives.
    fitting = [
        name
        for name, other in found.items()
        if not other.unsupported(
            _Changed(run, strategy=name, strategy_options="", launcher=other.launcher)
        )
    ]
    return (
        f"strategy {run.strategy} is one of {' and '.join(others)}, not of {run.framework}; on "
        f"these devices {run.framework} has: {', '.join(fitting) or 'none'}"
    )


class _Changed:
    """A run, or the flags of one, with other values of some fields."""

    def __init__(self, run: Spec, **changes: Any):
        self.__dict__.update(changes, _run=run)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @property
    def devices(self) -> int:  # the flags have no such field
        return self._run.nodes * self._run.devices_per_node
