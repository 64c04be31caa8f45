"""What the rules of generation draw from: values that are there, new ones, extents, dtypes that the schemas allow."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TypeVar

import numpy as np
import onnx

from tests.random_graphs.case import Array, Attribute
from tests.random_graphs.reference import Estimate, given

T = TypeVar("T")
DType = np.dtype[np.generic]

DTYPES: Mapping[str, DType] = {
    "bool": np.dtype(bool),
    "float16": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
"""ONNX's names of element types. Without bfloat16, for which ONNX Runtime's processor kernels are few."""

COMMON = {"float": 12, "float16": 2, "double": 2, "int64": 4, "int32": 3, "bool": 2}
"""How often each is drawn; 1 if not said."""

MAX_ELEMENTS = 1500
EXTENTS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17)
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 32, 33)


class NoDType(Exception):
    """The schema allows no dtype of the kinds that a rule wants."""


class Source(Enum):
    """Where a value comes from."""

    INPUT = "x"
    CONSTANT = "c"
    PARAMETER = "p"
    NODE = "v"


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the graph that grows. ``elements``: what it is fed, if it is no node's."""

    name: str
    source: Source
    estimate: Estimate
    elements: Array | None = None

    @property
    def dtype(self) -> DType:
        return self.estimate.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.estimate.exact.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def within(self, low: float, high: float) -> bool:
        """Whether all elements are numbers from ``low`` to ``high``."""
        exact = self.estimate.exact
        return bool(((exact >= low) & (exact <= high)).all())


@dataclass(frozen=True)
class Proposal:
    """A node that a rule would like to have."""

    inputs: Sequence[Value | None]
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    outputs: int = 1


@cache
def schema(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """ONNX's definition as of ``opset``, if there is one."""
    try:
        found = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else found


@cache
def allowed(op_type: str, opset: int, position: int) -> tuple[str, ...]:
    """The names of the dtypes that the schema's type constraint allows at an input."""
    definition = schema(op_type, opset)
    assert definition is not None, f"{op_type} is not in opset {opset}"
    formal = definition.inputs[min(position, len(definition.inputs) - 1)]
    constraints = {c.type_param_str: c.allowed_type_strs for c in definition.type_constraints}
    kinds = constraints.get(formal.type_str, [formal.type_str])
    return tuple(name for name in DTYPES if f"tensor({name})" in kinds)


class Draw:
    """One graph in the making, and its source of chance."""

    def __init__(
        self,
        random: np.random.Generator,
        op_type: str,
        opset: int,
        pool: Sequence[Value],
        *,
        first: int = 0,
        special: bool = False,
    ) -> None:
        """``first``: the number in the name of the first new value. ``special``: new ones hold NaN, infinities ..."""
        self._random = random
        self.op_type = op_type
        self.opset = opset
        self._pool = pool
        self._reuse = 0.75 if pool else 0.0
        self._special = special
        self._fresh = first
        self.made: list[Value] = []

    # Plain choices

    def chance(self, probability: float) -> bool:
        return bool(self._random.random() < probability)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._random.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return int(self._random.integers(low, high + 1))

    def integers(self, count: int, low: int, high: int) -> list[int]:
        return [self.integer(low, high) for _ in range(count)]

    def subset(self, count: int, *, least: int = 0) -> list[int]:
        """Some of the numbers below ``count``, in some order."""
        size = self.integer(min(least, count), count)
        return [int(x) for x in self._random.permutation(count)[:size]]

    def permutation(self, count: int) -> list[int]:
        return [int(x) for x in self._random.permutation(count)]

    def axis(self, rank: int) -> int:
        """A dimension, counted from either end."""
        return self.integer(-rank, rank - 1)

    def shape(self, rank: int | None = None, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """A small shape; an extent is rarely 0."""
        rank = self.integer(low, high) if rank is None else rank
        shape = [self.pick(EXTENTS) for _ in range(rank)]
        while math.prod(shape) > MAX_ELEMENTS // 3:
            shape[shape.index(max(shape))] = self.integer(1, 4)
        if shape and self.chance(0.02):
            shape[self.integer(0, rank - 1)] = 0
        return tuple(shape)

    # Dtypes

    def dtype(self, position: int = 0, kinds: str = "biuf") -> DType:
        """A dtype that the schema allows at an input, of these kinds."""
        names = self.names(position, kinds)
        if not names:
            raise NoDType(self.op_type)
        weights = np.array([COMMON.get(name, 1) for name in names], float)
        return DTYPES[names[int(self._random.choice(len(names), p=weights / weights.sum()))]]

    def names(self, position: int, kinds: str = "biuf") -> list[str]:
        """The names of the dtypes that the schema allows at an input, of these kinds."""
        return [name for name in allowed(self.op_type, self.opset, position) if DTYPES[name].kind in kinds]

    def dtype_of_result(self) -> DType:
        """Any dtype, for what makes values from nothing."""
        return DTYPES[self.pick(tuple(DTYPES))]

    # Values

    def value(
        self,
        position: int = 0,
        *,
        kinds: str = "biuf",
        rank: tuple[int, int] = (0, 5),
        where: Callable[[Value], bool] = lambda _: True,
        within: tuple[float, float] | None = None,
    ) -> Value:
        """An operand that the schema allows at ``position``: one that is there, or a new one.

        ``rank``: from, to. ``where``: what a reused one must fulfil. ``within``: what all elements must be.
        """
        names = self.names(position, kinds)
        dtypes = {DTYPES[name] for name in names}

        def fits(value: Value) -> bool:
            return (
                value.dtype in dtypes
                and rank[0] <= value.rank <= rank[1]
                and (within is None or value.within(*within))
                and where(value)
            )

        return self.reused(fits) or self.fresh(self.shape(None, rank[0], min(rank[1], rank[0] + 3, 5)),
                                               self.dtype(position, kinds), within)  # fmt: skip

    def reused(self, fits: Callable[[Value], bool]) -> Value | None:
        """A value that is there, later ones first; often none."""
        if not self.chance(self._reuse):
            return None
        fitting = [value for value in self._pool if fits(value)]
        if not fitting:
            return None
        steps = min(int(self._random.exponential(1.5)), len(fitting) - 1)
        return fitting[-1 - steps]

    def like(self, shape: Sequence[int], dtype: DType, within: tuple[float, float] | None = None) -> Value:
        """A value of this shape and dtype."""

        def fits(value: Value) -> bool:
            return value.shape == tuple(shape) and value.dtype == dtype and (within is None or value.within(*within))

        return self.reused(fits) or self.fresh(shape, dtype, within)

    def broadcast(self, other: Value, dtype: DType, within: tuple[float, float] | None = None) -> Value:
        """A value that broadcasts with ``other``."""

        def fits(value: Value) -> bool:
            return (
                value.dtype == dtype
                and _broadcast(value.shape, other.shape) is not None
                and (within is None or value.within(*within))
            )

        return self.reused(fits) or self.fresh(self._relative(other.shape), dtype, within)

    def _relative(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with ``shape``: the same, with ones, shorter, or longer."""
        if self.chance(0.4):
            return shape
        kept = shape[self.integer(0, len(shape)) :] if self.chance(0.4) else shape
        partner = tuple(
            self.pick(EXTENTS) if e == 1 and self.chance(0.3) else 1 if self.chance(0.25) else e for e in kept
        )
        if len(partner) == len(shape) < 4 and self.chance(0.1):
            partner = (self.integer(1, 3), *partner)
        return partner if math.prod(_broadcast(partner, shape) or (0,)) <= MAX_ELEMENTS else shape

    def fresh(self, shape: Sequence[int], dtype: DType, within: tuple[float, float] | None = None) -> Value:
        """A new input, or a constant."""
        elements = self.elements(shape, dtype, within)
        if within is None and self._special and dtype.kind != "b":
            elements = self._with_specials(elements)
        return self._new(Source.CONSTANT if self.chance(0.3) else Source.INPUT, elements)

    def constant(self, elements: Array) -> Value:
        """A new constant whose elements the rule knows, but which the node only computes with."""
        return self._new(Source.CONSTANT, elements)

    def input(self, elements: Array) -> Value:
        """A new input with these elements, or a constant."""
        return self._new(Source.CONSTANT if self.chance(0.4) else Source.INPUT, elements)

    def parameter(self, *elements: int) -> Value:
        """A new list of integers that says what the node does."""
        return self.parameters(np.array(elements, np.int64))

    def parameters(self, elements: Array) -> Value:
        """A new constant that says what the node does."""
        return self._new(Source.PARAMETER, elements)

    def _new(self, source: Source, elements: Array) -> Value:
        elements = np.asarray(elements)
        made = Value(f"{source.value}{self._fresh + len(self.made)}", source, given(elements), elements)
        self.made.append(made)
        return made

    def elements(self, shape: Sequence[int], dtype: DType, within: tuple[float, float] | None = None) -> Array:
        """Mild random elements."""
        shape = tuple(shape)
        match dtype.kind:
            case "b":
                return self._random.integers(0, 2, shape).astype(bool)
            case "f":
                low, high = within or (-2.0, 2.0)
                low, high = max(low, -4.0 if high > -4 else high - 4), min(high, 4.0 if low < 4 else low + 4)
                dense = self._random.uniform(low, high, shape)
                if self.chance(0.2):  # ties, zeros
                    dense = np.clip(np.round(dense * 2) / 2, low, high)
                inner = (
                    np.nextafter(dtype.type(low), dtype.type(np.inf)),
                    np.nextafter(dtype.type(high), dtype.type(-np.inf)),
                )
                return np.clip(dense.astype(dtype), *inner) if within else dense.astype(dtype)
            case _:
                info = np.iinfo(dtype)
                low, high = within or (-9, 9)
                lowest, highest = max(math.ceil(low), info.min, -100), min(math.floor(high), info.max, 100)
                return self._random.integers(lowest, highest + 1, shape).astype(dtype)

    def _with_specials(self, elements: Array) -> Array:
        dtype = elements.dtype
        if dtype.kind == "f":
            info = np.finfo(dtype)
            specials = [np.nan, np.inf, -np.inf, -0.0, 0.0, info.tiny, info.smallest_subnormal]
        else:
            bounds = np.iinfo(dtype)
            specials = [bounds.min, bounds.max, 0, bounds.min + 1, bounds.max - 1]
        chosen = self._random.choice(len(specials), elements.shape)
        return np.where(self._random.random(elements.shape) < 0.25, np.array(specials, dtype)[chosen], elements)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None
