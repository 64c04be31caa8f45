"""Rewrites te programs so that tensors of f32 are stored in 16 bits: values are rounded when stored, widened when read.

All arithmetic stays in f32. The operands of products that have a narrow weight are rounded, too, even if they are
computed in the same kernel (padding): such products are those of dot-product instructions (``kernels.dot_products``).
The state of a recurrence stays in f32: in each step, products read a rounded copy of the elements that they need.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.dtypes import DType
from tilewright.kernels.relayout import operations, origin_of, output_of, rewired, rewritten, with_values
from tilewright.ops.build import tensor as tensor_of
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Var, cast, const, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import free_vars, substitute
from tilewright.tensor.ir import Compute, Operation, Placeholder, Scan, Tensor


def factors(op: Compute) -> tuple[Read, Read] | None:
    """The reads of two tensors, if ``op`` is a sum of their products."""
    match op.reduction.sources if op.reduction else ():
        case (Binary(BinaryOp.MUL, a, b),):
            left, right = _read(a), _read(b)
            return None if left is None or right is None else (left, right)
        case _:
            return None


def _read(value: Expr) -> Read | None:
    """The read of a tensor that ``value`` is, as stored, limited, or converted."""
    inner = _without_limits(value.a if isinstance(value, Cast) else value)
    return inner if isinstance(inner, Read) and isinstance(inner.source, Tensor) else None


def _without_limits(value: Expr) -> Expr:
    match value:
        case Binary(BinaryOp.MIN | BinaryOp.MAX, a, Const()):
            return _without_limits(a)
        case _:
            return value


def narrowed(
    outputs: Sequence[Tensor],
    stored: Mapping[Tensor, DType],
    weights: Collection[Tensor],
    leaving: Sequence[DType],
    narrow: DType | None,
    is_flushing: bool,
) -> tuple[list[Tensor], dict[Tensor, Tensor]]:
    """``outputs`` with the dtypes ``leaving``, and the new placeholders by the old ones.

    ``stored``: dtypes of placeholders. ``weights``: factors of products whose operands are ``narrow``. ``is_flushing``:
    whether subnormal numbers become 0 when they are rounded, as by instructions for bfloat16.
    """
    made = operations(outputs)
    states = frozenset(state for op, _ in made if isinstance(op, Scan) for state in op.state)
    narrowing = _Narrowing(stored, frozenset(weights), states, narrow, is_flushing)
    for op, tensors in made:
        narrowing.rewrite(op, tensors)
    results = [narrowing.rounded(t, dtype) for t, dtype in zip(outputs, leaving, strict=True)]
    return results, {old: narrowing.made[old] for old in stored if old in narrowing.made}


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """One pass. ``made``: the rewritten tensors."""

    stored: Mapping[Tensor, DType]
    weights: frozenset[Tensor]
    states: frozenset[Tensor]
    """The states of recurrences."""
    dtype: DType | None
    """Of the operands of products with ``weights``."""
    is_flushing: bool
    made: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    narrow: dict[tuple[Tensor, DType], Tensor] = field(default_factory=dict[tuple[Tensor, DType], Tensor])
    remembered: dict[Expr, Tensor] = field(default_factory=dict[Expr, Tensor])
    """Rounded elements of states, by their expressions."""

    def rewrite(self, op: Operation, tensors: Sequence[Tensor]) -> None:
        """Add the rewritten ``tensors`` of ``op``; those that it reads are known."""
        match op:
            case Placeholder():
                self.made.update((t, self._placeholder(op, t)) for t in tensors)
                return
            case Compute():
                read = self._reader(op)
                changed: Operation = with_values(op, lambda value: rewritten(value, read))
            case _:
                changed = rewired(op, {t: self._widened(t) for t in self.made})
        self.made.update((t, t if changed is op else output_of(changed, t)) for t in tensors)

    def rounded(self, tensor: Tensor, dtype: DType) -> Tensor:
        """``tensor``, one of the old ones, stored in ``dtype``."""
        made = self.made[tensor]
        if made.dtype == dtype:
            return made
        if (tensor, dtype) not in self.narrow:
            op = made.op
            if isinstance(op, Compute) and op.reduction is None and len(op.bodies) == 1:
                changed = replace(op, bodies=(_rounded(op.bodies[0], dtype, self.is_flushing),))
                result = Tensor(changed, 0, made.name, dtype, made.shape)
            else:
                name = f"{made.name}_{dtype}"
                result = tensor_of(made.shape, lambda index: _rounded(made[index], dtype, self.is_flushing), name)
            self.narrow[tensor, dtype] = result
        return self.narrow[tensor, dtype]

    def _placeholder(self, op: Placeholder, tensor: Tensor) -> Tensor:
        dtype = self.stored.get(tensor)
        if dtype is None or dtype == tensor.dtype:
            return tensor
        return Tensor(replace(op, dtype=dtype), tensor.output, tensor.name, dtype, tensor.shape)

    def _reader(self, op: Compute) -> Callable[[Tensor, tuple[Expr, ...]], Expr]:
        """Reads elements for ``op`` as they are stored, or rounded for products; and widens them."""
        dtype = self._operand_dtype(op)

        def read(source: Tensor, indices: tuple[Expr, ...]) -> Expr:
            if dtype is not None and source in self.states:
                return cast(self._rounded_state(op, Read(source, indices), dtype), source.dtype)
            made = self.made[source] if dtype is None else self.rounded(source, dtype)
            return cast(Read(made, indices), source.dtype)

        return read

    def _rounded_state(self, op: Compute, state: Read, dtype: DType) -> Expr:
        """An element of a state as ``op`` reads it, from a rounded copy.

        The copy has the axes of ``op`` that the element depends on, time first: a step has no later rows of the state.
        """
        axes = [axis for axis in (*op.axes, *op.reduce_axis) if axis.var in free_vars(state)]
        places = tuple(Var(f"d{place}") for place in range(len(axes)))
        named = substitute(state, {axis.var: place for axis, place in zip(axes, places, strict=True)})
        if named not in self.remembered:
            shape = tuple(axis.extent for axis in axes)

            def body(index: tuple[Expr, ...]) -> Expr:
                at = dict(zip(places, index, strict=True))
                return _rounded(substitute(named, at), dtype, self.is_flushing)

            self.remembered[named] = tensor_of(shape, body, f"{state.source.name}_{dtype}")
        return Read(self.remembered[named], tuple(axis.var for axis in axes))

    def _operand_dtype(self, op: Compute) -> DType | None:
        """The dtype of the operands of ``op``, if it is a product with a narrow weight."""
        for read in factors(op) or ():
            assert isinstance(read.source, Tensor), "see `factors`"
            if read.source in self.weights or origin_of(read.source, read.indices)[0] in self.weights:
                return self.dtype
        return None

    def _widened(self, tensor: Tensor) -> Tensor:
        """For an operation without a functional form, which reads tensors as they are."""
        made = self.made[tensor]
        return (
            made if made.dtype == tensor.dtype else tensor_of(made.shape, lambda index: cast(made[index], tensor.dtype))
        )


def _rounded(value: Expr, dtype: DType, is_flushing: bool) -> Expr:
    """``value`` rounded, without widening before."""
    match value:
        case Cast(a=a) if a.dtype == dtype and value.dtype.bits > dtype.bits:
            return a
        case Select():
            a, b = (_rounded(side, dtype, is_flushing) for side in (value.a, value.b))
            return select(value.condition, a, b)
        case Const(0):
            return const(0, dtype)
        case _ if is_flushing:
            return cast(unary(UnaryOp.FLUSH, value), dtype)
        case _:
            return cast(value, dtype)
