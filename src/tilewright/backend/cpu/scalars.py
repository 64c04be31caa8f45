"""Emits scalar expressions, on scalars or lanes, and the addresses of loads and stores (``accesses``).

Inside a vectorized loop an expression is evaluated once, with vectors where its value differs between the lanes.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import copysign

from tilewright.backend.cpu.abilities import Abilities
from tilewright.backend.cpu.accesses import AccessEmitter, Environment
from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.checks import BoundsChecks, Guard, IndexChecks
from tilewright.backend.cpu.halves import Halves
from tilewright.backend.cpu.offsets import LinearForm, flat_form, linear_form
from tilewright.backend.cpu.places import (
    Address,
    Place,
    Spot,
    common_alignment,
)
from tilewright.backend.cpu.rounding import (
    dequantized_sum,
    rounded_sum,
    rounded_to_byte,
    rounded_to_steps,
)
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, integer, iota, literal, memory_type
from tilewright.backend.cpu.vecmath.exponential import LEAST_WEIGHT
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.base.identity import ByIdentity
from tilewright.loops.ir import Buffer
from tilewright.symbolic.check import Check
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Unary, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import conjuncts, reads_in, walk


class ScalarEmitter:
    """Emits expressions in one function."""

    def __init__(
        self,
        text: FunctionText,
        environment: Environment,
        indices: IndexChecks,
        accesses: BoundsChecks | None,
        abilities: Abilities,
    ) -> None:
        self.text = text
        self.env = environment
        self.ops = ArithmeticEmitter(text, halves=abilities.halves, packs=abilities.packs)
        self.accesses = AccessEmitter(text, environment, self.ops, has_masks=abilities.has_masks)
        self._indices = indices
        self._checks = accesses
        self._once = False
        self._abilities = abilities
        self._forms = ByIdentity[tuple[LinearForm, dict[int, Spot]]]()
        """Keyed by buffer and indices; and by the scope, if in memory."""
        self._pointers: dict[tuple[str, DType, tuple[tuple[str, int], ...]], tuple[Value, int]] = {}
        """Pointers with alignments, by the start of a buffer and what is added: names that are unique in the function,
        so that a pointer is found only where it was made or further inside."""

    # --- values -----------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """The value of ``expr``: a scalar if it is equal in all lanes."""
        match expr:
            case Const(number, dtype):
                return literal(number, dtype)
            case Var():
                return self._variable(expr)
            case Read(source, indices) if isinstance(source, Buffer):
                return self._read(source, indices)
            case Cast(Unary(UnaryOp.FLUSH, a), dtypes.bf16) if (
                self._abilities.rounds_to_bfloat and a.dtype == dtypes.f32
            ):
                return self.ops.rounded_to_bfloat(self.value(a))
            case Cast(a, dtypes.u8 | dtypes.i8 as dtype) if (parts := rounded_sum(a, dtype)) is not None:
                return rounded_to_byte(self.ops, *self._of_rounded(*parts))
            case Cast(_, dtypes.f32) if (parts := dequantized_sum(expr)) is not None:
                return rounded_to_steps(self.ops, *self._of_rounded(*parts))
            case Cast(a, dtype):
                return self.ops.cast(self.value(a), dtype)
            case Unary(UnaryOp.EXP, Binary(BinaryOp.MIN, Binary(BinaryOp.MAX, a, Const(least)), Const(0))) if (
                least == LEAST_WEIGHT.get(a.dtype)
            ):
                return self.ops.exp_of_weight(self.value(a))
            case Unary(UnaryOp.EXP, Binary(BinaryOp.MIN, a, Const(0))):
                return self.ops.exp_up_to_one(self.value(a))
            case Unary(op, a):
                return self.ops.unary(op, self.value(a))
            case Select(condition, a, b):
                return self._select(condition, a, b)
            case Binary():
                return self._binary(expr)
            case Check():
                return self._indices.place(self, expr, self._read_once(expr.index), self.env.guard)
            case _:
                raise InternalError(f"no code for {expr!r}")

    def _of_rounded(self, expr: Expr, zero: Expr) -> tuple[Value, Value, Value | None]:
        """What is rounded, the byte that is added, and one number for all lanes by which it is divided first."""
        byte = self.value(zero)
        if isinstance(expr, Binary) and expr.op is BinaryOp.DIV and expr.dtype == dtypes.f32 and self._abilities.fuses:
            dividend, divisor = self.value(expr.a), self.value(expr.b)
            if dividend.lanes > 1 == divisor.lanes == byte.lanes:
                return dividend, byte, divisor
            return self.ops.binary(BinaryOp.DIV, dividend, divisor), byte, None
        return self.value(expr), byte, None

    def _read_once(self, index: Expr) -> Value:
        """A checked index: the loaded value that is checked is also the one used, even if another thread writes
        meanwhile."""
        saved, self._once = self._once, True
        value = self.value(index)
        self._once = saved
        return value

    def _variable(self, var: Var) -> Value:
        if var == self.env.lane_variable:
            return iota(self.env.lanes)
        known = self.env.scalars.get(var)
        if known is None:
            raise InternalError(f"`{var}` has no value here")
        return known

    def _binary(self, expr: Binary) -> Value:
        op, a, b = expr.op, expr.a, expr.b
        if expr.dtype == dtypes.index and op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL):
            return self._index(expr)
        if op is BinaryOp.ADD and self._has_fma(expr.dtype):
            if isinstance(a, Binary) and a.op is BinaryOp.MUL:
                return self._contracted(a, b)
            if isinstance(b, Binary) and b.op is BinaryOp.MUL:
                return self._contracted(b, a)
        if expr.dtype.is_bool and op in (BinaryOp.AND, BinaryOp.OR) and a.dtype.is_bool and _may_fail(b):
            return self._short_circuit(op, a, b)
        return self.ops.binary(op, *self._operands(a, b))

    def _rounds_to_bfloat(self, value: Expr) -> bool:
        return self._abilities.rounds_to_bfloat and value.dtype == dtypes.f32

    def _has_fma(self, dtype: DType) -> bool:
        return dtype in (dtypes.f32, dtypes.f64) or (dtype == dtypes.f16 and self.ops.halves is Halves.COMPUTED)

    def _contracted(self, product: Binary, addend: Expr) -> Value:
        return self.ops.fma(*self._operands(product.a, product.b, addend))

    def _operands(self, *exprs: Expr) -> list[Value]:
        """The values of ``exprs``. Loads equal in all lanes are broadcast if others differ."""
        lane = self.env.lane_variable
        if lane is None or self._checks is not None or not any(lane in expr.variables for expr in exprs):
            return [self.value(expr) for expr in exprs]
        return [self._read_alike(expr, lane) or self.value(expr) for expr in exprs]

    def _read_alike(self, expr: Expr, lane: Var) -> Value | None:
        """A float read by all lanes, broadcast directly: one line less than a scalar first."""
        if not isinstance(expr, Read) or lane in expr.variables or expr.dtype not in (dtypes.f32, dtypes.f64):
            return None
        buffer, guard = expr.source, self.env.guard
        if not isinstance(buffer, Buffer) or guard.uniform is not None or guard.lanes is not None:
            return None
        place = self.env.places[buffer.name]
        if place.private:
            return None
        address = self._address(buffer, expr.indices)
        single = f"<1 x {memory_type(buffer.dtype)}>"
        text = f"load {single}, ptr {address.pointer.text}, align {address.alignment}"
        depth = self.accesses.depth_of_load(buffer, address.pointer, constant=place.constant)
        loaded = self.text.load(buffer.name, text, place.constant, depth)
        return self.ops.spread(loaded, buffer.dtype, self.env.lanes, depth)

    def _index(self, expr: Binary) -> Value:
        """Index arithmetic term by term, outermost variables first, to share partial sums."""
        form = linear_form(expr)
        if form.terms == ((expr, 1),):  # a product of two variables
            return self.ops.binary(expr.op, self.value(expr.a), self.value(expr.b))
        constant = form.constant
        total: Value | None = None
        terms: list[tuple[Value, int]] = []
        for atom, factor in form.terms:
            value = self.value(atom)
            if value.literal is not None:
                constant += value.literal * factor
            else:
                terms.append((value, factor))
        for value, factor in sorted(terms, key=lambda t: (t[0].lanes, t[0].depth)):
            scaled = value if factor == 1 else self.ops.binary(BinaryOp.MUL, value, integer(factor))
            total = scaled if total is None else self.ops.binary(BinaryOp.ADD, total, scaled)
        if total is None:
            return integer(constant)
        return self.ops.binary(BinaryOp.ADD, total, integer(constant)) if constant else total

    def _short_circuit(self, op: BinaryOp, a: Expr, b: Expr) -> Value:
        first = self.value(a)
        decides = first if op is BinaryOp.AND else self.ops.unary(UnaryOp.NOT, first)
        with_b = self._guarded(decides, b)
        return self.ops.binary(op, first, with_b)

    def _select(self, condition: Expr, a: Expr, b: Expr) -> Value:
        if isinstance(a, Select) and a.b == b:
            return self._select(condition & a.condition, a.a, b)
        if isinstance(a, Read) and isinstance(a.source, Buffer) and _is_zero(b):
            return self._read_or_zero(condition, a.source, a.indices)
        test = self.value(condition)
        if test.literal is not None:
            return self.value(a if test.literal else b)
        known = _always_read(condition)
        chosen = self._guarded(test, a) if _may_fail(a, known) else self.value(a)
        other = self._guarded(self.ops.unary(UnaryOp.NOT, test), b) if _may_fail(b, known) else self.value(b)
        return self.ops.select(test, chosen, other)

    def _read_or_zero(self, condition: Expr, source: Buffer, indices: tuple[Expr, ...]) -> Value:
        """What is read where ``condition`` holds, else zero, which loads leave where they are not active."""
        saved = self.env.guard
        for part in conjuncts(condition):
            self.env.guard = self.narrowed(self.value(part))
        never = self.env.guard.is_never
        result = literal(0, source.dtype) if never else self._read(source, indices, or_zero=True)
        self.env.guard = saved
        return result

    def _guarded(self, condition: Value, expr: Expr) -> Value:
        saved = self.env.guard
        self.env.guard = self.narrowed(condition)
        result = self.value(expr)
        self.env.guard = saved
        return result

    def narrowed(self, condition: Value) -> Guard:
        """The current guard and ``condition``."""
        guard = self.env.guard
        if condition.lanes == 1:
            both = condition if guard.uniform is None else self.ops.binary(BinaryOp.AND, guard.uniform, condition)
            return replace(guard, uniform=both)
        both = condition if guard.lanes is None else self.ops.binary(BinaryOp.AND, guard.lanes, condition)
        return replace(guard, lanes=both)

    # --- memory -----------------------------------------------------------------------------------------------

    def _address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Address:
        """The address of an element; adds offsets of the outermost variable first, literals last, at the access."""
        place, scope = self.env.places[buffer.name], self.text.scope
        form, spots = self._forms.of(lambda: (flat_form(buffer, indices), {}), buffer, indices)
        spot = spots.get(scope)
        if spot is None or not spot.is_fixed or spot.place is not place or spot.lane is not self.env.lane_variable:
            spot = spots[scope] = self._spot(place, buffer, form)
        offset = spot.offset
        for var, factor in spot.unrolled:
            offset += (self.env.scalars[var].literal or 0) * factor
        known = spot.addresses.get(offset)
        if known is None:
            known = spot.addresses[offset] = self._at(spot, buffer, offset)
        return known

    def _spot(self, place: Place, buffer: Buffer, form: LinearForm) -> Spot:
        offset, stride, is_fixed = form.constant, 0, True
        unrolled: list[tuple[Var, int]] = []
        uniform: list[tuple[Value, int]] = []
        vectors: list[tuple[Value, int]] = []
        for atom, factor in form.terms:
            if atom == self.env.lane_variable:
                stride += factor
                continue
            value = self._variable(atom) if isinstance(atom, Var) else self.value(atom)
            is_fixed = is_fixed and (isinstance(atom, Var) or not (atom.has_reads or self._has_literals(atom)))
            if value.literal is None:
                (uniform if value.lanes == 1 else vectors).append((value, factor))
            elif isinstance(atom, Var):
                unrolled.append((atom, factor))
            else:
                offset += value.literal * factor
        pointer, alignment = self._advanced(place, buffer.dtype, uniform)
        lane, is_moved = self.env.lane_variable, bool(uniform)
        numbers = alignment, offset, stride
        return Spot(place, lane, pointer, *numbers, tuple(unrolled), tuple(vectors), is_moved, is_fixed)

    def _has_literals(self, expr: Expr) -> bool:
        """Whether the value of ``expr`` may change in the next iteration of an unrolled loop."""
        known = [self.env.scalars.get(var) for var in expr.variables]
        return any(value is not None and value.literal is not None for value in known)

    def _at(self, spot: Spot, buffer: Buffer, offset: int) -> Address:
        """The address ``offset`` elements after that of ``spot``."""
        pointer, stride = spot.pointer, spot.stride
        if spot.vectors:
            offsets = self._lane_offsets(offset, stride, spot.vectors)
            return Address(pointer, None, buffer.dtype.itemsize, offsets)
        alignment = common_alignment(spot.alignment, offset * buffer.dtype.itemsize)
        if offset:
            here = f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {pointer.text}, i64 {offset}"
            pointer = Value(self.text.pure(here, self.text.depth), dtypes.index, 1, self.text.depth)
        if stride in (0, 1) or self.env.lanes == 1:
            return Address(pointer, stride, alignment, known=None if spot.is_moved else offset)
        return Address(pointer, None, buffer.dtype.itemsize, self._lane_offsets(0, stride, ()))

    def pointer(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        """The address of one element."""
        return self._address(buffer, indices).pointer

    def _advanced(self, place: Place, dtype: DType, terms: list[tuple[Value, int]]) -> tuple[Value, int]:
        """The pointer to a buffer plus each value times its factor, outermost first; and its alignment."""
        key = (place.pointer.text, dtype, tuple([(value.text, factor) for value, factor in terms]))
        known = self._pointers.get(key)
        if known is None:
            pointer, alignment = place.pointer, place.alignment
            for value, factor in sorted(terms, key=lambda t: t[0].depth):
                scaled = self.ops.binary(BinaryOp.MUL, value, integer(factor)) if factor != 1 else value
                pointer = self.accesses.advance(pointer, memory_type(dtype), scaled)
                alignment = common_alignment(alignment, factor * dtype.itemsize)
            known = self._pointers[key] = pointer, alignment
        return known

    def _lane_offsets(self, offset: int, stride: int, vectors: Sequence[tuple[Value, int]]) -> Value:
        total = self.ops.broadcast(integer(offset), self.env.lanes)
        if stride:
            total = iota(self.env.lanes, stride, offset)
        for value, factor in vectors:
            scaled = self.ops.binary(BinaryOp.MUL, value, integer(factor)) if factor != 1 else value
            total = self.ops.binary(BinaryOp.ADD, total, scaled)
        return total

    def _read(self, buffer: Buffer, indices: tuple[Expr, ...], *, or_zero: bool = False) -> Value:
        guard = self._indices.guard(self, indices, self.env.guard)
        if self._checks is not None:
            guard = self._checks.narrow(self, buffer, indices, guard)
        address = self._address(buffer, indices)
        return self.accesses.load(buffer, address, guard, once=self._once, or_zero=or_zero)

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
        """``buffer[indices] = value``, under the current guard (whose uniform part is already a branch)."""
        guard = self._indices.guard(self, indices, self.env.guard)
        if self._checks is not None:
            guard = self._checks.narrow(self, buffer, indices, guard)
        self.accesses.store(buffer, self._address(buffer, indices), guard, value)

    def store_first(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value, count: int) -> None:
        """Store the first ``count`` lanes of ``value`` (in memory form) contiguously from ``indices`` on."""
        self.accesses.store_first(buffer, self._address(buffer, indices), value, count)


def _is_zero(expr: Expr) -> bool:
    """Whether ``expr`` is a zero, all of whose bits are 0."""
    return isinstance(expr, Const) and expr.value == 0 and copysign(1.0, expr.value) > 0


def _may_fail(expr: Expr, known: Collection[Read] = ()) -> bool:
    """Whether speculative evaluation of ``expr`` could access memory out of bounds, other than what is read anyway, or
    report an index."""
    return expr.has_reads and not (known and all(_is_safe(part, known) for part in walk(expr)))


def _is_safe(part: Expr, known: Collection[Read]) -> bool:
    return not isinstance(part, Check) and (not isinstance(part, Read) or part in known)


def _always_read(condition: Expr) -> Collection[Read]:
    """What is read whenever ``condition`` is evaluated: a comparison of numbers in which nothing is chosen."""
    if not condition.has_reads:
        return ()
    parts = (part for operand in condition.operands() for part in walk(operand))
    return () if any(isinstance(part, Select) or part.dtype.is_bool for part in parts) else set(reads_in(condition))
