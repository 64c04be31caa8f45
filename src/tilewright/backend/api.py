"""What a back end is: how scheduled kernels, and a main program that calls them, become something that runs.

    code = backend.emit(main, kernels, target)          text, and what a call needs: shown, cached, not yet compiled
    image = code.link(cache, listener)                  what can be kept: ``objects``
    executable = image.launch(manifest, constants)      what can be run

``compile(backend=...)`` takes an object with these, or the name of one (``backend.named``). A back end that has no
main function of its own, and lets Python call its kernels, is a few lines: ``backend.hosted``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tilewright.base.arrays import Array
from tilewright.base.checks import Checks
from tilewright.base.errors import Unsupported
from tilewright.base.events import Listener, ignore
from tilewright.base.settings import Stage
from tilewright.base.store import Cache
from tilewright.loops.ir import Alloc, Loop, LoopKind
from tilewright.loops.memory import Memory
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.runtime.executable import Executable
from tilewright.runtime.manifest import Manifest
from tilewright.symbolic.check import Origin
from tilewright.symbolic.expr import ZERO, Expr
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Needs:
    """What a call of main needs, and what its parts are called."""

    workspace_bytes: int = 0
    scratch_bytes: int = 0
    """For each thread."""
    more_workspace: Expr = ZERO
    """Bytes of workspace after the others, that depend on run-time extents."""
    sites: tuple[str, ...] = ()
    """What the checks' site numbers mean: for each call of main, those of its kernel."""
    calls: tuple[str, ...] = ()
    """The kernels that main calls, in order: what is timed."""


@dataclass(frozen=True, slots=True)
class Emission:
    """How code is to be written."""

    constants: int = 0
    """How many of main's parameters, just before its outputs, are constants of the model."""
    checked: bool = False
    """Whether every access is checked."""
    checks: Checks = Checks.ON
    """Of indices that are data."""
    place: Callable[[int, Origin], str] = lambda _, origin: str(origin)
    """What the user calls an origin of indices in a call of main, which is given by its number."""
    apart: bool = False
    """Many programs will be written that have most in common: what can be compiled once for all may be apart."""


PLAIN = Emission()
"""As a kernel is written that stands alone."""


class Image(Protocol):
    """What was compiled."""

    @property
    def needs(self) -> Needs:
        """What a call needs."""
        ...

    @property
    def objects(self) -> tuple[bytes, ...]:
        """What an artifact holds of it; empty for what can't be saved."""
        ...

    def launch(self, manifest: Manifest, constants: Sequence[Array] = (), threads: int | None = None) -> Executable:
        """The image, ready to run."""
        ...


class Code(Protocol):
    """What was written."""

    @property
    def needs(self) -> Needs:
        """What a call needs."""
        ...

    def link(self, cache: Cache | None = None, listener: Listener = ignore) -> Image:
        """The code compiled, or taken from ``cache``; ``listener`` hears of each kernel that is done."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A way to run scheduled programs."""

    @property
    def name(self) -> str:
        """What ``compile(backend=)`` calls it."""
        ...

    @property
    def memories(self) -> Mapping[str, Memory]:
        """Where buffers may live, by the names that programs have for them."""
        ...

    @property
    def loop_kinds(self) -> frozenset[LoopKind]:
        """How loops may run."""
        ...

    def emit(self, main: Program, kernels: Sequence[Program], target: Target, emission: Emission = Emission()) -> Code:
        """The code of ``main``, and of the kernels that it calls by name.

        Raises ``UnsupportedKernel`` for one that this back end can't run, with the reason.
        """
        ...

    def listing(self, program: Program, target: Target, stage: Stage) -> str:
        """The code of one kernel, to read: as it was written (``Stage.LLVM``), or as the machine's (``Stage.ASM``)."""
        ...


def require_fit(program: Program, backend: Backend) -> None:
    """Raises ``Unsupported`` for a loop or an allocation of a kind that ``backend`` has not."""
    for stmt in walk(program.body):
        if isinstance(stmt, Loop) and stmt.kind not in backend.loop_kinds:
            known = ", ".join(sorted(kind.value for kind in backend.loop_kinds))
            raise Unsupported(f"the loop {stmt.var.name} is {stmt.kind.value}; {backend.name} has {known} ones")
        if isinstance(stmt, Alloc) and stmt.buffer.memory not in backend.memories.values():
            known = ", ".join(backend.memories)
            raise Unsupported(f"{stmt.buffer.name} is in {stmt.buffer.memory.name}; {backend.name} has {known}")
