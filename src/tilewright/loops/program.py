"""A whole loop program (signature and body), and the intrinsics that it may call."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilewright.loops.ir import Annotations, Buffer, Region, Stmt
from tilewright.loops.printer import format_program
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Expr, Extent, Var


@dataclass(frozen=True, slots=True)
class Dim:
    """A run-time extent: at least 0, and at most ``bound`` if that is known."""

    var: Extent
    bound: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Program:
    """A kernel, or the main program of a network.

    ``params``: all buffers of the caller: first the read-only ones, then ``outputs`` results.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    dims: tuple[Dim, ...] = ()
    outputs: int = 1
    intrinsics: tuple["Intrinsic", ...] = ()
    annotations: Annotations = ()

    def __str__(self) -> str:
        dims = [(dim.var, dim.bound) for dim in self.dims]
        return format_program(self.name, self.params, self.outputs, dims, self.body, self.annotations)

    __repr__ = __str__

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The parameters that are only read."""
        return self.params[: len(self.params) - self.outputs]

    @property
    def results(self) -> tuple[Buffer, ...]:
        """The parameters that are written."""
        return self.params[len(self.params) - self.outputs :]

    def prefetched(self, buffer: str) -> int:
        """The prefetch distance of loads from ``buffer`` in bytes; 0: none."""
        return int(dict(self.annotations).get(prefetch_key(buffer), 0))

    def prefetch_cache(self, buffer: str) -> int:
        """The level of the nearest cache that prefetches load into."""
        return int(dict(self.annotations).get(prefetch_cache_key(buffer), 1))

    def prefetch_steps(self, buffer: str) -> dict[str, int]:
        """By the name of a loop, the bytes by which each of its iterations lengthens the prefetch distance."""
        start = prefetch_step_key(buffer, "")
        return {key.removeprefix(start): int(step) for key, step in self.annotations if key.startswith(start)}

    def is_constant(self, buffer: str) -> bool:
        """Whether the caller knows the input ``buffer`` before all calls, so that a schedule may choose its layout."""
        return constant_key(buffer) in dict(self.annotations)

    def layout(self, buffer: str) -> str:
        """The index map by which a schedule wants the constant ``buffer`` stored; empty: as it was declared."""
        return str(dict(self.annotations).get(layout_key(buffer), ""))

    @property
    def bounds(self) -> Bounds:
        """Facts outside of all loops: the run-time extents."""
        return Bounds(dims={dim.var: dim.bound for dim in self.dims})


def prefetch_key(buffer: str) -> str:
    """The annotation of a program with the prefetch distance of a parameter in bytes."""
    return f"prefetch.{buffer}"


def prefetch_cache_key(buffer: str) -> str:
    """The annotation with the cache level of prefetches, if not the first."""
    return f"prefetch_cache.{buffer}"


def prefetch_step_key(buffer: str, loop: str) -> str:
    """The annotation with the bytes that an iteration of ``loop`` adds to the prefetch distance."""
    return f"prefetch_step.{buffer}.{loop}"


_CONSTANT = "constant."


def constant_key(buffer: str) -> str:
    """The annotation of a program that says that an input is a constant."""
    return f"{_CONSTANT}{buffer}"


def layout_key(buffer: str) -> str:
    """The annotation with the index map by which a constant is stored."""
    return f"layout.{buffer}"


def with_constants(program: Program, names: Iterable[str]) -> Program:
    """``program``, in which the inputs called ``names`` are constants."""
    new = ((constant_key(name), 1) for name in names if not program.is_constant(name))
    return replace(program, annotations=(*program.annotations, *new))


def without_constants(program: Program) -> Program:
    """``program`` that does not tell which inputs are constants."""
    kept = tuple(note for note in program.annotations if not note[0].startswith(_CONSTANT))
    return replace(program, annotations=kept)


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A hardware operation for ``tensorize``: its semantics and its implementation.

    ``description``: its semantics, a loop program whose parameters have the shapes of the regions that it is called on.
    ``implementation`` is the text of an LLVM IR function of that name; empty means that code is generated from the
    description. The function's parameters determine where the operands are:

    - in registers: a vector (of one element: a scalar) for each parameter, row-major, results last, and those only if
      their old elements are read; it returns the result. It is straight-line code without memory access, and is
      inlined.
    - in memory: for each parameter a pointer, and the strides, in elements, of all dimensions but the last; then the
      description's run-time extents, which are dimensions of its parameters.

    ``features``: required processor features, by LLVM's names.
    """

    name: str
    description: Program
    implementation: str = ""
    features: tuple[str, ...] = ()

    def extents(self, regions: Sequence[Region]) -> dict[Var, Expr]:
        """The run-time extents of the description in a call on these regions."""
        found: dict[Var, Expr] = {}
        for param, region in zip(self.description.params, regions, strict=True):
            sizes = [extent for _, extent in region.ranges[len(region.ranges) - len(param.shape) :]]
            found.update((own, size) for own, size in zip(param.shape, sizes, strict=True) if isinstance(own, Extent))
        return found
