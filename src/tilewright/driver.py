"""The way of a model, on one page.

graph -> normalize -> recognize -> affine -> winograd -> layout -> flatten -> fuse -> loops -> schedule -> main -> llvm,
asm

The names are those of ``base.settings.Stage``, which ``TILEWRIGHT_PRINT`` takes. What follows is no text: the image
(relocatable objects and what they need) and the executable.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tilewright import interface
from tilewright.base.errors import BadInput, InternalError, Unsupported, UnsupportedKernel, UnsupportedModel
from tilewright.base.events import Advanced, Listener, ignore
from tilewright.base.names import fresh_name, readable
from tilewright.base.settings import Stage
from tilewright.base.store import Store
from tilewright.base.target import Target
from tilewright.codegen import image
from tilewright.cost.analytic import schedule
from tilewright.graph import Array, Graph, Value, verify
from tilewright.kernels.packing import pack
from tilewright.loops.ir import Alloc, Buffer, Call, Callee, Region, Seq, Stmt
from tilewright.loops.program import Program
from tilewright.passes.affine import fold_affine
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import Group, fuse
from tilewright.passes.layout import LaidOut, choose_layouts
from tilewright.passes.lower import Kernel, Lowering
from tilewright.passes.normalize import eliminate_dead_code, normalize
from tilewright.passes.recognize import recognize
from tilewright.passes.winograd import use_winograd
from tilewright.runtime.elsewhere import executable_for
from tilewright.runtime.memory import aligned_array
from tilewright.runtime.model import Executable
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import ZERO

Watch = Callable[[Stage, object], None]
"""Called with each stage and what it made: printing and timing hang on it."""


class Math(Enum):
    """How results may differ from those of the operators computed one by one."""

    STRICT = "strict"
    """By the order of sums only."""
    DEFAULT = "default"
    """By algorithms whose errors stay below 1e-4 of the largest result (Winograd's), too; for finite numbers."""

    @staticmethod
    def named(name: "Math | str") -> "Math":
        """The policy called ``name``. Raises ``BadInput`` if there is none."""
        known = {math.value: math for math in Math}
        found = name if isinstance(name, Math) else known.get(name)
        if found is None:
            raise BadInput(f"math={name!r} is no policy for numbers; there is {', '.join(known)}")
        return found


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose. ``threads``: None for all; ``bounds``: upper bounds of run-time extents, by name."""

    target: Target
    threads: int | None = None
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    checked: bool = False
    math: Math = Math.DEFAULT


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    """A kernel as it is compiled, how it came about, and what of the user's model it computes."""

    naive: Program
    schedule: Schedule
    groups: tuple[Group, ...]

    def __str__(self) -> str:
        return f"{self.program}\n{self.schedule.trace}"

    @property
    def program(self) -> Program:
        return self.schedule.program


@dataclass(frozen=True, slots=True)
class Compiled:
    """Everything that compiling made. ``objects``: the code that ``executable`` runs."""

    executable: Executable
    objects: tuple[bytes, ...]
    graph: Graph
    main: Program
    kernels: tuple[ScheduledKernel, ...]
    options: Options
    layouts: Mapping[Value, IndexMap]
    """How those values of ``graph`` are stored that are not stored row-major."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """The code of a kernel, made only if somebody prints it."""

    program: Program
    write: Callable[[Program], str]

    def __str__(self) -> str:
        return self.write(self.program)


@dataclass(frozen=True, slots=True)
class _Step:
    """One call of main: a kernel's name, and its arguments as they are laid out for it."""

    kernel: str
    arguments: tuple[Value, ...]
    outputs: int


def compile_graph(
    graph: Graph,
    options: Options,
    cache: Store | None = None,
    watch: Watch | None = None,
    listener: Listener = ignore,
) -> Compiled:
    """Compile ``graph``; ``listener`` hears how far it is.

    Raises ``UnsupportedModel`` naming the nodes that can't be compiled for ``options.target``.
    """
    note = watch or _ignore
    note(Stage.GRAPH, graph)
    options = replace(options, bounds=interface.bounds_of(graph, options.bounds))
    graph = normalize(graph)
    note(Stage.NORMALIZE, graph)
    graph = eliminate_dead_code(recognize(graph))
    note(Stage.RECOGNIZE, graph)
    graph = fold_affine(graph)
    note(Stage.AFFINE, graph)
    graph = graph if options.math is Math.STRICT else use_winograd(graph, options.target)
    note(Stage.WINOGRAD, graph)
    laid_out = choose_layouts(graph, options.target)
    note(Stage.LAYOUT, laid_out)
    laid_out = flatten_reductions(laid_out)
    graph = laid_out.graph
    note(Stage.FLATTEN, laid_out)
    verify(graph)
    groups = fuse(graph)
    note(Stage.FUSE, groups)
    kernels, steps, packed = _schedule_all(groups, laid_out, options, listener)
    note(Stage.LOOPS, [kernel.naive for kernel in kernels])
    note(Stage.SCHEDULE, kernels)
    constants = _used_constants(graph, steps, packed)
    main = _main_program(graph, steps, constants, options)
    note(Stage.MAIN, main)
    programs = [kernel.program for kernel in kernels]
    note(Stage.LLVM, [_Listing(program, lambda p: image.kernel_text(p).text) for program in programs])
    note(Stage.ASM, [_Listing(program, lambda p: image.assembly(p, options.target)) for program in programs])
    try:
        made = image.build(
            main,
            programs,
            options.target,
            constants=len(constants),
            cache=cache,
            checked=options.checked,
            listener=listener,
        )
    except UnsupportedKernel as error:
        group = next(kernel.groups[0] for kernel in kernels if kernel.program.name == error.kernel)
        raise UnsupportedModel(f"{_sources(group)}: {error.reason}") from error
    limits = interface.limits_of(graph, main.dims)
    manifest = interface.manifest(graph.inputs, graph.outputs, list(constants), main.dims, made, limits)
    fitting = (options.target.arch.value, options.target.features)
    executable = executable_for(fitting, manifest, made.objects, list(constants.values()), options.threads)
    return Compiled(executable, made.objects, graph, main, tuple(kernels), options, laid_out.layouts)


def _ignore(stage: Stage, made: object) -> None:
    """What is called with each stage if nobody watches."""


def _schedule_all(
    groups: Sequence[Group], laid_out: LaidOut, options: Options, listener: Listener
) -> tuple[list[ScheduledKernel], list[_Step], dict[Value, Array]]:
    """Kernels (equal groups share one), the calls of main, and the constants that were packed for them."""
    kernels: dict[str, ScheduledKernel] = {}
    steps: list[_Step] = []
    packed: dict[Value, Array] = {}
    lowering = Lowering(laid_out, options.target, options.bounds)
    for position, group in enumerate(groups):
        try:
            kernel = lowering.kernel(group)
        except Unsupported as error:
            raise UnsupportedModel(f"{_sources(group)}: {error}") from error
        known = kernels.get(kernel.text)
        if known is None:
            named = replace(kernel.program, name=f"k{len(kernels)}_{group.name}")
            made = schedule(Schedule(named), options.target)
            known = ScheduledKernel(named, made, ())
        kernels[kernel.text] = replace(known, groups=(*known.groups, group))
        arguments = tuple(_stored(value, kernel, laid_out) for value in kernel.arguments)
        for plain, stored in zip(kernel.arguments, arguments, strict=True):
            if plain in kernel.packings and stored not in packed:
                packed[stored] = pack(laid_out.graph.constants[plain], kernel.packings[plain], aligned_array)
        steps.append(_Step(known.program.name, arguments, kernel.program.outputs))
        listener(Advanced("schedule", position + 1, len(groups), known.program.name))
    return list(kernels.values()), steps, packed


def _sources(group: Group) -> str:
    """The nodes of the user's model that a group computes."""
    return ", ".join(dict.fromkeys(node.source or node.op.name for node in group.nodes))


def _stored(value: Value, kernel: Kernel, laid_out: LaidOut) -> Value:
    """``value`` as it lies in memory for ``kernel``. Constants may be stored in several ways, for several kernels."""
    packing, layout = kernel.packings.get(value), laid_out.layouts.get(value)
    if packing is not None:
        return Value(f"{value.name}[{packing}]", value.dtype, packing.shape(value.shape))
    return value if layout is None else replace(value, shape=layout.shape(value.shape))


def _used_constants(graph: Graph, steps: Sequence[_Step], packed: Mapping[Value, Array]) -> dict[Value, Array]:
    known = {**graph.constants, **packed}
    used = dict.fromkeys((*(v for step in steps for v in step.arguments), *graph.outputs))
    return {value: known[value] for value in used if value in known}


def _main_program(graph: Graph, steps: Sequence[_Step], constants: Mapping[Value, Array], options: Options) -> Program:
    """Main: one call per group; what is neither input, constant nor output is allocated."""
    buffers = _buffers(graph, steps, constants)
    taken = {buffer.name for buffer in buffers.values()}
    outputs = list[Buffer]()
    for value in graph.outputs:
        outputs.append(Buffer(fresh_name(f"{readable(value.name)}.out", taken), value.dtype, value.shape))
        taken.add(outputs[-1].name)
    writes = {v: buffer for v, buffer in zip(graph.outputs, outputs, strict=True) if _is_made(v, graph, constants)}
    buffers.update(writes)
    body: Stmt = Seq(tuple(_call(step, buffers) for step in steps))
    given = {*graph.inputs, *constants, *writes}
    for value in reversed([v for v in buffers if v not in given]):
        body = Alloc(buffers[value], body)
    params = (*(buffers[v] for v in graph.inputs), *(buffers[v] for v in constants), *outputs)
    return Program("main", params, body, interface.dims_of(graph.inputs, options.bounds), len(outputs))


def _is_made(value: Value, graph: Graph, constants: Mapping[Value, Array]) -> bool:
    if value in graph.inputs or value in constants:
        raise InternalError(f"output {value.name} is an input or constant: the importer should have copied it")
    return True


def _buffers(graph: Graph, steps: Sequence[_Step], constants: Mapping[Value, Array]) -> dict[Value, Buffer]:
    mentioned = dict.fromkeys((*graph.inputs, *constants, *(v for step in steps for v in step.arguments)))
    buffers: dict[Value, Buffer] = {}
    names = set[str]()
    for value in mentioned:
        buffers[value] = Buffer(fresh_name(readable(value.name), names), value.dtype, value.shape)
        names.add(buffers[value].name)
    return buffers


def _call(step: _Step, buffers: Mapping[Value, Buffer]) -> Call:
    arguments = (buffers[value] for value in step.arguments)
    regions = tuple(Region(b, tuple((ZERO, extent) for extent in b.shape)) for b in arguments)
    return Call(Callee.KERNEL, step.kernel, regions, step.outputs)


def build_program(
    program: Program, target: Target, *, threads: int | None = None, checked: bool = False, cache: Store | None = None
) -> Executable:
    """One scheduled loop program as native code: its parameters are the inputs, then the outputs."""
    made = image.build(image.main_for(program), [program], target, cache=cache, checked=checked)
    values = [Value(p.name, p.dtype, p.shape) for p in program.params]
    count = len(values) - program.outputs
    manifest = interface.manifest(values[:count], values[count:], (), program.dims, made)
    return executable_for((target.arch.value, target.features), manifest, made.objects, threads=threads)
