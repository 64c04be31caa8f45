"""Compares both sides of a region by evaluation at random values of its leaves.

Regions of integers are evaluated in their own types, at integers from the whole range: bytes saturate, sums wrap
around, and what is an integer must have the same bits. Others are compared exactly at first, over the integers modulo a
prime (``domains``): sums, products and quotients are exact, and roots, exponentials and extrema are random functions,
the same on both sides. If the sides differ or can't be evaluated there,
in float64: some equations hold only for the true functions, and some constants are rounded.
"""

from dataclasses import dataclass, field
from enum import Enum
from math import isfinite, prod

import numpy as np

from tilewright.base.arrays import has_same_bits, random_array, random_integers
from tilewright.base.dtypes import DType, f64, i8, u8
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.graph import Array, Value, evaluate_node, make_node
from tilewright.loops.evaluate_extern import evaluate_extern
from tilewright.measure.difference import difference
from tilewright.ops import Attribute
from tilewright.ops.shapes import static
from tilewright.superopt.validate.congruence import Type
from tilewright.superopt.validate.extent_relations import Sizes
from tilewright.superopt.validate.regions import Leaf, Region
from tilewright.superopt.validate.smaller_sizes import smaller
from tilewright.symbolic.expr import Const
from tilewright.tensor.build import placeholder
from tilewright.tensor.degrees import Degree, degrees
from tilewright.tensor.domains import PRIME, Modular
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Compute, Tensor, topological_order
from tilewright.tensor.over_domain import DomainProgram

BUDGET = 1 << 22
"""Maximum points of evaluation of a region: evaluations of scalar expressions, over all its operators."""
SAMPLES = 4
"""The number of random samples."""
TOLERANCE = 1e-7
"""Tolerance for rounding in float64, including that of constants to float32 (``measure.difference``)."""


class Method(Enum):
    """The method of a comparison."""

    EXACT = "exact"
    """Over the integers modulo a prime."""
    FLOAT64 = "float64"
    """In float64, if the exact comparison is impossible or finds a difference."""
    BITS = "bits"
    """Bit by bit, in the types of the graph: of integers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a region. ``is_equal``: None if it could not be evaluated, because of ``reason``."""

    is_equal: bool | None
    method: Method | None = None
    sizes: Sizes = field(default_factory=dict[int, int])
    """The extents of the evaluation, by the original extents; empty if they are the same."""
    error_bound: float = 0.0
    """An upper bound of the probability of a wrong result "equal"."""
    reason: str = ""


def decide(region: Region, budget: int = BUDGET, seed: int = 0) -> Verdict:
    """Compare the sides of ``region`` at the smallest valid extents, with at most ``budget`` points of evaluation.

    Sides that differ at small extents are also compared at larger ones, for which literals may be right.
    """
    verdict = Verdict(None, reason="no sizes fit")
    try:
        for candidate, sizes in smaller(region):
            found = _decided(candidate, sizes, budget, seed)
            if found.is_equal:
                return found
            if found.is_equal is False or verdict.is_equal is None:
                verdict = found
    except BadProgram as error:
        return Verdict(None, reason=str(error))
    return verdict


def _decided(region: Region, sizes: Sizes, budget: int, seed: int) -> Verdict:
    try:
        program = _Program.of(region)
    except BadProgram as error:
        return Verdict(None, reason=str(error))
    if program.points > budget:
        return Verdict(None, reason=f"{program.points} points are more than the budget of {budget}")
    return _compared(program, sizes, seed)


def _compared(program: "_Program", sizes: Sizes, seed: int) -> Verdict:
    reason = ""
    in_bits = _agrees_in_bits(program.region, seed)
    if in_bits is not None:
        return Verdict(in_bits, Method.BITS, sizes)
    try:
        if program.agrees_exactly(seed):
            return Verdict(True, Method.EXACT, sizes, program.error_bound)
    except (Unsupported, OutOfBounds) as error:
        reason = str(error)
    try:
        agrees = program.agrees_in_float64(seed)
    except (Unsupported, OutOfBounds, BadProgram) as error:
        return Verdict(None, None, sizes, reason=reason or str(error))
    if agrees is None:
        return Verdict(None, None, sizes, reason="no number is finite at any of the values that were tried")
    return Verdict(agrees, Method.FLOAT64, sizes)


@dataclass(frozen=True, slots=True)
class _Application:
    """The te program of a step, and the numbers of its operands, in the order of ``inputs``."""

    inputs: tuple[Tensor, ...]
    operands: tuple[int, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Program:
    """A region as te programs, with float64 for all floats."""

    region: Region
    applications: tuple[_Application, ...]

    @staticmethod
    def of(region: Region) -> "_Program":
        """The program of a region. Raises ``BadProgram`` if a step is ill-typed, or has a shape unlike the region's."""
        types = [leaf.type for leaf in region.leaves]
        made: list[_Application] = []
        for step in region.steps:
            present = {operand: None for operand in step.operands if operand is not None}
            inputs = {operand: _placeholder(types[operand], operand) for operand in present}
            tensors = [None if operand is None else inputs[operand] for operand in step.operands]
            attributes = {name: _widened(value) for name, value in step.attributes.value}
            outputs = step.op.apply(tensors, attributes)[: len(step.types)]
            for tensor, kind in zip(outputs, step.types, strict=True):
                if static(tensor.shape) is None or static(tensor.shape) != static(kind.shape):
                    raise BadProgram(f"{step.op} makes {tensor}, not {kind.shape}")
            made.append(_Application(tuple(inputs.values()), tuple(inputs), outputs))
            types += step.types
        return _Program(region, tuple(made))

    @property
    def points(self) -> int:
        """The number of evaluations of scalar expressions."""
        operations = (op for made in self.applications for op in topological_order(made.outputs))
        leaves = sum(prod(static(leaf.type.shape) or ()) for leaf in self.region.leaves)
        return leaves + sum(_points(op) for op in operations if isinstance(op, Compute))

    @property
    def error_bound(self) -> float:
        """An upper bound of the probability that different sides agree at all samples."""
        known = [Degree(0 if leaf.literal else 1) for leaf in self.region.leaves]
        for made in self.applications:
            operands = {tensor: known[operand] for tensor, operand in zip(made.inputs, made.operands, strict=True)}
            known += degrees(made.outputs, operands)
        degree = known[self.region.left].against(known[self.region.right])
        return min(1.0, degree / PRIME) ** SAMPLES

    @property
    def _types(self) -> list[Type]:
        """The types of all values."""
        return [leaf.type for leaf in self.region.leaves] + [kind for step in self.region.steps for kind in step.types]

    def agrees_exactly(self, seed: int) -> bool:
        """Whether both sides agree modulo a prime. Raises ``Unsupported`` and ``OutOfBounds`` without a value there."""
        shapes = [static(kind.shape) or () for kind in self._types]
        if 0 in shapes[self.region.left]:
            return True
        if any(0 in shape for shape in shapes):
            raise Unsupported("arrays of the field have elements")
        domain = Modular(seed)
        arrays = [_residues(leaf, domain, number) for number, leaf in enumerate(self.region.leaves)]
        for made in self.applications:
            function = DomainProgram(made.inputs, made.outputs)
            arrays += function([arrays[operand] for operand in made.operands], domain)
        left, right = arrays[self.region.left], arrays[self.region.right]
        if left.shape[:-1] != right.shape[:-1]:
            return False
        shape = (*left.shape[:-1], SAMPLES)
        return domain.agree(np.broadcast_to(left, shape), np.broadcast_to(right, shape))

    def agrees_in_float64(self, seed: int) -> bool | None:
        """Whether both sides agree at normal and positive numbers; None if none is finite. Raises as ``evaluate``."""
        finite = False
        for sample in range(SAMPLES):
            generator = np.random.default_rng([seed, sample])
            left, right = self._in_float64(generator, is_positive=sample % 2 == 1)
            if difference(left, right).worst > TOLERANCE:
                return False
            finite |= not left.size or bool(np.isfinite(left.astype(np.float64)).any())
        return True if finite else None

    def _in_float64(self, generator: np.random.Generator, *, is_positive: bool) -> tuple[Array, Array]:
        arrays = [_numbers(leaf, generator, is_positive=is_positive) for leaf in self.region.leaves]
        for made in self.applications:
            feeds = {tensor: arrays[operand] for tensor, operand in zip(made.inputs, made.operands, strict=True)}
            arrays += evaluate(made.outputs, feeds, None, evaluate_extern)
        return arrays[self.region.left], arrays[self.region.right]


def _agrees_in_bits(region: Region, seed: int) -> bool | None:
    """Whether both sides agree in their own types; None if the region has no bytes and no integers as leaves, or no
    value, as where integers are indices."""
    has_bytes = any(kind.dtype in (i8, u8) for step in region.steps for kind in step.types)
    if not has_bytes and not any(leaf.type.dtype.is_int and leaf.literal is None for leaf in region.leaves):
        return None
    try:
        return all(_have_same_bits(region, np.random.default_rng([seed, sample])) for sample in range(SAMPLES))
    except (Unsupported, OutOfBounds, BadProgram):
        return None


def _have_same_bits(region: Region, generator: np.random.Generator) -> bool:
    """Of integers; floats may be rounded elsewhere."""
    values = [Value(f"v{number}", leaf.type.dtype, leaf.type.shape) for number, leaf in enumerate(region.leaves)]
    arrays = {value: _typed(leaf, generator) for value, leaf in zip(values, region.leaves, strict=True)}
    for step in region.steps:
        operands = [None if operand is None else values[operand] for operand in step.operands]
        names = [f"v{len(values) + place}" for place in range(len(step.types))]
        node = make_node(step.op, operands, names, dict(step.attributes.value))
        arrays.update(zip(node.outputs, evaluate_node(node, arrays), strict=True))
        values += node.outputs
    left, right = (arrays[values[side]] for side in (region.left, region.right))
    if has_same_bits(left, right):
        return True
    is_rounded = left.dtype == right.dtype and values[region.left].dtype.is_float
    return is_rounded and difference(left, right).worst <= _ROUNDING


_ROUNDING = 1e-5
"""Of float32 that is computed of integers."""


def _typed(leaf: Leaf, generator: np.random.Generator) -> Array:
    shape, dtype = static(leaf.type.shape) or (), leaf.type.dtype
    if leaf.literal is not None:
        return np.full(shape, leaf.literal.value).astype(dtype.numpy)
    if dtype.is_int:
        return random_integers(dtype, shape, generator)
    drawn = random_array(dtype, shape, generator)
    special = generator.choice(np.array([np.inf, -np.inf, np.nan, 1e30]), shape).astype(drawn.dtype)
    return np.where(generator.random(shape) < _SPECIAL, special, drawn) if dtype.is_float else drawn


_SPECIAL = 0.05
"""The fraction of floats that are infinite, NaN, or large."""


def _placeholder(kind: Type, number: int) -> Tensor:
    return placeholder(kind.shape, _wide(kind.dtype), f"v{number}")


def _widened(value: Attribute) -> Attribute:
    """An attribute, with float64 for all float types."""
    return _wide(value) if isinstance(value, DType) else value


def _wide(dtype: DType) -> DType:
    return f64 if dtype.is_float else dtype


def _points(op: Compute) -> int:
    extents = [axis.extent for axis in (*op.axes, *op.reduce_axis)]
    return len(op.values) * prod(int(extent.value) for extent in extents if isinstance(extent, Const))


def _residues(leaf: Leaf, domain: Modular, number: int) -> Array:
    shape = static(leaf.type.shape) or ()
    if leaf.literal is None:
        return domain.random((*shape, SAMPLES), number)
    if not isfinite(leaf.literal.value):
        raise Unsupported(f"{leaf.literal.value} is no number modulo a prime")
    return np.full((*shape, 1), domain.constant(leaf.literal.value), domain.dtype)


def _numbers(leaf: Leaf, generator: np.random.Generator, *, is_positive: bool) -> Array:
    shape, dtype = static(leaf.type.shape) or (), _wide(leaf.type.dtype)
    if leaf.literal is not None:
        return np.full(shape, leaf.literal.value).astype(dtype.numpy)
    if not dtype.is_float:
        return generator.integers(0, 2, shape).astype(dtype.numpy)
    return generator.uniform(0.5, 1.5, shape) if is_positive else generator.standard_normal(shape)
