"""A whole loop program: signature and body; and the intrinsics that it may call."""

from dataclasses import dataclass

from tilewright.loops.ir import Annotations, Buffer, Stmt
from tilewright.loops.printer import format_program
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Extent


@dataclass(frozen=True, slots=True)
class Dim:
    """A run-time extent: at least 0, and at most ``bound`` where one is known."""

    var: Extent
    bound: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Program:
    """A kernel, or the main program of a network.

    ``params`` are all buffers that the caller gives: first those that are only read, then ``outputs`` results.
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
        """How many bytes ahead of each load ``buffer`` is asked for; 0 for not at all."""
        return int(dict(self.annotations).get(prefetch_key(buffer), 0))

    def prefetch_cache(self, buffer: str) -> int:
        """The level of the nearest cache to which what is asked for comes."""
        return int(dict(self.annotations).get(prefetch_cache_key(buffer), 1))

    @property
    def bounds(self) -> Bounds:
        """What is known outside of all loops: the run-time extents."""
        return Bounds(dims={dim.var: dim.bound for dim in self.dims})


def prefetch_key(buffer: str) -> str:
    """The annotation of a program that says how many bytes ahead a parameter is asked for."""
    return f"prefetch.{buffer}"


def prefetch_cache_key(buffer: str) -> str:
    """The annotation that says to which cache it comes, if that is not the first."""
    return f"prefetch_cache.{buffer}"


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A hardware operation for ``tensorize``: what it does, and how it is written.

    ``description`` is its meaning: a loop program whose parameters have the shapes of the regions that it is called on.
    ``implementation`` is the text of an LLVM IR function of that name; empty means that code is made from the
    description. What the function takes says where the operands are:

    - in registers: a vector (of one element: a scalar) for each parameter, row-major, results last, and those only if
      their old elements are read; it returns the result. It is straight-line code without memory, and is written in the
      place of the call.
    - in memory: for each parameter a pointer, and the strides, in elements, of all dimensions but the last.

    ``features``: what a processor must have for it, by LLVM's names.
    """

    name: str
    description: Program
    implementation: str = ""
    features: tuple[str, ...] = ()
