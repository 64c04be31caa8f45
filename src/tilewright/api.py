"""``compile``: compiles a model with given options to a ``CompiledModel``."""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from tilewright import __version__
from tilewright.backend.api import Backend
from tilewright.backend.choice import backend as backend_of
from tilewright.backend.cpu.backend import CPU
from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.checks import Checks
from tilewright.base.errors import (
    BadArtifact,
    BadInput,
    InternalError,
    InvalidModel,
    TilewrightError,
    Unsupported,
    UnsupportedOperator,
)
from tilewright.base.events import Event, Listener, ignore, to_log
from tilewright.base.files import stamp as stamp_of
from tilewright.base.garbage import seldom_collecting
from tilewright.base.handed import Handed
from tilewright.base.memory import give_back, memory_guarded
from tilewright.base.names import nearest, readable, shown
from tilewright.base.numerics import Math, Precision
from tilewright.base.printing import printer
from tilewright.base.settings import Settings
from tilewright.base.sizes import parse_size
from tilewright.base.store import Store
from tilewright.base.superopt import Superopt
from tilewright.compilation import Compiled, Options, Services
from tilewright.driver import compile_taken
from tilewright.frontend.api import Examples, FrontEnd, Source
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.opening import opened
from tilewright.graph import Graph
from tilewright.graph.remade import without_numbers
from tilewright.insight.faults import note_of
from tilewright.insight.repro import Request
from tilewright.interface import input_spec
from tilewright.isolation import Asked as IsolatedRequest
from tilewright.isolation import Isolation, compile_elsewhere
from tilewright.model import CompiledModel, Made, Origin
from tilewright.model_cache import Asked, ModelCache
from tilewright.offload.accelerator import Accelerator, devices
from tilewright.offload.library.choice import LibraryChoice
from tilewright.passes.alternatives import Alternative, known
from tilewright.passes.parts import Place, bodies_of, is_cut, parts
from tilewright.runtime.abi import MAX_THREADS
from tilewright.runtime.artifact import Artifact, Build
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.sizing import default_threads
from tilewright.specialize import ASKED, Dynamic, Sizes, SpecializingModel
from tilewright.staged import StagedModel, Whole, Work, calls_python
from tilewright.superopt.prove.trust import given_rules, installed_rules
from tilewright.target.target import Target
from tilewright.tune.recorded import Recorded, recorded, stamp

if TYPE_CHECKING:
    from tilewright.offload.splitting import Splitting

_LOG = logging.getLogger("tilewright")

MOST_EXTENT = 1 << 62
"""Maximum of a dimension: the range of native counters, with a margin."""


@checked(BadInput)
@memory_guarded("the model was compiled")
def compile(
    model: object,
    *,
    example_inputs: object = None,
    dynamic_shapes: object = None,
    shapes: Mapping[str, Iterable[int | str]] | None = None,
    bounds: Mapping[str, Annotated[int, Within(0, MOST_EXTENT)]] | None = None,
    dynamic: Dynamic | str = Dynamic.AUTO,
    math: Math | str = Math.DEFAULT,
    precision: Precision | str = Precision.FP32,
    memory_limit: int | str | None = None,
    superopt: Superopt | str = Superopt.OFF,
    checks: Checks | str = Checks.ON,
    target: Target | str = "host",
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None,
    backend: Backend | str = CPU,
    accelerator: Accelerator | str | None = None,
    library: LibraryChoice | str | None = None,
    isolate: Isolation | bool = False,
    frontends: Sequence[FrontEnd] = (),
    operators: Sequence[OnnxOperator] = (),
    alternatives: Sequence[Alternative] = (),
    rules: FilePath | Sequence[FilePath] = (),
    settings: Settings | None = None,
    listener: Listener = ignore,
) -> CompiledModel:
    """Compile a model for this machine or another ``target``.

    ``model``: an ONNX model (a path, the bytes of a file, a file open for reading bytes such as ``io.BytesIO``, or a
    ``ModelProto``), or a program of PyTorch (a module in evaluation mode, or an ``ExportedProgram``).

    ``frontends`` import models of other formats, and take precedence; ``operators`` define operators of other domains;
    ``alternatives`` are algorithms for single operators, chosen where they are estimated or measured to be faster, like
    the built-in ones; ``rules``: one or several files of rules, applied wherever they match, or with ``superopt`` where
    the search rates them as faster (proofs in them are replayed). All of these are also loaded from installed packages
    (``base.plugins``, ``docs/extending.md``).

    ``example_inputs``: for a module of PyTorch, inputs to trace it with: a tensor, a tuple of positional ones, or a
    mapping by name. ``dynamic_shapes``: its open dimensions, as ``torch.export.export`` takes them, or by name:
    ``{"x": {0: "batch"}}``. Its weights are those at the time of the call (``docs/pytorch.md``).

    ``shapes``: shapes of inputs by name; ``bounds``: upper bounds of dimensions known only at run time, by name.
    ``dynamic``: one model for all sizes of these, or a version for each size (a ``SpecializingModel``). ``math``:
    rounding errors allowed, which decide what algorithms may be used; ``precision``: ``"bf16"`` or ``"f16"`` stores
    values between kernels, and weights, in 16 bits (``base.numerics``, ``docs/precision.md``). ``memory_limit``:
    maximum memory for packed weights and workspace together, in bytes or as ``"512MiB"``; algorithms that need more are
    not used, starting with those that save least time per byte. ``superopt``: effort of the search for an equivalent,
    faster graph by proven rules (``base.superopt``). ``checks``: an out-of-range index in input data makes runs raise
    ``IndexOutOfRange``, or with ``"off"`` the nearest valid one is used (``base.checks``). ``threads``: maximum per
    call; by default all that this process may use. ``backend``: a back end, or its name (``backend.choice``); only
    models of ``"cpu"`` can be saved and are cached. ``accelerator``: computes parts of a quantized model, as
    ``"vta,large,always"`` (``offload.accelerator``, ``docs/two-devices.md``); ``backend="vta,large,always"`` is the
    same. ``library``: ``"onednn"``, a library from a wheel, computes convolutions and products where it is measured to
    be faster (``offload.library``). ``isolate``: compile in a separate process with time and memory limits
    (``isolation``), for untrusted models; ``explain`` and ``compare`` are then unavailable. ``listener`` gets progress
    events (``base.events``).

    Models compiled before are loaded from a cache (``model_cache``), which verifies them.

    Raises ``BadInput`` if no front end accepts the input, ``InvalidModel`` for a malformed model, ``UnsupportedModel``
    if it can't be compiled; both name the node and a remedy. ``ResourceLimit`` if the model does not fit in
    ``memory_limit``, or compiling exhausts the memory. ``InternalError`` is a fault of Tilewright; its note has the
    path of a bundle that reproduces it.
    """
    chosen = settings or Settings.from_environment()
    given = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    wanted = chosen.num_threads if threads is None else threads
    policies = (Math.named(math), _memory_limit(memory_limit), Superopt.named(superopt), Checks.named(checks))
    both = _both(to_log(_LOG), listener)
    of_host, device = devices(backend, accelerator)
    wanted_target, made_by = _target(target, chosen, both), backend_of(of_host)
    asked_rules = [rules] if isinstance(rules, str | os.PathLike) else rules
    proofs = Store.open(chosen, both)
    files_of_rules = (*given_rules(asked_rules, proofs), *installed_rules(proofs))
    options = Options(
        wanted_target,
        wanted,
        bounds or {},
        chosen.bounds_check,
        *policies,
        made_by,
        known(alternatives),
        files_of_rules,
        Precision.named(precision),
    )
    models = ModelCache.open(chosen, both)
    given_examples = example_inputs is not None or dynamic_shapes is not None
    examples = Examples(example_inputs, dynamic_shapes) if given_examples else None
    source = opened(model, frontends, operators, examples=examples)
    splitting = _splitting(device, library, options)
    compilation = _Compilation(source, options, chosen, listener, models, splitting)
    _refuse_unknown(compilation.source, given, options.bounds)
    way = Dynamic.named(dynamic)
    if splitting is not None and (isolate or options.backend != CPU):
        raise BadInput(
            "accelerator= and library= split a model between native code of this process and other code: leave "
            "isolate= and backend= out"
        )
    if isolate:
        if frontends or operators or alternatives or rules:
            raise BadInput(
                "isolate= starts a process, which knows only what is installed: install yours, or leave it out"
            )
        if options.backend != CPU:
            raise BadInput(f"isolate= makes code for CPUs: leave it out, or backend={options.backend.name}")
        limits = isolate if isinstance(isolate, Isolation) else Isolation()
        return compilation.elsewhere(given, way, limits)
    model = compilation.here(given, way)
    give_back()
    return model


Shapes = Mapping[str, tuple[int | str, ...]]

_WHOLE = Place()
"""The model itself."""

_TRIED = (64, 1, 7, 224, 1024, 16384)
"""Sizes for a trial whether a model can be compiled at all. Small ones lie within tables of positions; large ones
are more than windows reach over, one after the other: convolutions over samples of sound."""


@dataclass(frozen=True, slots=True)
class _Compilation:
    """The parameters of a compilation that do not depend on shapes."""

    source: Source
    options: Options
    settings: Settings
    listener: Listener
    models: ModelCache | None
    splitting: "Splitting | None" = None

    def here(self, shapes: Shapes, way: Dynamic) -> CompiledModel:
        """The model compiled in this process."""
        if way is Dynamic.SPECIALIZE:
            return self.specializing(shapes, ASKED) or self.run(shapes)
        asked = self.ask(shapes)
        found = self.recall(asked, shapes)
        if found is not None:
            return found
        try:
            graph = Handed(self.load(shapes))
        except (InvalidModel, Unsupported) as error:
            if way is Dynamic.SYMBOLIC:
                raise
            return self.instead(error, shapes, self.load)
        try:
            return self.finish(graph, shapes, asked)
        except Unsupported as error:
            if way is Dynamic.SYMBOLIC:
                raise
            return self.instead(error, shapes, self.run)

    def run(self, shapes: Shapes) -> CompiledModel:
        """The model compiled for ``shapes``, or loaded from the cache."""
        asked = self.ask(shapes)
        return self.recall(asked, shapes) or self.finish(Handed(self.load(shapes)), shapes, asked)

    def ask(self, shapes: Shapes) -> Asked | None:
        """The request to the cache of models; None without a cache, if it is split, and if stages are printed."""
        if self.models is None or self.settings.print_stages or self.options.backend != CPU or self.splitting:
            return None
        return self.models.ask(self.source, self.options, shapes, stamp(self.settings.records))

    def recall(
        self, asked: Asked | None, shapes: Shapes, entry: Asked | None = None, place: Place = _WHOLE
    ) -> CompiledModel | None:
        """The model from the cache, if it is there; with ``entry`` and ``place``, a part of it."""
        parts = None if self.models is None or asked is None else self.models.find(entry or asked)
        if asked is None or parts is None:
            return None
        try:
            executable = NativeExecutable(parts.manifest, parts.objects, parts.constants, threads=self.options.threads)
        except BadArtifact as error:
            _LOG.warning("the model is compiled again, as what the cache has of it can't be used: %s", error)
            return None
        again = self._again(asked.key, shapes, place)
        origin = Origin(self.source, self.options, self._kernels(), again, None, is_cached=True)
        return CompiledModel(executable, parts, origin)

    def elsewhere(self, shapes: Shapes, way: Dynamic, limits: Isolation) -> CompiledModel:
        """The model compiled in a separate process."""
        if way is Dynamic.SPECIALIZE:
            raise BadInput("isolate= makes one model, and dynamic='specialize' one for each size; leave one out")
        asked = IsolatedRequest(self.source, shapes, self.options, self.settings)
        answer = compile_elsewhere(asked, limits, _both(to_log(_LOG), self.listener))
        parts = answer.parts
        executable = NativeExecutable(parts.manifest, parts.objects, parts.constants, threads=self.options.threads)

        def again() -> Made:
            raise BadInput("compiled in a process of its own; compile the model without isolate= to see how it is made")

        origin = Origin(self.source, self.options, self._kernels(), again, None, is_cached=answer.cached)
        return CompiledModel(executable, parts, origin)

    def _sha256(self, asked: Asked | None) -> str | None:
        """The SHA-256 of the model without other files; ``asked``: its request to the cache."""
        return self.source.sha256() if asked is None else asked.source

    def _identity(self, asked: Asked | None, source: str | None) -> object:
        """What changes if the model does, ``source`` being its ``_sha256``; None if that is unknown."""
        if asked is not None:
            return asked.key
        try:
            return None if source is None else (source, *(stamp_of(path.stat()) for path in self.source.files()))
        except OSError:
            return None

    def _unchanged(self, identity: object, shapes: Shapes, place: Place) -> Graph:
        """The graph of a model, or of a part, that was compiled before. Raises ``BadInput`` if it has changed since."""
        asked = self.ask(shapes)
        if self._identity(asked, self._sha256(asked)) != identity:
            raise BadInput("the model has changed since it was compiled; compile it again to see how it was made")
        return place.of(self.load(shapes))

    def _again(self, identity: object, shapes: Shapes, place: Place) -> Callable[[], Made]:
        """Compiles such a model again, and keeps all numbers."""
        return lambda: self._make(Handed(self._unchanged(identity, shapes, place)), shapes)

    def load(self, shapes: Shapes) -> Graph:
        """The imported graph; with an accelerator or a library, split."""
        with self._faults_reported(shapes), seldom_collecting():
            graph = self.source.load(shapes, self.options.bounds, self.settings.model_bytes)
            if self.splitting is None:
                return graph
            with self._tuned() as tuned:
                services = Services(self._kernels(), listener=self.listener, tuned=tuned)
                return self.splitting.split(graph, self.options, services)

    def finish(self, graph: Handed[Graph], shapes: Shapes, asked: Asked | None, place: Place = _WHOLE) -> CompiledModel:
        """``graph`` compiled, and stored in the cache; in stages, if some nodes run between native parts.

        ``place``: of the graph, if it is a part of the model.
        """
        if is_cut(graph.value) or (self.splitting is not None and place == _WHOLE):
            return self._staged(graph.take(), shapes, asked, place)
        source = self._sha256(asked)
        identity = self._identity(asked, source)
        entry = None if asked is None else self._entry(asked, graph.value, place)
        made = self._make(graph, shapes, identity, place)
        executable, target = made.compiled.executable, self.options.target
        build = Build(__version__, source, str(target), target.platform, target.features)
        parts = Artifact(build, executable.manifest, made.compiled.objects, executable.constants)
        if self.models is not None and entry is not None:
            self.models.keep(entry, parts)
        origin = Origin(self.source, made.compiled.options, self._kernels(), lambda: made, made)
        return CompiledModel(executable, parts, origin)

    def _staged(self, graph: Graph, shapes: Shapes, asked: Asked | None, place: Place) -> CompiledModel:
        """The model in stages, whose parts are cached one by one."""
        work: list[Work] = []
        for number, step in enumerate(parts(graph)):
            bodies = [(body, place.inside(number, at)) for at, body in enumerate(bodies_of(step))]
            work.append(Work(step, tuple(self._part(body, shapes, asked, there) for body, there in bodies)))
        called = dict.fromkeys(node.op.name for node in graph.nodes if calls_python(node))
        if called:
            names = ", ".join(called)
            _LOG.warning("Python functions compute nodes of the operators %s, between native parts", names)
        whole = Whole(graph, self.options, self.source, work)
        return StagedModel(whole) if self.splitting is None else self.splitting.model(whole)

    def _part(self, part: Graph, shapes: Shapes, asked: Asked | None, place: Place) -> CompiledModel:
        """A part of a model in stages, compiled or loaded from the cache."""
        entry = None if asked is None or is_cut(part) else self._entry(asked, part, place)
        found = None if entry is None else self.recall(asked, shapes, entry, place)
        return found or self.finish(Handed(part), shapes, asked, place)

    def _entry(self, asked: Asked, graph: Graph, place: Place) -> Asked:
        """What the cache is asked for a model, or for its part at ``place``."""
        return asked.part(f"{place.path}\n{graph}") if place.path else asked

    def _make(self, graph: Handed[Graph], shapes: Shapes, identity: object = None, place: Place = _WHOLE) -> Made:
        """The graph compiled, and itself; both without the numbers of weights if these can be had again, by what
        ``identity`` stands for (``_unchanged``)."""
        imported, again = graph.value, None
        if identity is not None:
            imported = without_numbers(imported, lambda: self._unchanged(identity, shapes, place))
            again = partial(self._compiled_again, identity, shapes, place)
        with self._faults_reported(shapes), seldom_collecting(), self._tuned() as tuned:
            services = Services(self._kernels(), printer(self.settings), self.listener, tuned, again)
            return Made(imported, compile_taken(graph, self.options, services))

    def _compiled_again(self, identity: object, shapes: Shapes, place: Place) -> Compiled:
        return self._again(identity, shapes, place)().compiled

    def _tuned(self) -> AbstractContextManager[Recorded | None]:
        """The records of measurements."""
        options = self.options
        threads, listener = options.threads or default_threads(), _both(to_log(_LOG), self.listener)
        return recorded(self.settings.records, options.target, threads, listener)

    def _kernels(self) -> Store | None:
        return Store.open(self.settings, to_log(_LOG))

    @contextmanager
    def _faults_reported(self, shapes: Shapes) -> Generator[None]:
        """Adds a note with the path of a bundle to internal errors; running out of memory is none."""
        try:
            with memory_guarded("the model was compiled"):
                yield
        except Exception as error:
            if isinstance(error, TilewrightError) and not isinstance(error, InternalError):
                raise
            note = note_of(error, self.source, Request.of(self.options, shapes), self.settings)
            if isinstance(error, InternalError):
                error.add_note(note)
                raise
            fault = InternalError(f"{type(error).__name__}: {error}")
            fault.add_note(note)
            raise fault from error

    def instead(self, error: TilewrightError, shapes: Shapes, attempt: Callable[[Shapes], object]) -> CompiledModel:
        """The model specialized for each size, after ``error`` in compiling it for symbolic sizes.

        Raises ``error`` if the sizes are not its cause: if ``attempt`` also fails for fixed sizes.
        """
        model = self.specializing(shapes, str(error))
        if isinstance(error, UnsupportedOperator) or model is None:
            raise error
        if not self._is_possible(model, shapes, attempt, str(error)):
            raise error
        _LOG.warning("a version is compiled for each size of the inputs: %s", error)
        return model

    def specializing(self, shapes: Shapes, reason: str) -> SpecializingModel | None:
        """A model that compiles a version for each size of its inputs; None if all sizes are fixed."""
        inputs = [input_spec(value) for value in self.source.inputs(shapes)]
        if all(spec.static_shape is not None for spec in inputs):
            return None

        def make(sizes: Sizes) -> CompiledModel:
            known = dict(sizes)
            model = self.run({**shapes, **{spec.name: spec.concrete(known) for spec in inputs}})
            give_back()
            return model

        return SpecializingModel(inputs, self.options, reason, make)

    def _is_possible(
        self, model: SpecializingModel, shapes: Shapes, attempt: Callable[[Shapes], object], fault: str
    ) -> bool:
        """Whether it can be compiled at a size on trial. A fault that is seen twice is not one of sizes.

        ``fault``: that without sizes.
        """
        seen = {fault}
        names = dict.fromkeys(extent for spec in model.inputs for extent in spec.shape if isinstance(extent, str))
        for size in _TRIED:
            sizes = {name: min(size, self.options.bounds.get(name, size)) for name in names}
            try:
                attempt({**shapes, **{spec.name: spec.concrete(sizes) for spec in model.inputs}})
            except (BadInput, Unsupported) as error:
                if str(error) in seen:
                    return False
                seen.add(str(error))
            else:
                return True
        return False


def _splitting(
    accelerator: Accelerator | None, library: LibraryChoice | str | None, options: Options
) -> "Splitting | None":
    """What splits the model, if anything does: only that loads it."""
    if accelerator is None and library is None:
        return None
    from tilewright.offload.splitting import Splitting

    return Splitting.asked(accelerator, library, options)


def _refuse_unknown(source: Source, shapes: Shapes, bounds: Mapping[str, int]) -> None:
    """Raise ``BadInput`` for a bound whose name is no dimension of an input, in the model or in ``shapes``."""
    known: list[str] = []
    as_given: Shapes = {}
    for given in (shapes, as_given) if bounds else ():
        specs = map(input_spec, source.inputs(given))
        known += [extent for spec in specs for extent in spec.shape if isinstance(extent, str)]
        if bounds.keys() <= set(known):
            return
    unknown = next((name for name in bounds if name not in known), None)
    if unknown is not None:
        there = ", ".join(map(readable, nearest(unknown, known) or dict.fromkeys(known))) or "none"
        raise BadInput(f"bounds= names {shown(unknown)}; the dimensions known at run time only are {there}")


def _both(first: Listener, second: Listener) -> Listener:
    """A listener that passes events to both."""

    def listen(event: Event) -> None:
        first(event)
        second(event)

    return listen


def _memory_limit(given: int | str | None) -> int | None:
    """The limit in bytes. Raises ``BadInput``."""
    limit = parse_size(given) if isinstance(given, str) else given
    if given is not None and (limit is None or limit < 0):
        raise BadInput(f"memory_limit={shown(given)}: give a number of bytes, such as 536870912 or 512MiB")
    return limit


def _target(target: Target | str, settings: Settings, listener: Listener) -> Target:
    if isinstance(target, Target):
        return target
    return Target.host(settings, listener) if target == "host" else Target.parse(target)
