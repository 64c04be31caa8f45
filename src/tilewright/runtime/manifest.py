"""``Manifest``: the interface of an image: inputs, outputs, constants, run-time extents and memory.

An extent is an int, or the name of a symbol. The manifest lists the symbols in the order of the ABI's ``dims``. A
symbol is read off the inputs that have it in their shape, or computed from earlier symbols by a ``Formula``:

    Symbol("n", 1, 512)                          an extent of some input, in 1..512
    Symbol("m", value=("//", ("+", "n", 1), 2))  (n + 1) // 2, for example the extent of an output
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilewright.base.checks import Checks
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadArtifact, BadFeed
from tilewright.base.numerics import Math, Precision

Extent = int | str
Shape = tuple[Extent, ...]
Formula = int | str | tuple[str, "Formula", "Formula"]
"""An int, a symbol, or an operator (``+ - * // % min max``; ``//`` rounds down) and its two operands.

Arithmetic is on integers. An intermediate value beyond ``MAX_INTERMEDIATE`` is an error, and the value of a symbol is
at most ``MAX_NUMBER``.
"""

MAX_NUMBER = 1 << 62
"""The largest extent or size: the sum of two fits in 64 bits."""
MAX_INTERMEDIATE = 1 << 64
"""Models write 2**63 - 1 for "to the end"; an extent may be added to it before clipping."""
MAX_RANK = 32
"""Maximum dimensions of a tensor, as in NumPy 1.26."""
MAX_OPERATIONS = 1 << 16
"""Maximum operators in all formulas of a manifest: they are evaluated in each run."""

_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "//": int.__floordiv__,
    "%": int.__mod__,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class TensorSpec:
    """Name, element type and shape of an input, output or constant (constants have no symbols)."""

    name: str
    dtype: DType
    shape: Shape

    @cached_property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, if it has no symbols."""
        shape = tuple(extent for extent in self.shape if isinstance(extent, int))
        return shape if len(shape) == len(self.shape) else None

    def concrete(self, extents: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with its symbols replaced."""
        return tuple(extent if isinstance(extent, int) else extents[extent] for extent in self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Symbol:
    """A run-time extent with the bounds (both included) of the compiled code. ``maximum`` None: unbounded."""

    name: str
    minimum: int = 0
    maximum: int | None = None
    value: Formula | None = None

    def check(self, extent: int, origin: str) -> None:
        """Raise ``BadFeed`` if ``extent`` is out of bounds; ``origin`` is its source for the message."""
        if not self.minimum <= extent <= (MAX_NUMBER if self.maximum is None else self.maximum):
            bounds = f"{self.minimum} or more" if self.maximum is None else f"{self.minimum} to {self.maximum}"
            raise BadFeed(
                f"{origin}: extent {self.name!r} is {extent}, but the model was compiled for {bounds}; "
                f"{self._advice(extent)}"
            )

    def _advice(self, extent: int) -> str:
        """What helps: ``bounds=`` says how large an extent is at most, and nothing of how small."""
        if extent >= self.minimum:
            return "give an input of such a size, or compile the model with other bounds"
        return "give an input of such a size" if self.value is None else "give inputs of other sizes"


@dataclass(frozen=True)
class Manifest:
    """The description of an image. Sizes in bytes.

    ``workspace``: the arena of one call, or the symbol that computes it. ``scratch``: of one worker. ``sites``:
    descriptions of the error record's ``site``, for messages. ``calls``: the kernels that main calls, in order, for the
    profile. ``math``: the numerics policy of the code; ``checks``: whether it reports bad indices;
    ``precision``: of values between kernels. ``late``: extents of outputs that are known only when the model has run
    (``runtime.stages``). Raises ``BadArtifact`` if it is inconsistent.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[TensorSpec, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    workspace: Extent = 0
    scratch: int = 0
    sites: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    math: Math = Math.DEFAULT
    checks: Checks = Checks.ON
    precision: Precision = Precision.FP32
    late: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for specs, what in ((self.inputs, "inputs"), (self.outputs, "outputs"), (self.constants, "constants")):
            names = [spec.name for spec in specs]
            if len(set(names)) != len(names):
                raise BadArtifact(f"manifest: two {what} have the same name ({', '.join(names)})")
        if min(self.scratch, *(e for e in self._extents() if isinstance(e, int)), 0) < 0:
            raise BadArtifact("manifest: a size or extent is negative")
        for spec in (*self.inputs, *self.outputs, *self.constants):
            _check_size(spec)
        if sum(operations(symbol.value) for symbol in self.symbols if symbol.value is not None) > MAX_OPERATIONS:
            raise BadArtifact(f"manifest: its formulas have more than {MAX_OPERATIONS} operations")
        self._check_symbols()

    def _extents(self) -> list[Extent]:
        shapes = [extent for spec in (*self.inputs, *self.outputs, *self.constants) for extent in spec.shape]
        return [*shapes, self.workspace]

    def _check_symbols(self) -> None:
        known: set[str] = set()
        given = {extent for spec in self.inputs for extent in spec.shape if isinstance(extent, str)}
        for symbol in self.symbols:
            missing = symbols_of(symbol.value) - known if symbol.value is not None else {symbol.name} - given
            if missing or symbol.name in known:
                raise BadArtifact(
                    f"manifest: symbol {symbol.name!r} is listed twice, is in no input's shape, "
                    "or is computed from one that does not come before it"
                )
            known.add(symbol.name)
        unknown = {extent for extent in self._extents() if isinstance(extent, str)} - known - {*self.late}
        if unknown or any(spec.static_shape is None for spec in self.constants):
            raise BadArtifact(f"manifest: extents {sorted(unknown)} are not listed, or a constant has a symbolic shape")


def _check_size(spec: TensorSpec) -> None:
    """Raise ``BadArtifact`` for an impossible shape, even if one of its extents is 0."""
    known = (extent for extent in spec.shape if isinstance(extent, int) and extent)
    if len(spec.shape) > MAX_RANK or prod(known) * spec.dtype.itemsize > MAX_NUMBER:
        raise BadArtifact(f"manifest: {spec.name!r} has more than {MAX_RANK} dimensions, or than {MAX_NUMBER} bytes")


def operations(formula: Formula) -> int:
    """The number of operators in a formula."""
    match formula:
        case int() | str():
            return 0
        case (_, left, right):
            return 1 + operations(left) + operations(right)


def symbols_of(formula: Formula) -> set[str]:
    """The symbols in a formula."""
    match formula:
        case int():
            return set()
        case str():
            return {formula}
        case (sign, left, right):
            if sign not in _OPERATORS:
                raise BadArtifact(f"manifest: {sign!r} is no operator of a formula; known: {' '.join(_OPERATORS)}")
            return symbols_of(left) | symbols_of(right)


def evaluate(formula: Formula, extents: Mapping[str, int]) -> int:
    """The value of a formula. Raises ``BadFeed`` for a division by zero, or a value beyond ``MAX_INTERMEDIATE``."""
    match formula:
        case int():
            return formula
        case str():
            return extents[formula]
        case (sign, left, right):
            a, b = evaluate(left, extents), evaluate(right, extents)
            if sign in ("//", "%") and b == 0:
                raise BadFeed(f"an extent is computed as {a} {sign} 0 for these inputs; their shapes do not fit")
            value = _OPERATORS[sign](a, b)
            if not -MAX_INTERMEDIATE <= value <= MAX_INTERMEDIATE:
                raise BadFeed(f"an extent is computed as {a} {sign} {b} for these inputs: give smaller ones")
            return value


def byte_size(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes of a dense array."""
    return prod(shape) * dtype.itemsize
