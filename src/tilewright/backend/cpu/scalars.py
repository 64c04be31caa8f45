"""Emits scalar expressions, loads and stores, on scalars or lanes.

Inside a vectorized loop an expression is evaluated once, with vectors where its value differs between the lanes. An
access whose index has lane stride one is a vector load or store, stride zero a scalar one; lanes close together are
loaded contiguously and permuted; anything else is a gather or scatter. Guarded memory is not accessed: under a false
uniform guard, a load reads from a block of zeros instead; a guard that differs between lanes becomes the mask of the
access.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.checks import BoundsChecks, Guard, IndexChecks
from tilewright.backend.cpu.offsets import LinearForm, flat_form, linear_form
from tilewright.backend.cpu.places import (
    Address,
    Place,
    Spot,
    active_lanes,
    common_alignment,
    near_lanes,
    suffix_of,
    vector_of,
)
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, integer, integers, iota, literal, memory_type
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.base.identity import ByIdentity
from tilewright.loops.ir import Buffer
from tilewright.symbolic.check import Check
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Unary, Var
from tilewright.symbolic.operations import BinaryOp, UnaryOp

ZEROS = "@tw_zeros"
"""A block of zeros that guarded loads are diverted to."""
ZEROS_BYTES = 4096

LINE = 64
"""Bytes of a cache line, on all supported targets."""


@dataclass(slots=True)
class Environment:
    """The values of names at the current place of a function."""

    scalars: dict[Var, Value] = field(default_factory=dict[Var, Value])
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    lane_variable: Var | None = None
    lanes: int = 1
    guard: Guard = field(default_factory=Guard)


class ScalarEmitter:
    """Emits expressions in one function."""

    def __init__(
        self,
        text: FunctionText,
        environment: Environment,
        indices: IndexChecks,
        accesses: BoundsChecks | None,
        *,
        rounds_to_bfloat: bool = False,
    ) -> None:
        """``rounds_to_bfloat``: whether the processor has an instruction that flushes and rounds."""
        self.text = text
        self.env = environment
        self.ops = ArithmeticEmitter(text)
        self._indices = indices
        self._checks = accesses
        self._once = False
        self._rounds_to_bfloat = rounds_to_bfloat
        self._forms = ByIdentity[tuple[LinearForm, dict[int, Spot]]]()
        """Keyed by buffer and indices; and by the scope, if in memory."""

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
            case Cast(Unary(UnaryOp.FLUSH, a), dtypes.bf16) if self._rounds_to_bfloat and a.dtype == dtypes.f32:
                return self.ops.rounded_to_bfloat(self.value(a))
            case Cast(a, dtype):
                return self.ops.cast(self.value(a), dtype)
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
        if op is BinaryOp.ADD and expr.dtype in (dtypes.f32, dtypes.f64):
            if isinstance(a, Binary) and a.op is BinaryOp.MUL:
                return self._contracted(a, b)
            if isinstance(b, Binary) and b.op is BinaryOp.MUL:
                return self._contracted(b, a)
        if expr.dtype.is_bool and op in (BinaryOp.AND, BinaryOp.OR) and a.dtype.is_bool and _may_fail(b):
            return self._short_circuit(op, a, b)
        return self.ops.binary(op, *self._operands(a, b))

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
        return self.ops.spread(self.text.load(buffer.name, text, place.constant), buffer.dtype, self.env.lanes)

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
        test = self.value(condition)
        if test.literal is not None:
            return self.value(a if test.literal else b)
        chosen = self._guarded(test, a) if _may_fail(a) else self.value(a)
        other = self._guarded(self.ops.unary(UnaryOp.NOT, test), b) if _may_fail(b) else self.value(b)
        return self.ops.select(test, chosen, other)

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
        made = self.text.pointers(max([place.pointer.depth, *[value.depth for value, _ in terms]]))
        known = made.get(key)
        if known is None:
            pointer, alignment = place.pointer, place.alignment
            for value, factor in sorted(terms, key=lambda t: t[0].depth):
                scaled = self.ops.binary(BinaryOp.MUL, value, integer(factor)) if factor != 1 else value
                pointer = self._advance(pointer, memory_type(dtype), scaled)
                alignment = common_alignment(alignment, factor * dtype.itemsize)
            known = made[key] = pointer, alignment
        return known

    def _advance(self, pointer: Value, element: str, offset: Value) -> Value:
        depth = max(pointer.depth, offset.depth)
        text = f"getelementptr inbounds {element}, ptr {pointer.text}, i64 {offset.text}"
        return Value(self.text.pure(text, depth), dtypes.index, 1, depth)

    def _lane_offsets(self, offset: int, stride: int, vectors: Sequence[tuple[Value, int]]) -> Value:
        total = self.ops.broadcast(integer(offset), self.env.lanes)
        if stride:
            total = iota(self.env.lanes, stride, offset)
        for value, factor in vectors:
            scaled = self.ops.binary(BinaryOp.MUL, value, integer(factor)) if factor != 1 else value
            total = self.ops.binary(BinaryOp.ADD, total, scaled)
        return total

    def _lane_pointers(self, buffer: Buffer, address: Address) -> Value:
        """The address of each lane."""
        offsets = address.offsets or self.ops.broadcast(integer(0), self.env.lanes)
        depth = max(address.pointer.depth, offsets.depth)
        text = f"getelementptr {memory_type(buffer.dtype)}, ptr {address.pointer.text}, {offsets.typed}"
        return Value(self.text.pure(text, depth), dtypes.index, self.env.lanes, depth)

    def _read(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value:
        guard = self._indices.guard(self, indices, self.env.guard)
        if self._checks is not None:
            guard = self._checks.narrow(self, buffer, indices, guard)
        address = self._address(buffer, indices)
        place = self.env.places[buffer.name]
        if self._is_inside(place, address):
            return self._from_memory(self._private_load(buffer, address), buffer)
        self.text.registers.keep(buffer.name)
        if address.stride is None and (near := near_lanes(address.offsets, active_lanes(guard.lanes))) is not None:
            loaded = self._permuted_load(buffer, address, near, guard)
        elif address.stride is None and (near := self._apart(address)) is not None:
            loaded = self._masked_permuted_load(buffer, address, near, guard)
        elif address.stride is None or (address.stride == 1 and guard.lanes is not None):
            loaded = self._masked_load(buffer, address, guard)
        else:
            loaded = self._plain_load(buffer, address, guard, place.constant)
        return self._from_memory(loaded, buffer)

    def _is_inside(self, place: Place, address: Address) -> bool:
        """Whether all lanes of a contiguous access are within a buffer on the stack: it may then ignore its guard."""
        if address.known is None or address.stride is None:
            return False
        lanes = self.env.lanes if address.stride == 1 else 1
        first, beyond = address.known, address.known + lanes
        return first >= 0 and beyond <= place.private

    def _private_load(self, buffer: Buffer, address: Address) -> Value:
        """The value in a buffer on the stack, at a literal offset."""
        lanes, offset = self.env.lanes if address.stride == 1 else 1, address.known or 0
        known = self.text.registers.find(buffer.name, offset, lanes)
        if known is None:
            of = vector_of(memory_type(buffer.dtype), lanes)
            text = self.text.emit(f"load {of}, ptr {address.pointer.text}, align {address.alignment}")
            known = Value(text, buffer.dtype, lanes, self.text.depth)
            self.text.registers.loaded(buffer.name, offset, known)
        return known

    def _plain_load(self, buffer: Buffer, address: Address, guard: Guard, constant: bool) -> Value:
        lanes = self.env.lanes if address.stride == 1 else 1
        pointer = address.pointer
        alignment = address.alignment
        condition = guard.uniform
        if guard.lanes is not None:  # a scalar for all lanes: loaded if any lane is active
            any_lane = self.ops.any_lane(guard.lanes)
            condition = any_lane if condition is None else self.ops.binary(BinaryOp.AND, condition, any_lane)
        if condition is not None and condition.literal != 1:
            depth = max(pointer.depth, condition.depth)
            text = f"select {condition.typed}, ptr {pointer.text}, ptr {ZEROS}"
            pointer = Value(self.text.pure(text, depth), dtypes.index, 1, depth)
        if lanes > 1:
            self._ask_ahead(pointer, lanes * buffer.dtype.itemsize, self.env.places[buffer.name])
        of = vector_of(memory_type(buffer.dtype), lanes)
        how = ("load atomic", " unordered") if self._once and lanes == 1 else ("load", "")
        text = f"{how[0]} {of}, ptr {pointer.text}{how[1]}, align {alignment}"
        return Value(self.text.load(buffer.name, text, constant), buffer.dtype, lanes, self.text.depth)

    def _ask_ahead(self, pointer: Value, size: int, place: Place) -> None:
        """Prefetch the cache lines ``place.ahead`` bytes after ``size`` bytes at ``pointer``, for any address."""
        if distance := place.ahead:
            self.text.declare("declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)")
            for offset in range(distance, distance + size, LINE):
                line = self.text.pure(f"getelementptr i8, ptr {pointer.text}, i64 {offset}", pointer.depth)
                self.text.hint(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 {4 - place.ahead_cache}, i32 1)")

    def _mask(self, guard: Guard) -> Value:
        mask = guard.lanes or literal(True, dtypes.boolean, self.env.lanes)
        if guard.uniform is not None:
            mask = self.ops.binary(BinaryOp.AND, mask, guard.uniform)
        return self.ops.broadcast(mask, self.env.lanes)

    def _permuted_load(self, buffer: Buffer, address: Address, near: tuple[int, ...], guard: Guard) -> Value:
        """Lanes from a short range of memory: a contiguous load and a permutation.

        The whole range is in the buffer, as its first and its last element are. Inactive lanes hold any elements of it.
        """
        guard = replace(guard, lanes=None)
        first, lanes, element = min(near), self.env.lanes, memory_type(buffer.dtype)
        base = self._advance(address.pointer, element, integer(first)) if first else address.pointer
        whole = Address(base, 1, address.alignment)
        constant = self.env.places[buffer.name].constant
        length = max(near) - first + 1
        low = self._first_lanes(buffer, whole, length, guard, constant)
        high = low
        if length > lanes:
            above = replace(whole, pointer=self._advance(base, element, integer(lanes)))
            high = self._first_lanes(buffer, above, length - lanes, guard, constant)
        order = ", ".join(f"i32 {offset - first}" for offset in near)
        depth = max(low.depth, high.depth)
        vector = vector_of(element, lanes)
        shuffle = f"shufflevector {vector} {low.text}, {vector} {high.text}, <{lanes} x i32> <{order}>"
        text = self.text.pure(shuffle, depth)
        return Value(text, buffer.dtype, lanes, depth)

    def _masked_permuted_load(self, buffer: Buffer, address: Address, near: tuple[int, ...], guard: Guard) -> Value:
        """The same for lanes of different elements, some of which may be inactive: these may be outside of the buffer.

        Two masked loads and a permutation take less time than a gather.
        """
        mask, lanes, element = self._mask(guard), self.env.lanes, memory_type(buffer.dtype)
        lane_of = {offset - min(near): lane for lane, offset in enumerate(near)}
        parts: list[Value] = []
        for first in range(0, max(lane_of) + 1, lanes):
            base = self._advance(address.pointer, element, integer(min(near) + first))
            order = ", ".join(f"i32 {lane_of.get(place, lanes)}" for place in range(first, first + lanes))
            chosen = f"shufflevector {mask.typed}, {mask.type} zeroinitializer, <{lanes} x i32> <{order}>"
            active = Value(self.text.pure(chosen, mask.depth), mask.dtype, lanes, mask.depth)
            part = Address(base, 1, address.alignment)
            parts.append(self._masked_load(buffer, part, Guard(lanes=active)))
        depth = max(part.depth for part in parts)
        order = ", ".join(f"i32 {offset - min(near)}" for offset in near)
        shuffle = f"shufflevector {parts[0].typed}, {parts[-1].typed}, <{lanes} x i32> <{order}>"
        return Value(self.text.pure(shuffle, depth), buffer.dtype, lanes, depth)

    def _apart(self, address: Address) -> tuple[int, ...] | None:
        """The lanes' offsets, if they are known, different, and within the length of two vectors."""
        near = near_lanes(address.offsets, ())
        return near if near is not None and len(set(near)) == self.env.lanes else None

    def _first_lanes(self, buffer: Buffer, address: Address, count: int, guard: Guard, constant: bool) -> Value:
        """A vector with the first ``count`` lanes loaded."""
        if count >= self.env.lanes:
            return self._plain_load(buffer, address, guard, constant)
        mask = integers(tuple(int(lane < count) for lane in range(self.env.lanes)), dtypes.boolean)
        return self._masked_load(buffer, address, replace(guard, lanes=mask))

    def _masked_load(self, buffer: Buffer, address: Address, guard: Guard) -> Value:
        lanes = self.env.lanes
        vector = vector_of(memory_type(buffer.dtype), lanes)
        mask = self._mask(guard)
        name, pointers, place = self._masked("load", "gather", buffer, address, lanes)
        self.text.declare(f"declare {vector} @{name}({pointers}, i32, {mask.type}, {vector})")
        args = f"{place}, {mask.typed}, {vector} zeroinitializer"
        loaded = self.text.load(buffer.name, f"call {vector} @{name}({args})", self.env.places[buffer.name].constant)
        return Value(loaded, buffer.dtype, lanes, self.text.depth)

    def _from_memory(self, value: Value, buffer: Buffer) -> Value:
        if not buffer.dtype.is_bool:
            return value
        vector = vector_of("i8", value.lanes)
        zero = "0" if value.lanes == 1 else "zeroinitializer"
        text = self.text.pure(f"icmp ne {vector} {value.text}, {zero}", value.depth)
        return Value(text, dtypes.boolean, value.lanes, value.depth)

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value) -> None:
        """``buffer[indices] = value``, under the current guard (whose uniform part is already a branch)."""
        guard = self._indices.guard(self, indices, self.env.guard)
        if self._checks is not None:
            guard = self._checks.narrow(self, buffer, indices, guard)
        address = self._address(buffer, indices)
        if address.stride == 0 and (value.lanes > 1 or guard.lanes is not None):
            address = Address(address.pointer, None, buffer.dtype.itemsize)
        scalar = address.stride == 0 or self.env.lanes == 1
        stored = self.to_memory(value, 1 if scalar else self.env.lanes)
        if guard.uniform is None and self._is_inside(self.env.places[buffer.name], address):
            self._private_store(buffer, stored, address, guard.lanes)
            return
        if address.stride is None or guard.lanes is not None or guard.uniform is not None:
            self._masked_store(buffer, stored, address, guard, scalar)
        else:
            self.text.effect(f"store {stored.typed}, ptr {address.pointer.text}, align {address.alignment}")
        self.text.forget(buffer.name)

    def _private_store(self, buffer: Buffer, stored: Value, address: Address, mask: Value | None) -> None:
        """Store to a buffer on the stack, at a literal offset; lanes not in ``mask`` keep their values."""
        if mask is not None:
            old = replace(self._private_load(buffer, address), dtype=stored.dtype)
            stored = self.ops.select(mask, stored, old)
        text = f"store {stored.typed}, ptr {address.pointer.text}, align {address.alignment}"
        self.text.store_private(buffer.name, address.known or 0, stored, text)

    def store_first(self, buffer: Buffer, indices: tuple[Expr, ...], value: Value, count: int) -> None:
        """Store the first ``count`` lanes of ``value`` (in memory form) contiguously from ``indices`` on."""
        address = self._address(buffer, indices)
        vector, element = vector_of(memory_type(buffer.dtype), value.lanes), memory_type(buffer.dtype)
        if count > 1 and count & (count - 1) == 0:
            order = ", ".join(f"i32 {lane}" for lane in range(count))
            shuffle = f"shufflevector {vector} {value.text}, {vector} poison, <{count} x i32> <{order}>"
            text = value.text if count == value.lanes else self.text.pure(shuffle, value.depth)
            part = vector_of(element, count)
            self.text.effect(f"store {part} {text}, ptr {address.pointer.text}, align {address.alignment}")
        else:
            mask = integers(tuple(int(lane < count) for lane in range(value.lanes)), dtypes.boolean)
            name = f"llvm.masked.store.v{value.lanes}{suffix_of(element)}.p0"
            self.text.declare(f"declare void @{name}({value.type}, ptr, i32, {mask.type})")
            args = f"{value.typed}, ptr {address.pointer.text}, i32 {address.alignment}, {mask.typed}"
            self.text.effect(f"call void @{name}({args})")
        self.text.forget(buffer.name)

    def to_memory(self, value: Value, lanes: int) -> Value:
        """``value`` in all lanes, in memory form."""
        value = self.ops.broadcast(value, lanes)
        return self.ops.cast(value, dtypes.u8) if value.dtype.is_bool else value

    def _masked_store(self, buffer: Buffer, stored: Value, address: Address, guard: Guard, scalar: bool) -> None:
        if scalar:
            if guard.uniform is None:
                raise InternalError("a masked scalar store without a condition")
            label = self.text.open_branch()
            self.text.effect(f"store {stored.typed}, ptr {address.pointer.text}, align {address.alignment}")
            self.text.branch(guard.uniform, [(label, self.text.close_branch()[1])])
            return
        mask = self._mask(guard)
        name, pointers, place = self._masked("store", "scatter", buffer, address, stored.lanes)
        self.text.declare(f"declare void @{name}({stored.type}, {pointers}, i32, {mask.type})")
        self.text.effect(f"call void @{name}({stored.typed}, {place}, {mask.typed})")

    def _masked(self, dense: str, apart: str, buffer: Buffer, address: Address, lanes: int) -> tuple[str, str, str]:
        """An intrinsic, the type of its pointers, and the pointers with alignment: ``apart`` takes one per lane."""
        element = suffix_of(memory_type(buffer.dtype))
        if address.stride is None:
            name, pointers = f"llvm.masked.{apart}.v{lanes}{element}.v{lanes}p0", f"<{lanes} x ptr>"
            pointer = self._lane_pointers(buffer, address)
        else:
            name, pointers, pointer = f"llvm.masked.{dense}.v{lanes}{element}.p0", "ptr", address.pointer
        return name, pointers, f"{pointers} {pointer.text}, i32 {address.alignment}"


def _may_fail(expr: Expr) -> bool:
    """Whether speculative evaluation of ``expr`` could access memory out of bounds."""
    return expr.has_reads
