"""The stages of a compilation; ``driver`` adds the search for a better graph."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tilewright import interface
from tilewright.backend.api import Backend, Code, Emission, Image
from tilewright.backend.cpu.backend import CPU
from tilewright.backend.cpu.image import main_for
from tilewright.base.checks import Checks
from tilewright.base.dtypes import DType
from tilewright.base.errors import ResourceLimit, Unsupported, UnsupportedKernel, UnsupportedModel
from tilewright.base.events import Advanced, Listener, ignore
from tilewright.base.handed import Handed
from tilewright.base.numerics import Math, Precision
from tilewright.base.remedies import by_bounds
from tilewright.base.settings import Stage
from tilewright.base.store import Cache, Store
from tilewright.base.superopt import Superopt
from tilewright.cost.few_rows import few_rows
from tilewright.graph import Array, Graph, Value, verify
from tilewright.graph.remade import without_numbers
from tilewright.loops.positions import with_checks
from tilewright.loops.program import Program, with_constants
from tilewright.ops import Trait
from tilewright.passes.alternatives import BUILT_IN, Alternative, expand, facts_of
from tilewright.passes.attention import recognize_attention
from tilewright.passes.choose import Choices, choose, usual_growth
from tilewright.passes.choose_parts import choose_parts
from tilewright.passes.flat_rows import flatten_rows
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import Kernel, Lowering
from tilewright.passes.main_program import Step, main_program
from tilewright.passes.normalize import eliminate_dead_code, normalize
from tilewright.passes.parts_of_batches import Parted, in_parts
from tilewright.passes.quantized import raise_quantized
from tilewright.passes.recognize import recognize
from tilewright.passes.rules import ALGEBRA, load_rules, rewrite
from tilewright.passes.rules.given import RuleFile
from tilewright.passes.scheduled import ScheduledKernel, Variant
from tilewright.passes.shared_weights import share_weights
from tilewright.passes.sources import sizes_named, source_of, unsupported
from tilewright.passes.stored_constants import Stored, bytes_of, stored_arrays, used_constants
from tilewright.passes.weights import keep_weights
from tilewright.passes.widen import widen
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.memory import aligned_array
from tilewright.schedule.index_map import IndexMap
from tilewright.superopt.search.result import Applied, LeftOut
from tilewright.symbolic.expr import ZERO, equal, given_name
from tilewright.symbolic.traversal import all_of
from tilewright.target.target import Target
from tilewright.tune.recorded import Recorded
from tilewright.tune.untuned import schedule
from tilewright.tune.ways import times_of

Watch = Callable[[Stage, object], None]
"""Called with each stage and its result, for printing and timing."""


def _unwatched(stage: Stage, made: object) -> None:
    """The default watcher of stages, which does nothing."""


@dataclass(frozen=True, slots=True)
class Services:
    """Optional services, which do not change the results of the model.

    ``cache``: object code of earlier compilations; ``watch`` and ``listener`` are called with stages and with progress;
    ``tuned``: schedules from records of measurements; ``again``: compiles the same once more, so that the result need
    not keep the arrays of constants that do not run (``Compiled.without_numbers``).
    """

    cache: Store | None = None
    watch: Watch = _unwatched
    listener: Listener = ignore
    tuned: Recorded | None = None
    again: "Callable[[], Compiled] | None" = None


ALONE = Services()
"""No services."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a compilation. ``threads``: None for all; ``bounds``: upper bounds of run-time extents, by name.

    ``memory_limit``: maximum bytes of packed weights and workspace together; None for no limit. ``superopt``: effort of
    the search for a better graph. ``checks``: of indices in input data. ``backend``: compiles and runs kernels.
    ``alternatives``: algorithms to choose among, for each node. ``rules``: given by users, for ``superoptimizer``.
    ``precision``: of values between kernels.
    """

    target: Target
    threads: int | None = None
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    checked: bool = False
    math: Math = Math.DEFAULT
    memory_limit: int | None = None
    superopt: Superopt = Superopt.OFF
    checks: Checks = Checks.ON
    backend: Backend = CPU
    alternatives: tuple[Alternative, ...] = BUILT_IN
    rules: tuple[RuleFile, ...] = ()
    precision: Precision = Precision.FP32


@dataclass(frozen=True, slots=True)
class Compiled:
    """All results of a compilation. ``objects``: the code that ``executable`` runs."""

    executable: Executable
    objects: tuple[bytes, ...]
    graph: Graph
    main: Program
    kernels: tuple[ScheduledKernel, ...]
    options: Options
    layouts: Mapping[Value, IndexMap]
    """The layouts of those values of ``graph`` that are not row-major."""
    copies: Mapping[str, str]
    """The model's names of values, by the names of their copies in other layouts or shapes."""
    choices: Choices
    """The algorithm of each node, and its alternatives."""
    applied: tuple[Applied, ...] = ()
    """The rules that the search applied (``superoptimizer``), in order."""
    left_out: tuple[LeftOut, ...] = ()
    """The rules that ``options.math`` left out, where they match."""

    def name_in_model(self, name: str) -> str:
        """The model's name of the value ``name`` of ``graph``."""
        return self.copies.get(name, name)

    def without_numbers(self, again: "Callable[[], Compiled]") -> "Compiled":
        """The same, without the arrays of large constants, except those that run.

        They are made once more when one is read: by ``again``, which compiles the same.
        """
        choices = self.choices.without_numbers(lambda: again().choices)
        return replace(self, graph=without_numbers(self.graph, lambda: again().graph), choices=choices)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that is computed only when printed."""

    write: Callable[[], str]

    def __str__(self) -> str:
        return self.write()


@dataclass(frozen=True, slots=True)
class _Planned:
    """All decisions about a model, and its code as LLVM IR: the input of the final stage."""

    choices: Choices
    laid_out: LaidOut
    kernels: tuple[ScheduledKernel, ...]
    stored: Mapping[Value, Stored]
    """The constants as kernels read them."""
    arrays: dict[Value, Array]
    """The constants that these are made of; the final stage takes them out."""
    main: Program
    code: Code

    @property
    def weight_bytes(self) -> int:
        """Bytes of the constants as stored."""
        return sum(map(bytes_of, self.stored))

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of the constants in the graph."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def bytes(self) -> int:
        """Bytes of constants and workspace, without workspace that depends on run-time extents."""
        return self.weight_bytes + self.code.needs.workspace_bytes


def prepare(graph: Graph, watch: Watch = _unwatched, math: Math = Math.DEFAULT) -> Graph:
    """``graph`` normalized, with composite operators, and with all rules applied that always reduce work.

    Unless ``math`` is strict, what it computes in 16-bit floats is computed in f32.
    """
    watch(Stage.GRAPH, graph)
    graph = graph if math is Math.STRICT else widen(graph)
    graph = normalize(keep_weights(graph), kept=Trait.WIDENS)
    watch(Stage.NORMALIZE, graph)
    if any(node.op.has(Trait.WIDENS) for node in graph.nodes):
        graph = normalize(eliminate_dead_code(raise_quantized(graph)))  # before what nobody reads any more is folded
    graph = eliminate_dead_code(recognize(graph))
    watch(Stage.RECOGNIZE, graph)
    graph = rewrite(graph, load_rules(ALGEBRA))
    watch(Stage.ALGEBRA, graph)
    return graph


def compile_prepared(graph: Graph, options: Options, services: Services = ALONE) -> Compiled:
    """Compile a graph that ``prepare`` returned.

    Raises ``UnsupportedModel`` naming the nodes that can't be compiled for ``options.target``, ``ResourceLimit`` if the
    model does not fit in ``options.memory_limit``.
    """
    return compile_handed(Handed(graph), options, services)


def compile_handed(graph: Handed[Graph], options: Options, services: Services = ALONE) -> Compiled:
    """The same for a graph that the caller hands over: see ``driver.compile_taken``."""
    options = replace(options, bounds=interface.bounds_of(graph.value, options.bounds))
    planned = _plan_within_limit(Handed(share_weights(graph.take())), options, services)
    laid_out, main = planned.laid_out, planned.main
    image = planned.code.link(services.cache, services.listener)
    limits = interface.limits_of(laid_out.graph, main.dims)
    policies = (options.math, options.checks, options.precision)
    values = (laid_out.graph.inputs, laid_out.graph.outputs, list(planned.stored))
    manifest = interface.manifest(*values, main.dims, image.needs, limits, *policies)
    executable = image.launch(manifest, stored_arrays(planned.stored, planned.arrays, aligned_array), options.threads)
    made = (executable, image.objects, laid_out.graph, main, planned.kernels, options)
    return Compiled(*made, laid_out.layouts, laid_out.copies, planned.choices)


def decide(graph: Graph, options: Options, services: Services = ALONE, spare: int | None = None) -> Choices:
    """Choose the algorithm of each node of a prepared graph.

    ``spare``: maximum bytes by which alternatives may enlarge weights; None for the usual ones.
    """
    asked, tuned = (options.target, options.math, options.alternatives), services.tuned
    graph = recognize_attention(graph, facts_of(graph, *asked, options.precision))
    graph = expand(graph, facts_of(graph, *asked, options.precision))
    has_times = tuned is not None and tuned.has_ways()
    facts = facts_of(graph, *asked, options.precision)
    times = times_of(graph, facts, tuned.microseconds) if tuned is not None and has_times else None
    spare = usual_growth(graph) if spare is None else spare
    choices = choose(graph, options.target, options.math, spare, times, options.alternatives, options.precision)
    services.watch(Stage.CHOOSE, choices)
    return choices


def transform(choices: Choices, constants: dict[Value, Array], watch: Watch = _unwatched) -> LaidOut:
    """The graph with the chosen algorithms, and the layouts of its values. ``constants``: see ``Choices.apply``."""
    laid_out = choices.apply(constants)
    watch(Stage.LAYOUT, laid_out)
    laid_out = flatten_rows(flatten_reductions(laid_out))
    watch(Stage.FLATTEN, laid_out)
    verify(laid_out.graph)
    return laid_out


def _plan(graph: Handed[Graph], options: Options, services: Services, spare: int | None = None) -> _Planned:
    """The kernels, main program and LLVM IR of a graph. ``spare``: see ``decide``."""
    note, again = services.watch, services.again
    choices = decide(graph.take(), options, services, spare)
    arrays = dict(choices.graph.constants)
    if again is not None:
        choices = choices.without_numbers(lambda: again().choices)
    laid_out = transform(choices, arrays, note)
    groups = fuse(laid_out.graph, laid_out.leaving_blocks, laid_out.layouts)
    note(Stage.FUSE, groups)
    parted = in_parts(laid_out, groups, choose_parts(laid_out, groups, options.target))
    laid_out, groups = replace(laid_out, layouts=parted.laid_out.layouts), parted.groups
    kernels, steps, packed = _schedule_all(parted, options, services)
    others = [variant.kernel for kernel in kernels for variant in kernel.variants]
    by_name = {kernel.program.name: kernel for kernel in (*kernels, *others)}
    note(Stage.LOOPS, {name: _Text(kernel.naive_text) for name, kernel in by_name.items()})
    note(Stage.SCHEDULE, by_name)
    stored = used_constants(laid_out.graph, steps, packed)
    dims = interface.dims_of(laid_out.graph.inputs, options.bounds)
    main = main_program(laid_out.graph, steps, stored, dims, parted.loops)
    note(Stage.MAIN, main)
    programs = [kernel.program for kernel in kernels]
    for stage in (Stage.LLVM, Stage.ASM):
        listings = (partial(options.backend.listing, k.program, options.target, stage) for k in by_name.values())
        note(stage, dict(zip(by_name, map(_Text, listings), strict=True)))
    emission = Emission(
        len(stored),
        options.checked,
        options.checks,
        lambda call, origin: source_of(groups[call], origin),
        variants={kernel.program.name: kernel.variant_programs for kernel in kernels if kernel.variants},
    )
    try:
        code = options.backend.emit(main, programs, options.target, emission)
    except UnsupportedKernel as error:
        group = next(kernel.groups[0] for kernel in kernels if kernel.program.name == error.kernel)
        raise unsupported(group, error.reason, laid_out.graph) from error
    arrays = {one.source: laid_out.graph.constants[one.source] for one in stored.values()}
    if again is not None:
        laid_out = replace(laid_out, graph=without_numbers(laid_out.graph, lambda: again().graph))
    return _Planned(choices, laid_out, tuple(kernels), stored, arrays, main, code)


_ATTEMPTS = 4
"""Maximum plans that are tried for a memory limit, between the fastest and the smallest."""


def _plan_within_limit(graph: Handed[Graph], options: Options, services: Services) -> _Planned:
    """The fastest plan within ``options.memory_limit``: algorithms that need memory are excluded until it fits."""
    limit = options.memory_limit
    if limit is None:
        return _plan(graph, options, services)
    whole = graph.take()  # for several plans
    planned = _plan(Handed(whole), options, services, limit)
    if _fits(planned, limit):
        return planned
    leanest = _plan(Handed(whole), options, services, spare=0)
    if not _fits(leanest, limit):
        workspace = leanest.code.needs.workspace_bytes
        raise ResourceLimit(
            f"the model needs {leanest.bytes} bytes ({leanest.weight_bytes} of weights, {workspace} of workspace), "
            f"and memory_limit={limit}; raise it, or give a smaller batch, shapes= or bounds="
        )
    spare = limit - leanest.bytes
    for _ in range(_ATTEMPTS):
        planned = _plan(Handed(whole), options, services, spare)
        if _fits(planned, limit):
            return planned
        used, excess = planned.unpacked_bytes - leanest.unpacked_bytes, planned.bytes - limit
        spare = used - excess if excess < used else used // 2  # the excess may be workspace
    return leanest


def _fits(planned: _Planned, limit: int) -> bool:
    """Whether the plan is within ``limit`` bytes. Raises ``UnsupportedModel`` if that depends on inputs."""
    if planned.code.needs.more_workspace != ZERO:
        names = [given_name(dim.var) for dim in planned.main.dims if dim.bound is None]
        raise UnsupportedModel(
            f"memory_limit={limit} can't be kept: the workspace depends on {', '.join(names)}, which has no "
            f"upper bound; give {by_bounds(names)}, or shapes="
        )
    return planned.bytes <= limit


def _schedule_all(
    parted: Parted, options: Options, services: Services
) -> tuple[list[ScheduledKernel], list[Step], dict[Value, Stored]]:
    """The kernels (equal groups share one), the calls of main, and the constants that are stored for kernels."""
    kernels: dict[tuple[str, tuple[str, ...]], ScheduledKernel] = {}
    steps: list[Step] = []
    packed: dict[Value, Stored] = {}
    laid_out, groups = parted.laid_out, parted.groups
    lowering = Lowering(laid_out, options.target, options.bounds)
    for position, group in enumerate(groups):
        try:
            kernel = lowering.kernel(group)
        except Unsupported as error:
            raise unsupported(group, str(error), laid_out.graph) from error
        pairs = zip(kernel.program.params, kernel.arguments, strict=True)
        constant = tuple(parameter.name for parameter, value in pairs if value in laid_out.graph.constants)
        # Only what was tuned stores constants otherwise, and so depends on which these are.
        key = (kernel.text, () if services.tuned is None else constant)
        known = kernels.get(key)
        if known is None:
            named = replace(kernel.program, name=f"k{len(kernels)}_{group.name}")
            with sizes_named(group):
                known = _scheduled(named, constant, options.target, services.tuned)
                variants = _variants(known, lowering.single(group, kernel), options.target, services.tuned)
                known = replace(known, variants=variants)
        kernels[key] = known.of(group, parted.times(position))
        arguments: list[Value] = []
        for parameter, plain in zip(kernel.program.params, kernel.arguments, strict=True):
            packings = _packings(plain, kernel, known.program.layout(parameter.name))
            stored = _stored(plain, parameter.dtype, packings, laid_out)
            arguments.append(stored)
            if plain in laid_out.graph.constants and stored != plain:
                packed.setdefault(stored, Stored(plain, packings))
        steps.append(Step(known.program.name, tuple(arguments), kernel.program.outputs))
        services.listener(Advanced("schedule", position + 1, len(groups), known.program.name))
    return list(kernels.values()), steps, packed


def _scheduled(naive: Program, constants: tuple[str, ...], target: Target, tuned: Recorded | None) -> ScheduledKernel:
    """The kernel scheduled by the best record, or by the analytic choice."""
    known = with_constants(naive, constants)
    found = None if tuned is None else tuned.find(known)
    if found is None:
        return ScheduledKernel(naive, schedule(naive, target), (), constants)
    return ScheduledKernel(known, found.schedule, (), constants, found.microseconds, found.simulated)


def _variants(
    kernel: ScheduledKernel, single: Program | None, target: Target, tuned: Recorded | None
) -> tuple[Variant, ...]:
    """What runs instead of ``kernel`` where its run-time extents are small: for a single row ``single``, for few rows
    the schedule without the matrix unit, if there is one for an open number of them."""
    found: list[Variant] = []
    if single is not None:
        apart = replace(single, name=f"{kernel.naive.name}_single")
        all_one = all_of(*(equal(dim.var, 1) for dim in kernel.naive.dims))
        found.append(Variant(_scheduled(apart, kernel.constants, target, tuned), all_one))
    few = few_rows(kernel.naive, kernel.program, target)
    if few is not None:
        apart = replace(kernel.naive, name=f"{kernel.naive.name}_few")
        found.append(Variant(_scheduled(apart, kernel.constants, few.target, None), few.where))
    return tuple(found)


def _packings(value: Value, kernel: Kernel, layout: str) -> tuple[IndexMap, ...]:
    """How a constant is packed for ``kernel``: by its te program, and then as its schedule wants it (``layout``)."""
    own = kernel.packings.get(value)
    return (*(() if own is None else (own,)), *((IndexMap.parse(layout),) if layout else ()))


def _stored(value: Value, dtype: DType, packings: Sequence[IndexMap], laid_out: LaidOut) -> Value:
    """``value`` as stored for a kernel. Constants may have different layouts and dtypes for different kernels."""
    layout = laid_out.layouts.get(value)
    if value in laid_out.graph.constants and (packings or dtype != value.dtype):
        how = ": ".join([*map(str, packings), *([] if dtype == value.dtype else [str(dtype)])])
        shape = value.shape
        for packing in packings:
            shape = packing.shape(shape)
        return Value(f"{value.name}[{how}]", dtype, shape)
    return replace(value, dtype=dtype, shape=value.shape if layout is None else layout.shape(value.shape))


def build_program(
    program: Program,
    target: Target,
    *,
    threads: int | None = None,
    checked: bool = False,
    checks: Checks = Checks.ON,
    cache: Cache | None = None,
) -> Executable:
    """One scheduled loop program as native code: its parameters are the inputs, then the outputs.

    Accesses that are not provably inside of their buffer are checked at run time; with ``checked``, all are. Raises
    ``BadProgram`` for an access that is provably outside, unless ``checked``.
    """
    program = program if checked else with_checks(program)
    made, manifest = program_image(program, target, Emission(checked=checked, checks=checks), cache=cache)
    return made.launch(manifest, threads=threads)


def program_image(
    program: Program,
    target: Target,
    emission: Emission,
    *,
    constants: Collection[str] = (),
    backend: Backend = CPU,
    cache: Cache | None = None,
) -> tuple[Image, Manifest]:
    """One scheduled loop program as compiled code, with its manifest.

    ``constants``: inputs whose values are known when the image is launched, in their order in the program.
    """
    given = tuple(p for p in program.inputs if p.name not in constants)
    known = tuple(p for p in program.inputs if p.name in constants)
    main = replace(main_for(program), params=(*given, *known, *program.results))
    made = backend.emit(main, [program], target, replace(emission, constants=len(known))).link(cache)
    inputs, fixed, outputs = (
        [Value(p.name, p.dtype, p.shape) for p in buffers] for buffers in (given, known, program.results)
    )
    manifest = interface.manifest(inputs, outputs, fixed, program.dims, made.needs, checks=emission.checks)
    return made, manifest
