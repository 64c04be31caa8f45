"""``te.build``: compiles a scheduled program to native code, as a model with one kernel.

f = te.build(s, target="host")
c = f(a, b)
f.check(), f.time(), f.llvm, f.asm, f.save("f.tw")
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from statistics import median
from typing import Annotated, cast

import numpy as np

from tilewright import __version__
from tilewright.backend.api import Backend, Emission, Image
from tilewright.backend.choice import backend as backend_of
from tilewright.backend.cpu.backend import CPU
from tilewright.base import dtypes
from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.arrays import Array, random_array
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadFeed, BadInput, NotEquivalent, Unsupported
from tilewright.base.memory import memory_guarded
from tilewright.base.settings import Settings, Stage
from tilewright.base.store import Store
from tilewright.compilation import program_image
from tilewright.kernels.packing import stored_by
from tilewright.loops.positions import with_checks
from tilewright.loops.program import Program
from tilewright.measure.clock import Clock, Timed
from tilewright.measure.difference import Difference, Reference
from tilewright.measure.job import Timing
from tilewright.measure.workload import tolerance
from tilewright.runtime import artifact
from tilewright.runtime.abi import MAX_THREADS
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import accepted
from tilewright.runtime.loading import InMemory
from tilewright.runtime.memory import aligned_array, aligned_copy
from tilewright.runtime.pool import shared_pool
from tilewright.runtime.runnable import RunnableModel
from tilewright.runtime.sizing import processors_for
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.te.stage import TeSchedule
from tilewright.te.values import meaning

_MOST_SECONDS = 60.0
"""Maximum seconds for timing one kernel."""


@checked(BadInput)
@memory_guarded("the schedule was built")
def build(
    schedule: TeSchedule | Schedule | Program,
    target: Target | str = "host",
    *,
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
    constants: Mapping[str, object] | None = None,
    backend: Backend | str = CPU,
    bounds_check: bool = False,
    settings: Settings | None = None,
) -> "Kernel":
    """``schedule`` as native code for ``target``, which takes NumPy arrays and returns new ones.

    Inputs come in the order of the program's parameters (``Kernel.inputs``). ``constants``: values of some of them, by
    name, as they were declared; the kernel stores them as the schedule wants them, and takes the other ones.
    ``threads``: maximum number per call; by default all that this process may use. ``backend``: a back end, or its
    name. Accesses that are not provably inside of their buffer are checked at run time; with ``bounds_check``, all are.
    Code comes from the cache of kernels if it is there.

    Raises ``BadProgram`` for an access that is provably outside, ``UnsupportedTarget`` for an intrinsic that ``target``
    lacks, ``UnsupportedKernel`` for what the back end can't run (blocks and threads of a device, on a CPU),
    ``BadInput`` if a constant that the schedule has laid out anew has no value, ``BadFeed`` if a value does not fit.
    """
    chosen, by = settings or Settings.from_environment(), backend_of(backend)
    made_for = target_of(target)
    everywhere = bounds_check or chosen.bounds_check
    scheduled = schedule if isinstance(schedule, Program) else schedule.program
    program = scheduled if everywhere else with_checks(scheduled)
    given = _arrays(program, constants or {})
    stored = stored_by(program, given, aligned_array)
    image, manifest = program_image(
        program, made_for, Emission(checked=everywhere), constants=given, backend=by, cache=Store.open(chosen)
    )
    for spec in manifest.constants:
        if stored[spec.name].shape != spec.static_shape:
            raise BadFeed(f"constant {spec.name} of shape {given[spec.name].shape} can't be stored as {spec}")
    values = [stored[spec.name] for spec in manifest.constants]
    executable = image.launch(manifest, values, threads=chosen.num_threads if threads is None else threads)
    return Kernel(executable, Origin(program, schedule, made_for, by, image, given))


def _arrays(program: Program, constants: Mapping[str, object]) -> dict[str, Array]:
    """The values of ``constants``, checked but for their shapes. Raises ``BadInput`` and ``BadFeed``."""
    known = {buffer.name: buffer.dtype for buffer in program.inputs}
    if strange := sorted(constants.keys() - known.keys()):
        raise BadInput(f"constants= has {', '.join(strange)}; the inputs are {', '.join(known)}")
    for name in known:
        if program.layout(name) and name not in constants:
            raise BadInput(
                f"the schedule stores {name} as `{program.layout(name)}`: give its value, constants={{{name!r}: array}}"
            )
    return {name: _array(name, value, known[name]) for name, value in constants.items()}


def _array(name: str, value: object, dtype: DType) -> Array:
    if not isinstance(value, np.ndarray):
        raise BadFeed(f"constant {name} is {type(value).__name__}; give a NumPy array of {dtype}")
    array = cast(Array, value)
    if array.dtype != dtype.numpy:
        raise BadFeed(f"constant {name} is an array of {array.dtype}; give a NumPy array of {dtype}")
    return array


def target_of(target: Target | str) -> Target:
    """A target, or the one that a text denotes; ``"host"`` is this machine."""
    return target if isinstance(target, Target) else Target.host() if target == "host" else Target.parse(target)


@dataclass(frozen=True, slots=True)
class Origin:
    """The inputs of a kernel's compilation."""

    program: Program
    schedule: TeSchedule | Schedule | Program
    target: Target
    backend: Backend
    image: Image
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Values of inputs, as they were given."""


class Kernel(RunnableModel):
    """A scheduled program as native code: a model of one kernel, with methods to inspect, time and check it."""

    def __init__(self, executable: Executable, origin: Origin) -> None:
        super().__init__(executable, None, lambda: InMemory.of(_parts(executable, origin), executable.threads))
        self.origin = origin

    @cached_property
    def llvm(self) -> str:
        """The kernel as LLVM IR before optimization; for another back end, its code."""
        return self._listing(Stage.LLVM)

    @cached_property
    def asm(self) -> str:
        """The kernel as assembly of its target."""
        return self._listing(Stage.ASM)

    def _listing(self, stage: Stage) -> str:
        return self.origin.backend.listing(self.origin.program, self.origin.target, stage)

    @checked(BadInput)
    def time(
        self,
        *inputs: object,
        repeats: Annotated[int, Within(1, 10_000)] = 10,
        least_seconds: Annotated[float, Within(0, 10)] = 0.01,
        seed: int = 0,
    ) -> float:
        """Seconds of a call: the median of ``repeats`` means over as many calls as take ``least_seconds``.

        It uses the tuner's clock (``measure.clock``), in native code, next to a small reference kernel that detects
        changes of the machine's speed, after which the timing is repeated. Each thread is pinned to a processor of its
        own, unless this process may use fewer processors than the kernel has threads. ``inputs``: by default random
        ones by ``seed``. Raises ``BadInput`` for run-time extents and for code that does not run here, ``BadFeed`` for
        inputs that do not fit.
        """
        if self.executable.manifest.symbols:
            raise BadInput("its shapes have run-time extents: what is timed has fixed ones; build it for some")
        if self.origin.backend != CPU:
            raise BadInput(f"only what {CPU.name} makes is timed, not what {self.origin.backend.name} does")
        feeds = accepted(self.inputs, self.by_name(inputs)) if inputs else self._random({}, seed)
        timed = Timed(self.executable, {name: aligned_copy(array) for name, array in feeds.items()})
        timed.sample(Timing(1, 0), 0)  # one run starts the workers, which are pinned next
        with shared_pool().pinned(processors_for(self.executable.threads)):
            times = _clock().time(timed, Timing(repeats, least_seconds), _MOST_SECONDS)
        return median(times.times_us) * 1e-6

    @checked(BadInput)
    def check(self, seed: int = 0, dims: Mapping[str, int] | None = None) -> Mapping[str, Difference]:
        """The error of the outputs for random inputs against the program's semantics: 0, or rounding of reordered sums.

        The reference is the loop interpreter for small programs, and the tensor expression, evaluated with NumPy, for
        large ones. ``dims`` gives run-time extents. Raises ``NotEquivalent`` for a wrong output, with its first wrong
        element, and ``ResourceLimit`` for a large program of which only the loops are known.
        """
        feeds = self._random(dims or {}, seed)
        expected = meaning(self.origin.schedule, {**feeds, **self._constants()}, dims or {})
        found = zip(self.outputs, self.run(None, feeds), strict=True)
        return {spec.name: _compared(spec.name, array, expected[spec.name]) for spec, array in found}

    def _constants(self) -> Mapping[str, Array]:
        """As the program takes them that ``meaning`` looks at: the naive one, if it is known."""
        origin = self.origin
        is_naive = isinstance(origin.schedule, TeSchedule)
        return origin.constants if is_naive else stored_by(origin.program, origin.constants)

    def _random(self, dims: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Raises ``BadInput`` for run-time extents missing in ``dims``."""
        missing = [s.name for s in self.executable.manifest.symbols if s.value is None and s.name not in dims]
        if missing:
            raise BadInput(f"dims= gives no {', '.join(missing)}: random inputs need all run-time extents")
        generator = np.random.default_rng(seed)
        return {spec.name: random_array(spec.dtype, spec.concrete(dims), generator) for spec in self.inputs}

    @checked(BadInput)
    @memory_guarded("an artifact was saved")
    def save(
        self, path: FilePath, *, signed: bool = True, key: FilePath | None = None, settings: Settings | None = None
    ) -> None:
        """Write an artifact that ``tilewright.load`` runs without the compiler; see ``CompiledModel.save``."""
        if not self.origin.image.objects:
            raise Unsupported(f"the back end {self.origin.backend.name} makes nothing that can be saved")
        parts = _parts(self.executable, self.origin)
        secret = None if key is None else artifact.SecretKey(key)
        artifact.save(parts, path, (settings or Settings.from_environment()).key_dir, signed=signed, key=secret)


def _parts(executable: Executable, origin: Origin) -> artifact.Artifact:
    """The contents of a kernel's artifact."""
    target = origin.target
    made = artifact.Build(__version__, None, str(target), target.platform, target.features)
    return artifact.Artifact(made, executable.manifest, origin.image.objects, executable.constants)


@cache
def _clock() -> Clock:
    return Clock(Target.host())


def _compared(name: str, found: Array, expected: Array) -> Difference:
    """Raises ``NotEquivalent``."""
    reference, most = Reference.of(expected), tolerance(dtypes.from_numpy(expected.dtype))
    difference = reference.difference(found)
    if difference.worst <= most:
        return difference
    with np.errstate(all="ignore"):
        far = np.abs(found.astype(np.float64) - reference.values) > most * reference.largest
    wrong = far | (np.isfinite(found) != reference.finite)
    places = np.argwhere(wrong if wrong.any() else found != expected)
    at = tuple(int(i) for i in places[0])
    raise NotEquivalent(
        name,
        f"{name}[{', '.join(map(str, at))}] is {found[at]}, not {expected[at]}; "
        f"{len(places)} of {expected.size} elements differ, by {difference.worst:.1e} of the largest",
    )
