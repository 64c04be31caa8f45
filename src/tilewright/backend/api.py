"""The interface of back ends: emit code for kernels and their main program, link an image, launch an executable.

    code = backend.emit(main, kernels, target)          text and requirements of a call: not yet compiled
    image = code.link(cache, listener)                  compiled code, can be saved: ``objects``
    executable = image.launch(manifest, constants)      loaded for execution

``compile(backend=...)`` takes an object with these, or the name of one (``backend.named``). A back end that has no
main function of its own, and lets Python call its kernels, is a few lines: ``backend.hosted``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """The requirements of a call of main, and the names of its parts."""

    workspace_bytes: int = 0
    scratch_bytes: int = 0
    """Bytes of scratch for each thread."""
    more_workspace: Expr = ZERO
    """Bytes of workspace after the others that depend on run-time extents."""
    sites: tuple[str, ...] = ()
    """The meaning of the checks' site numbers: for each call of main, the sites of its kernel."""
    calls: tuple[str, ...] = ()
    """The kernels that main calls, in order, for timing."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Options of code generation."""

    constants: int = 0
    """Number of main's parameters, just before its outputs, that are constants of the model."""
    checked: bool = False
    """Whether every access is checked."""
    checks: Checks = Checks.ON
    """The policy for data-dependent indices."""
    place: Callable[[int, Origin], str] = lambda _, origin: str(origin)
    """The user's name of an origin of indices in a call of main, given by its number."""
    apart: bool = False
    """Whether many similar programs will be emitted: common parts may be compiled once, as separate modules."""
    variants: Mapping[str, Sequence[tuple[Program, Expr]]] = field(
        default_factory=dict[str, Sequence[tuple[Program, Expr]]]
    )
    """By the names of kernels, other programs for them, of the same parameters, each with a condition on the kernel's
    run-time extents: the first whose condition holds is to run. A back end may leave them out."""


PLAIN = Emission()
"""Options for a stand-alone kernel."""


class Image(Protocol):
    """Compiled code."""

    @property
    def needs(self) -> Needs:
        """The requirements of a call."""
        ...

    @property
    def objects(self) -> tuple[bytes, ...]:
        """The object files for an artifact; empty if the image can't be saved."""
        ...

    def launch(self, manifest: Manifest, constants: Sequence[Array] = (), threads: int | None = None) -> Executable:
        """The image, loaded for execution."""
        ...


class Code(Protocol):
    """Emitted code."""

    @property
    def needs(self) -> Needs:
        """The requirements of a call."""
        ...

    def link(self, cache: Cache | None = None, listener: Listener = ignore) -> Image:
        """The compiled code, partly from ``cache``; ``listener`` gets an event for each finished kernel."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A back end."""

    @property
    def name(self) -> str:
        """Its name in ``compile(backend=)``."""
        ...

    @property
    def memories(self) -> Mapping[str, Memory]:
        """The memories of buffers, by their names in programs."""
        ...

    @property
    def loop_kinds(self) -> frozenset[LoopKind]:
        """The supported kinds of loops."""
        ...

    def emit(self, main: Program, kernels: Sequence[Program], target: Target, emission: Emission = Emission()) -> Code:
        """The code of ``main``, and of the kernels that it calls by name.

        Raises ``UnsupportedKernel``, with the reason, for a kernel that this back end can't run.
        """
        ...

    def listing(self, program: Program, target: Target, stage: Stage) -> str:
        """The code of one kernel for reading: as emitted (``Stage.LLVM``), or as machine code (``Stage.ASM``)."""
        ...


def require_fit(program: Program, backend: Backend) -> None:
    """Raises ``Unsupported`` for a loop or an allocation of a kind that ``backend`` lacks."""
    for stmt in walk(program.body):
        if isinstance(stmt, Loop) and stmt.kind not in backend.loop_kinds:
            known = ", ".join(sorted(kind.value for kind in backend.loop_kinds))
            raise Unsupported(f"the loop {stmt.var.name} is {stmt.kind.value}; {backend.name} has {known} ones")
        if isinstance(stmt, Alloc) and stmt.buffer.memory not in backend.memories.values():
            known = ", ".join(backend.memories)
            raise Unsupported(f"{stmt.buffer.name} is in {stmt.buffer.memory.name}; {backend.name} has {known}")
