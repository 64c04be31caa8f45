"""Evaluates rules about integers bit by bit, in the types that graphs have: bytes saturate, sums wrap around.

Integers are of all magnitudes, many at the ends of their range; floats may be infinite or NaN; scales are positive.
Every choice of types of the bytes for which the rule is well-typed is tried. Floats that the rule rounds elsewhere, as
``floats_of`` says, may differ by that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from tilewright.base.arrays import Array, has_same_bits, random_integers
from tilewright.base.dtypes import DType, f32, from_numpy, i8, i32, u8
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.graph import Value, evaluate_node, make_node
from tilewright.measure.difference import difference
from tilewright.ops.shapes import static
from tilewright.passes.rules.floats import Floats, floats_of
from tilewright.passes.rules.terms import Apply, Kind, Number, Rule, Term, Variable, subterms
from tilewright.superopt.evaluate.evaluator import Bindings
from tilewright.symbolic.expr import const

_MOST_TYPES = 64
_ROUNDING = 1e-5
_SCALES = np.array([2.0**-100, 1e-6, 0.003, 0.1, 1.0, 3.7, 2.0**40])


@dataclass(frozen=True, slots=True)
class TypedWitness:
    """Values of variables at which the sides of a rule differ, and both sides at one element."""

    values: Mapping[str, Array]
    place: tuple[int, ...]
    left: float
    right: float


def agrees_in_bits(rule: Rule) -> bool | None:
    """Whether the sides of a rule with literal shapes agree at all values tried; None if they have no value at any."""
    found = list(_compared(rule))
    return all(one is None for one in found) if found else None


def typed_witness(rule: Rule) -> TypedWitness | None:
    """Values at which the sides differ, if there are some among those tried."""
    return next((one for one in _compared(rule) if one is not None), None)


def _compared(rule: Rule) -> Iterator[TypedWitness | None]:
    """The result at each choice of types and values for which both sides have one."""
    is_exact = floats_of(rule) is Floats.EXACT
    if any(extent < 1 for variable in rule.variables for extent in static(variable.shape) or ()):
        return
    for seed, types in enumerate(islice(_types(rule.variables), _MOST_TYPES)):
        try:
            yield _differing(rule, _drawn(rule.variables, types, seed), is_exact=is_exact)
        except (BadProgram, OutOfBounds, Unsupported):
            continue


def _types(variables: Sequence[Variable]) -> Iterator[tuple[DType, ...]]:
    choices: Mapping[Kind, tuple[DType, ...]] = {
        Kind.ANY: (f32,),
        Kind.BYTE: (u8, i8),
        Kind.INTEGER: (i32,),
        Kind.SCALE: (f32,),
    }
    return product(*(choices[variable.kind] for variable in variables))


def _drawn(variables: Sequence[Variable], types: Sequence[DType], seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        variable.name: _array(variable, dtype, static(variable.shape) or (), random)
        for variable, dtype in zip(variables, types, strict=True)
    }


def _array(variable: Variable, dtype: DType, shape: Sequence[int], random: np.random.Generator) -> Array:
    if dtype.is_int:
        return random_integers(dtype, shape, random)
    if variable.kind is Kind.SCALE:
        return random.choice(_SCALES, shape).astype(dtype.numpy)
    special = random.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -1.5, 300.0]), shape)
    drawn = random.standard_normal(shape) * 10.0 ** random.integers(-2, 3)
    return np.where(random.random(shape) < 0.3, special, drawn).astype(dtype.numpy)


def _differing(rule: Rule, values: Mapping[str, Array], *, is_exact: bool) -> TypedWitness | None:
    """Raises as ``evaluate_node``."""
    known: dict[Term, Array] = {}
    for term in subterms((*rule.sources, *rule.targets)):
        known[term] = _value(term, known, values)
    for source, target in zip(rule.sources, rule.targets, strict=True):
        left, right = known[source], known[target]
        if not _are_alike(left, right, is_exact=is_exact):
            place = _place(left, right) if left.shape == right.shape else ()
            return TypedWitness(values, place, float(left[place].flat[0]), float(right[place].flat[0]))
    return None


def _are_alike(left: Array, right: Array, *, is_exact: bool) -> bool:
    if has_same_bits(left, right):
        return True
    is_rounded = not is_exact and left.dtype == right.dtype and from_numpy(left.dtype).is_float
    return is_rounded and left.shape == right.shape and difference(left, right).worst <= _ROUNDING


def _place(left: Array, right: Array) -> tuple[int, ...]:
    differs = (left != right) | (np.signbit(left.astype(np.float64)) != np.signbit(right.astype(np.float64)))
    return tuple(int(i) for i in np.argwhere(np.atleast_1d(differs))[0])[: left.ndim]


def _value(term: Term, known: Mapping[Term, Array], values: Mapping[str, Array]) -> Array:
    match term:
        case Variable(name):
            return values[name]
        case Number(value):
            return np.asarray(value, np.float32)
        case Apply(op, operands, _, _, output):
            arrays = [known[operand] for operand in operands]
            if op.name == "Slice":
                check_slice(term, arrays[0].shape)
            inputs = {
                Value(f"v{place}", from_numpy(array.dtype), tuple(map(const, array.shape))): array
                for place, array in enumerate(arrays)
            }
            node = make_node(
                op, list(inputs), [f"r{place}" for place in range(output + 1)], Bindings({}).attributes(term)
            )
            return evaluate_node(node, inputs)[output]


def check_slice(term: Apply, extents: Sequence[int]) -> None:
    """Raises ``BadProgram`` for a slice that is empty or exceeds its operand: in rules, bounds are not clamped."""
    bounds = [term.attribute(name) for name in ("axes", "starts", "ends")]
    for axis, start, end in zip(*(bound for bound in bounds if isinstance(bound, tuple)), strict=True):
        at, first, last = int(str(axis)), int(str(start)), int(str(end))
        if not -len(extents) <= at < len(extents) or not 0 <= first < last <= extents[at]:
            raise BadProgram(f"Slice {first} to {last} along axis {at} of {list(extents)}")
