"""The interface of a framework: what its engine does for the loop, the log and checkpoints.

A framework is a folder beside this file whose `engine.py` defines
    Engine(spec, strategy, data_folder): trains one run in one process, as described below
    ENVIRONMENT: the folder in envs/ of runs that name none
    PACKAGES: names that Python must be able to import
    VARIABLES: patterns of variables of the environment that change its speed and are recorded
    LEFT_OUT_VARIABLES: patterns of those among them that are not, as addresses of processes
    OUT_OF_MEMORY: how errors that say that memory is full begin, as `Name: message`
    MODELS: the folder of its models, where it shares them with others, as in `keras/models`
    BY_DESIGN: what it does in its own way, a clause for caveats of comparisons
    INPUTS: the readers of items that it has, the one that `input: auto` takes first
    UNSUPPORTED_FIELDS: the fields of a run that it lacks, each with the reason; fields that are
        declared as those of other frameworks (dlbench/run_fields/) may be left out
and whose folders `losses`, `strategies` and, unless shared, `models` have the framework's own.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dlbench import Error
from dlbench.common import plugins, terminal
from dlbench.machine.redaction import Variables
from dlbench.run_fields.fields import DECLARED, DEFAULTS
from dlbench.trainer import device_memory
from dlbench.trainer.model_flops import ModelFlops
from dlbench.trainer.strategy import BaseStrategy, Spec

if TYPE_CHECKING:  # the workflow asks for strategies without it
    import numpy as np

    from dlbench.trainer.calibration import Kernels
    from dlbench.trainer.reading.converted import Source

DEFAULT = "tensorflow"
EVALUATION_BATCH = 256
FRAMEWORK_FOLDERS = ("models", "losses", "strategies")  # folders that each framework has
# The least compute capability of NVIDIA's GPUs that have these kinds of numbers.
CAPABILITIES = {"tf32": (8, 0), "bfloat16": (8, 0), "float16": (5, 3)}


class Variable(Protocol):
    """An array of the framework's that a checkpoint keeps."""

    @property
    def shape(self) -> Any: ...

    def numpy(self) -> "np.ndarray": ...

    def assign(self, value: "np.ndarray") -> Any: ...


class CheckpointState(NamedTuple):
    """What a checkpoint holds, by name: each variable's copies on the devices of this process."""

    common: Mapping[str, Sequence[Variable]]  # equal on all ranks
    own: Mapping[str, Sequence[Variable]]  # not equal


class Engine(Protocol):
    """One process of a run: its items, its model, and the step that trains it.

    The constructor sets the precision and the seeds and opens the data; build, begin and trace
    follow in this order, then the steps.

    Attributes:
        strategy: the joined strategy of this process.
        records: of the training split; None if the items are synthetic and have no end.
        data_sha256: digest of the data; None if the items are synthetic.
        item_shape: shape of one input.
        visible_gpu_count: how many GPUs the framework sees; 0 if the devices are CPUs.
    """

    strategy: BaseStrategy
    records: int | None
    data_sha256: str | None
    item_shape: tuple[int, ...]
    visible_gpu_count: int

    def build(self) -> None:
        """Build model and optimizer; all processes get the values that rank 0 has.

        Raises:
            Error: the model does not fit the items or its task.
        """

    def begin(self, first: int) -> None:
        """Open the stream of the items that follow `first` steps."""

    def host_batches(self, first: int) -> Iterator[Any]:
        """The batches of this process that follow `first` steps, in the memory of the host.

        Each is that of all devices of this process, as the reader hands it over; nothing is copied
        to a device, and nothing needs to be built. They have no end. The run has stored items.
        """

    def trace(self) -> None:
        """Make the step ready, as far as the framework can before it is called."""

    def step(self, index: int, until: int) -> float:
        """Do one step and wait for its mean loss over the devices of this process.

        Args:
            index: number of the step, from 1.
            until: number of the next step after which something else is done.
        """

    def window(self, first: int, last: int, until: int) -> list[float]:
        """Do several steps and wait once, at their end. Returns the loss of each, as `step` does.

        A class that inherits this waits for each step. The losses and the weights must be
        the same either way, and so must be the learning rate of each step.

        Args:
            first, last: numbers of the first and the last step, which may be equal.
                schedule.Windows chooses the length, so a new length must not compile anew.
            until: number of the next step after which something else is done, `last` or later.
        """
        return [self.step(index, until) for index in range(first, last + 1)]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step."""

    def evaluate(self) -> dict[str, float]:
        """The scores over all held-out items, and how many these are (`examples`)."""

    def parameters(self) -> int | None:
        """How many parameters the model has, with those that are not trained; None without one."""

    def attention(self) -> str | None:
        """The call that computes the model's attention, and its kernel; None: it has none."""

    def model_flops(self) -> ModelFlops:
        """FLOPs of the built model for one item, by the shapes of its layers: nothing is computed.

        A class that inherits this does not know them.
        """
        return ModelFlops(None, None, ["the framework has no rules for its layers"])

    def peak_memory(self) -> device_memory.Peak:
        """What the devices of this process held at most since it began, as far as it is counted.

        What a class derives from here does not count it.
        """
        return device_memory.NOT_COUNTED

    def checkpoint_state(self) -> CheckpointState:
        """The variables that a checkpoint holds."""

    def weights_sha256(self) -> list[str]:
        """One digest of all weights for each device of this process."""

    def gpu_name(self) -> str:
        """Name of the first GPU, as its maker calls it."""

    def versions(self) -> dict[str, str]:
        """Versions of the framework and of the packages it needs, apart from Python and NumPy."""

    def kernels(self) -> "Kernels":
        """The computations by which the first device is calibrated after the run.

        Raises:
            NotImplementedError: a class that inherits this has none.
        """
        raise NotImplementedError(f"{type(self).__module__} has no kernels to measure")

    def profile(self, work: Callable[[], None], folder: Path) -> list[dict[str, Any]]:
        """Do some work under the framework's profiler.

        Args:
            work: steps; the last one has been waited for when it returns.
            folder: an empty one, for files of the profiler's.

        Returns:
            What was done, as events that dlbench/log/operations.py describes.

        Raises:
            NotImplementedError: a class that inherits this has none.
        """
        raise NotImplementedError("the framework has no profiler")

    def build_facts(self) -> dict[str, Any]:
        """How the framework was compiled, as plain values: `FRAMEWORK_build`."""


def seed(spec: Spec) -> int:
    """The seed of a run: its repeats have others."""
    return spec.seed + spec.repeat - 1


def check_precision(precision: str, gpu: str | None, capability: Sequence[int] | None) -> None:
    """Check that a device supports a precision.

    Args:
        gpu: name of the device; None if it is a CPU.
        capability: its compute capability, as in (8, 0); None if it has none, as AMD's GPUs.

    Raises:
        Error: it does not.
    """
    least = CAPABILITIES.get(precision)
    if gpu is None and precision == "tf32":
        raise Error("precision tf32 is one of NVIDIA's GPUs; this device is a CPU")
    if gpu is not None and least and capability and tuple(capability) < least:
        wanted, there = (".".join(map(str, numbers)) for numbers in (least, capability))
        raise Error(f"precision {precision} needs compute capability {wanted}; {gpu} has {there}")


def build_checked(
    spec: Spec, model_module: ModuleType, source: "Source", kind: type, called: str
) -> Any:
    """The model of a run as its file builds it for the items of a source.

    Args:
        spec: the run's fields as attributes (see runs.Run).
        model_module: the module of the model.
        kind: class of which it must be.
        called: name of that class for users.

    Raises:
        Error: it cannot be built, or is something else.
    """
    try:
        settings = {"recompute": True} if spec.recompute else {}
        model = model_module.build(source.item_shape, source.classes, **settings)
    except ValueError as error:
        raise Error(
            f"model {spec.model} cannot be built for items of shape {source.item_shape} in "
            f"{source.classes} classes of {spec.dataset}; it was designed for "
            f"{model_module.INPUT_SHAPE}: {terminal.message(str(error), 300)}"
        ) from error
    if not isinstance(model, kind):
        returned = "nothing; is its return missing?" if model is None else type(model).__name__
        raise Error(
            f"models/{spec.model}.py: build: expected it to return a {called}, found {returned}"
        )
    return model


@functools.cache
def names() -> list[str]:
    """The frameworks, each the name of a folder that has an engine."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/engine.py"))


def kind(framework: str, folder: str) -> str:
    """Add-ons of one framework by the name that `plugins` takes, as in `jax/strategies`.

    Args:
        framework: of a run. One that only another program knows has no add-ons; TensorFlow's
            strategies say how the processes of such runs are laid out.
        folder: any folder of add-ons; one that frameworks share keeps its name.
    """
    if folder not in FRAMEWORK_FOLDERS:
        return folder
    own = f"{framework if framework in names() else DEFAULT}/{folder}"
    return _constants(framework).get("MODELS", own) if folder == "models" else own


def environment(framework: str) -> str:
    """The environment of runs of a framework that name none."""
    return _constants(framework)["ENVIRONMENT"]


def packages(framework: str) -> tuple[str, ...]:
    """What Python must be able to import for a framework, itself first."""
    return _constants(framework)["PACKAGES"]


def variables() -> Variables:
    """The variables of all frameworks that are recorded."""
    lists = [
        [pattern for framework in names() for pattern in _constants(framework).get(name, ())]
        for name in ("VARIABLES", "LEFT_OUT_VARIABLES")
    ]
    return Variables(*(tuple(dict.fromkeys(patterns)) for patterns in lists))


def inputs(framework: str) -> tuple[str, ...]:
    """The readers of items that a framework has, its usual one first."""
    return _constants(framework)["INPUTS"]


def by_design(framework: str) -> str | None:
    """What a framework does in its own way, as a clause; None where that is not known."""
    return _constants(framework).get("BY_DESIGN") if framework in names() else None


def unsupported(run: Spec) -> str | None:
    """Why a run cannot be trained with its framework, or None.

    The framework has no use for a field that the run sets, or lacks its strategy.
    """
    lacked = dict(_constants(run.framework).get("UNSUPPORTED_FIELDS", {}))
    for name, field in DECLARED.items():
        if field.frameworks and run.framework not in field.frameworks:
            others = " and ".join(field.frameworks)
            lacked.setdefault(name, f"{name} is a field of framework {others}: leave it out")
    asked = (why for name, why in lacked.items() if getattr(run, name) != DEFAULTS[name])
    return next(asked, unsupported_strategy(run))


def _constants(framework):
    """What a framework says in its `engine.py`; one of another program is as in `kind`."""
    return plugins.constants(framework if framework in names() else DEFAULT, "engine")


def strategy_of(run: Spec) -> type[BaseStrategy]:
    """The class of a run's strategy, which says how its processes are laid out.

    Of a strategy that only another framework has it is that one's: see `unsupported_strategy`.

    Raises:
        UnknownName: no framework has a strategy of this name.
    """
    return plugins.load(kind_of(run.framework, "strategies", run.strategy), run.strategy).Strategy


def kind_of(framework: str, folder: str, name: str) -> str:
    """As `kind`, for one add-on: a strategy that a framework lacks is one of those that have it."""
    own = kind(framework, folder)
    if folder != "strategies" or name in plugins.names(own):
        return own
    others = (kind(other, folder) for other in names())
    return next((other for other in others if name in plugins.names(other)), own)


def unsupported_strategy(run: Spec) -> str | None:
    """Why a run cannot have its strategy: only other frameworks have it; None if its own does."""
    own = kind(run.framework, "strategies")
    if run.strategy in plugins.names(own):
        return None
    others = [name for name in names() if run.strategy in plugins.names(kind(name, "strategies"))]
    # What belongs to the strategy is not asked for: its options, and its launcher.
    instead = {"strategy_options": "", "launcher": "any"}
    fitting = [
        name
        for name in plugins.names(own)
        if not plugins.load(own, name).Strategy.unsupported(_Changed(run, strategy=name, **instead))
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
