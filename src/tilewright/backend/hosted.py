"""A base class of back ends whose kernels are called from Python; subclasses define ``write`` and ``load``.

The main program is interpreted, on NumPy arrays. It is slow and minimal: for oracles, for experiments with a code
generator, for devices that are driven from Python.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.backend.api import PLAIN, Emission, Needs, require_fit
from tilewright.backend.cpu.backend import CPU
from tilewright.base.arrays import Array
from tilewright.base.checks import Checks
from tilewright.base.errors import Timeout, Unsupported, UnsupportedKernel
from tilewright.base.events import Advanced, Listener, ignore
from tilewright.base.settings import Stage
from tilewright.base.store import Cache
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Call, Callee, LoopKind, Stmt
from tilewright.loops.memory import Memory
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.native import nanoseconds
from tilewright.target.target import Target

Kernel: TypeAlias = Callable[[Mapping[str, Array], Mapping[str, int]], None]
"""A kernel: reads and writes the arrays of a program's parameters by name, given its run-time extents by name."""


class HostedBackend(ABC):
    """Emits and runs single kernels. ``name``: that of ``compile(backend=)``.

    ``memories`` and ``loop_kinds`` are by default those of CPUs. ``checks_accesses``: whether kernels support checks of
    each access (``TILEWRIGHT_BOUNDS_CHECK``).
    """

    name: str
    memories: Mapping[str, Memory] = CPU.memories
    loop_kinds: frozenset[LoopKind] = CPU.loop_kinds
    checks_accesses: bool = False

    @abstractmethod
    def write(self, program: Program, target: Target) -> str:
        """The code of a scheduled kernel. Raises ``Unsupported``, with the reason, for unsupported constructs."""

    @abstractmethod
    def load(self, program: Program, text: str) -> Kernel:
        """A callable for ``text``, which ``write`` made from ``program``."""

    def emit(
        self, main: Program, kernels: Sequence[Program], target: Target, emission: Emission = PLAIN
    ) -> "HostedCode":
        """See ``Backend``. Raises ``Unsupported`` for checks that it lacks."""
        if emission.checks is Checks.OFF:
            raise Unsupported(f"the back end {self.name} has checks of indices always on: leave checks='off' out")
        if emission.checked and not self.checks_accesses:
            raise Unsupported(f"the back end {self.name} has no bounds checks: unset TILEWRIGHT_BOUNDS_CHECK")
        texts: dict[str, str] = {}
        for program in kernels:
            try:
                require_fit(program, self)
                texts[program.name] = self.write(program, target)
            except Unsupported as error:
                raise UnsupportedKernel(program.name, str(error)) from error
        called = tuple(call.callee for call in _kernel_calls(main.body))
        return HostedCode(self, main, tuple(kernels), texts, Needs(calls=called))

    def listing(self, program: Program, target: Target, stage: Stage) -> str:
        """The code: its only readable form."""
        return self.write(program, target)


@dataclass(frozen=True, slots=True)
class HostedCode:
    """A main program, and the text of each kernel."""

    backend: HostedBackend
    main: Program
    kernels: tuple[Program, ...]
    texts: Mapping[str, str]
    needs: Needs

    def link(self, cache: Cache | None = None, listener: Listener = ignore) -> "HostedImage":
        """Load each kernel, without caching."""
        loaded: dict[str, Kernel] = {}
        for program in self.kernels:
            loaded[program.name] = self.backend.load(program, self.texts[program.name])
            listener(Advanced("code", len(loaded), len(self.kernels), program.name))
        return HostedImage(self.main, {program.name: program for program in self.kernels}, loaded, self.needs)


@dataclass(frozen=True, slots=True)
class HostedImage:
    """Callable kernels, and the main program that calls them."""

    main: Program
    programs: Mapping[str, Program]
    kernels: Mapping[str, Kernel]
    needs: Needs
    objects: tuple[bytes, ...] = ()

    def launch(self, manifest: Manifest, constants: Sequence[Array] = (), threads: int | None = None) -> Executable:
        """The image, loaded for execution."""
        return HostedExecutable(manifest, self, constants, threads)


class HostedExecutable(Executable):
    """Interprets the main program, and calls kernels. The timeout is checked before each kernel."""

    def __init__(self, manifest: Manifest, image: HostedImage, constants: Sequence[Array], threads: int | None) -> None:
        super().__init__(manifest, constants, threads)
        self._image = image
        self._calls = _kernel_calls(image.main.body)

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        arrays = self._accept(feeds)
        _, shapes = self._shapes(arrays)
        results = self._outputs(out, arrays, shapes)
        image, seconds = self._image, [0.0] * len(self._calls)
        deadline = None if timeout is None else time.monotonic_ns() + nanoseconds(timeout)

        def call(stmt: Call, program: Program, given: Mapping[str, Array], extents: Mapping[str, int]) -> None:
            begin = time.monotonic_ns()
            if deadline is not None and begin > deadline:
                raise Timeout(f"{program.name} was not begun: the run took longer than its timeout")
            image.kernels[program.name](given, extents)
            seconds[next(at for at, known in enumerate(self._calls) if known is stmt)] += (
                time.monotonic_ns() - begin
            ) * 1e-9

        named = {p.name: array for p, array in zip(image.main.params, (*arrays, *self.constants), strict=False)}
        for _ in range(runs):
            found = interpret(image.main, named, programs=image.programs, kernels=call)
            for result, buffer in zip(results, image.main.results, strict=True):
                result[...] = found[buffer.name]
        return results, seconds


def _kernel_calls(body: Stmt) -> tuple[Call, ...]:
    return tuple(stmt for stmt in walk(body) if isinstance(stmt, Call) and stmt.kind is Callee.KERNEL)
