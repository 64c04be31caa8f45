"""Emits loads and stores of one element or of lanes.

An access with lane stride one is a vector load or store, with stride zero a scalar one; lanes close together are loaded
contiguously and permuted; anything else is a gather or scatter. Guarded memory is not accessed: under a false uniform
guard, a load reads from a block of zeros instead; a guard that differs between lanes becomes the mask of the access.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.checks import Guard
from tilewright.backend.cpu.places import Address, Place, Runs, active_lanes, runs_of, suffix_of, vector_of
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, integer, integers, literal, memory_type
from tilewright.base import dtypes
from tilewright.base.errors import InternalError
from tilewright.loops.ir import Buffer
from tilewright.symbolic.expr import ONE, Var
from tilewright.symbolic.operations import BinaryOp

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


class AccessEmitter:
    """Emits accesses in one function."""

    def __init__(
        self, text: FunctionText, environment: Environment, ops: ArithmeticEmitter, *, has_masks: bool
    ) -> None:
        """``has_masks``: whether the processor loads and stores some lanes of a vector as fast as all."""
        self._has_masks = has_masks
        self.text = text
        self.env = environment
        self.ops = ops

    def load(
        self, buffer: Buffer, address: Address, guard: Guard, *, once: bool = False, or_zero: bool = False
    ) -> Value:
        """The lanes at ``address``, where ``guard`` allows; ``once``: read atomically, if it is one element;
        ``or_zero``: with zeros elsewhere."""
        place = self.env.places[buffer.name]
        if self._is_inside(place, address):
            value = self._from_memory(self._private_load(buffer, address), buffer)
            return self._where(guard, value) if or_zero else value
        self.text.registers.keep(buffer.name)
        leaves_zeros = guard.lanes is None
        if address.stride is None and (runs := self._runs(address, active_lanes(guard.lanes))) is not None:
            loaded = self._permuted_load(buffer, address, runs, guard)
        elif address.stride is None and (runs := self._apart(address)) is not None:
            loaded, leaves_zeros = self._masked_permuted_load(buffer, address, runs, guard), True
        elif address.stride is None or (address.stride == 1 and guard.lanes is not None):
            loaded, leaves_zeros = self._masked_load(buffer, address, guard), True
        else:
            loaded = self._plain_load(buffer, address, guard, place.constant, once=once)
        value = self._from_memory(loaded, buffer)
        return self._where(Guard(lanes=guard.lanes), value) if or_zero and not leaves_zeros else value

    def _where(self, guard: Guard, value: Value) -> Value:
        """``value`` where ``guard`` holds, else zero."""
        for condition in (guard.uniform, guard.lanes):
            if condition is not None:
                value = self.ops.select(condition, value, literal(0, value.dtype))
        return value

    def store(self, buffer: Buffer, address: Address, guard: Guard, value: Value) -> None:
        """Store ``value`` at ``address``, where ``guard`` allows (its uniform part is already a branch)."""
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

    def store_first(self, buffer: Buffer, address: Address, value: Value, count: int) -> None:
        """Store the first ``count`` lanes of ``value`` (in memory form) contiguously from ``address`` on."""
        self._store_lanes(buffer, address, value, tuple(int(lane < count) for lane in range(value.lanes)))
        self.text.forget(buffer.name)

    def _store_lanes(self, buffer: Buffer, address: Address, value: Value, active: tuple[int, ...]) -> None:
        """Store the ``active`` lanes of ``value`` contiguously from ``address`` on: by the mask, or as few vectors of
        1, 2, 4, ... lanes."""
        pieces = list(pieces_of(active))
        if self._has_masks and len(pieces) > 1:
            self._store_masked(buffer, value, address, integers(active, dtypes.boolean))
            return
        element, vector = memory_type(buffer.dtype), vector_of(memory_type(buffer.dtype), value.lanes)
        for first, count in pieces:
            order = ", ".join(f"i32 {lane}" for lane in range(first, first + count))
            text = value.text
            if count == 1:
                text = self.text.pure(f"extractelement {vector} {value.text}, i64 {first}", value.depth)
            elif count < value.lanes:
                shuffle = f"shufflevector {vector} {value.text}, {vector} poison, <{count} x i32> <{order}>"
                text = self.text.pure(shuffle, value.depth)
            pointer = self.advance(address.pointer, element, integer(first)) if first else address.pointer
            alignment = gcd(address.alignment, first * buffer.dtype.itemsize)
            self.text.effect(f"store {vector_of(element, count)} {text}, ptr {pointer.text}, align {alignment}")

    def to_memory(self, value: Value, lanes: int) -> Value:
        """``value`` in all lanes, in memory form."""
        value = self.ops.broadcast(value, lanes)
        return self.ops.cast(value, dtypes.u8) if value.dtype.is_bool else value

    def advance(self, pointer: Value, element: str, offset: Value) -> Value:
        """``pointer``, moved by ``offset`` elements of the type ``element``."""
        depth = max(pointer.depth, offset.depth)
        text = f"getelementptr inbounds {element}, ptr {pointer.text}, i64 {offset.text}"
        return Value(self.text.pure(text, depth), dtypes.index, 1, depth)

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

    def _plain_load(
        self, buffer: Buffer, address: Address, guard: Guard, constant: bool, *, once: bool = False
    ) -> Value:
        lanes = self.env.lanes if address.stride == 1 else 1
        pointer = address.pointer
        alignment = address.alignment
        condition = guard.uniform
        if guard.lanes is not None:  # a scalar for all lanes: loaded if any lane is active
            any_lane = self.ops.any_lane(guard.lanes)
            condition = any_lane if condition is None else self.ops.binary(BinaryOp.AND, condition, any_lane)
        if condition is not None:
            pointer = self._diverted(pointer, condition)
        if lanes > 1:
            self._ask_ahead(pointer, lanes * buffer.dtype.itemsize, self.env.places[buffer.name])
        of = vector_of(memory_type(buffer.dtype), lanes)
        how = ("load atomic", " unordered") if once and lanes == 1 else ("load", "")
        text = f"{how[0]} {of}, ptr {pointer.text}{how[1]}, align {alignment}"
        depth = self.depth_of_load(buffer, pointer, constant=constant and not once)
        return Value(self.text.load(buffer.name, text, constant, depth), buffer.dtype, lanes, depth)

    def _diverted(self, pointer: Value, condition: Value) -> Value:
        """``pointer`` where the uniform ``condition`` holds, else one to zeros."""
        if condition.literal == 1:
            return pointer
        depth = max(pointer.depth, condition.depth)
        text = f"select {condition.typed}, ptr {pointer.text}, ptr {ZEROS}"
        return Value(self.text.pure(text, depth), dtypes.index, 1, depth)

    def depth_of_load(self, buffer: Buffer, pointer: Value, *, constant: bool) -> int:
        """The scope where a load may be: that of its address, if it is of the only element of what does not
        change (a scale, a zero point); else this one."""
        is_single = all(extent == ONE for extent in buffer.shape)
        return pointer.depth if constant and is_single else self.text.depth

    def _ask_ahead(self, pointer: Value, size: int, place: Place) -> None:
        """Prefetch the cache lines ``place.ahead`` bytes after ``size`` bytes at ``pointer``, for any address; of a
        distance that depends on loops, the first one, and in the first iteration of unrolled loops that add nothing."""
        if not (distance := place.ahead) or not all(loop in self.env.scalars for loop, _ in place.ahead_steps):
            return
        if any(step == 0 and self.env.scalars[loop].literal for loop, step in place.ahead_steps):
            return
        self.text.declare("declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)")
        for loop, step in place.ahead_steps:
            pointer = self._moved(pointer, self.ops.binary(BinaryOp.MUL, self.env.scalars[loop], integer(step)))
            size = LINE
        for offset in range(distance, distance + size, LINE):
            line = self._moved(pointer, integer(offset))
            self.text.hint(f"call void @llvm.prefetch.p0(ptr {line.text}, i32 0, i32 {4 - place.ahead_cache}, i32 1)")

    def _moved(self, pointer: Value, offset: Value) -> Value:
        """``pointer``, moved by ``offset`` bytes, perhaps beyond what it points to."""
        depth = max(pointer.depth, offset.depth)
        text = self.text.pure(f"getelementptr i8, ptr {pointer.text}, i64 {offset.text}", depth)
        return Value(text, dtypes.index, 1, depth)

    def _permuted_load(self, buffer: Buffer, address: Address, runs: Runs, guard: Guard) -> Value:
        """Lanes from a few runs of memory: contiguous loads and permutations. Inactive lanes hold any elements."""
        guard, constant = replace(guard, lanes=None), self.env.places[buffer.name].constant
        parts = [
            self._first_lanes(buffer, self._beyond(buffer, address, first), count, guard, constant)
            for first, count in runs.spans
        ]
        return self._picked(buffer, parts, runs.places)

    def _masked_permuted_load(self, buffer: Buffer, address: Address, runs: Runs, guard: Guard) -> Value:
        """The same for lanes of different elements, some of which may be inactive: these may be outside of the buffer.

        Masked loads and permutations take less time than a gather.
        """
        mask, lanes = self._mask(replace(guard, uniform=None)), self.env.lanes
        lane_at = {place: lane for lane, place in enumerate(runs.places)}
        parts: list[Value] = []
        for run, (first, _) in enumerate(runs.spans):
            order = tuple(lane_at.get((run, position), lanes) for position in range(lanes))
            chosen = self._shuffled(mask.type, mask.text, "zeroinitializer", order, mask.depth)
            active = Value(chosen, mask.dtype, lanes, mask.depth)
            whole = self._beyond(buffer, address, first)
            parts.append(self._masked_load(buffer, whole, replace(guard, lanes=active)))
        return self._picked(buffer, parts, runs.places)

    def _runs(self, address: Address, active: tuple[int, ...] | None) -> Runs | None:
        return runs_of(address.offsets, active, has_masks=self._has_masks)

    def _apart(self, address: Address) -> Runs | None:
        """The runs of the lanes' elements, if these are known, different, and in few runs."""
        runs = self._runs(address, ())
        return runs if runs is not None and len(set(runs.places)) == self.env.lanes else None

    def _beyond(self, buffer: Buffer, address: Address, offset: int) -> Address:
        """Contiguous lanes from ``offset`` elements after ``address`` on."""
        moved = self.advance(address.pointer, memory_type(buffer.dtype), integer(offset)) if offset else address.pointer
        return Address(moved, 1, address.alignment)

    def _picked(self, buffer: Buffer, parts: list[Value], places: tuple[tuple[int, int], ...]) -> Value:
        """For each lane, the element of a part at a position: ``places``.

        Different positions in three parts and more (a stride of 3) are blended, then permuted once; others are picked
        from two parts at a time, then blended.
        """
        lanes, depth = self.env.lanes, max(part.depth for part in parts)
        vector, positions = vector_of(memory_type(buffer.dtype), lanes), tuple(position for _, position in places)
        if len(parts) > 2 and len(set(positions)) == lanes:
            source = {position: parts[part].text for part, position in places}
            blended = self._blended(vector, tuple(source[lane] for lane in range(lanes)), depth)
            text = self._shuffled(vector, blended, blended, positions, depth)
        else:
            picked: list[str] = []
            for low in range(0, len(parts), 2):
                high = min(low + 1, len(parts) - 1)
                order = tuple(position + lanes * (part == high != low) for part, position in places)
                picked.append(self._shuffled(vector, parts[low].text, parts[high].text, order, depth))
            text = self._blended(vector, tuple(picked[part // 2] for part, _ in places), depth)
        return Value(text, buffer.dtype, lanes, depth)

    def _blended(self, vector: str, sources: tuple[str, ...], depth: int) -> str:
        """A vector whose lanes are those of ``sources``, one for each."""
        result, lanes = sources[0], len(sources)
        for other in dict.fromkeys(sources[1:]):
            if other != sources[0]:
                order = tuple(lane + lanes * (source == other) for lane, source in enumerate(sources))
                result = self._shuffled(vector, result, other, order, depth)
        return result

    def _shuffled(self, vector: str, first: str, second: str, order: tuple[int, ...], depth: int) -> str:
        """The lanes of two vectors of this type in an ``order``; those of ``second`` come after those of ``first``."""
        lanes = ", ".join(f"i32 {lane}" for lane in order)
        line = f"shufflevector {vector} {first}, {vector} {second}, <{len(order)} x i32> <{lanes}>"
        return self.text.pure(line, depth)

    def _first_lanes(self, buffer: Buffer, address: Address, count: int, guard: Guard, constant: bool) -> Value:
        """A vector with the first ``count`` lanes loaded."""
        if count >= self.env.lanes:
            return self._plain_load(buffer, address, guard, constant)
        mask = integers(tuple(int(lane < count) for lane in range(self.env.lanes)), dtypes.boolean)
        return self._masked_load(buffer, address, replace(guard, lanes=mask))

    def _masked_load(self, buffer: Buffer, address: Address, guard: Guard) -> Value:
        lanes = self.env.lanes
        vector = vector_of(memory_type(buffer.dtype), lanes)
        if address.stride == 1 and guard.uniform is not None:  # masks stay the same for all rows
            address = replace(address, pointer=self._diverted(address.pointer, guard.uniform))
            guard = replace(guard, uniform=None)
        mask = self._mask(guard)
        name, pointers, place = self._masked("load", "gather", buffer, address, lanes)
        self.text.declare(f"declare {vector} @{name}({pointers}, i32, {mask.type}, {vector})")
        args = f"{place}, {mask.typed}, {vector} zeroinitializer"
        call, constant = f"call {vector} @{name}({args})", self.env.places[buffer.name].constant
        loaded = self.text.load(buffer.name, call, constant, self.text.depth)
        return Value(loaded, buffer.dtype, lanes, self.text.depth)

    def _from_memory(self, value: Value, buffer: Buffer) -> Value:
        if not buffer.dtype.is_bool:
            return value
        vector = vector_of("i8", value.lanes)
        zero = "0" if value.lanes == 1 else "zeroinitializer"
        text = self.text.pure(f"icmp ne {vector} {value.text}, {zero}", value.depth)
        return Value(text, dtypes.boolean, value.lanes, value.depth)

    def _private_store(self, buffer: Buffer, stored: Value, address: Address, mask: Value | None) -> None:
        """Store to a buffer on the stack, at a literal offset; lanes not in ``mask`` keep their values."""
        if mask is not None:
            old = replace(self._private_load(buffer, address), dtype=stored.dtype)
            stored = self.ops.select(mask, stored, old)
        text = f"store {stored.typed}, ptr {address.pointer.text}, align {address.alignment}"
        self.text.store_private(buffer.name, address.known or 0, stored, text)

    def _masked_store(self, buffer: Buffer, stored: Value, address: Address, guard: Guard, scalar: bool) -> None:
        if scalar:
            if guard.uniform is None:
                raise InternalError("a masked scalar store without a condition")
            label = self.text.open_branch()
            self.text.effect(f"store {stored.typed}, ptr {address.pointer.text}, align {address.alignment}")
            self.text.branch(guard.uniform, [(label, self.text.close_branch()[1])])
            return
        mask = self._mask(guard)
        if address.stride == 1 and mask.constants is not None:
            self._store_lanes(buffer, address, stored, mask.constants)
        else:
            self._store_masked(buffer, stored, address, mask)

    def _store_masked(self, buffer: Buffer, stored: Value, address: Address, mask: Value) -> None:
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

    def _lane_pointers(self, buffer: Buffer, address: Address) -> Value:
        """The address of each lane."""
        offsets = address.offsets or self.ops.broadcast(integer(0), self.env.lanes)
        depth = max(address.pointer.depth, offsets.depth)
        text = f"getelementptr {memory_type(buffer.dtype)}, ptr {address.pointer.text}, {offsets.typed}"
        return Value(self.text.pure(text, depth), dtypes.index, self.env.lanes, depth)

    def _mask(self, guard: Guard) -> Value:
        mask = guard.lanes or literal(True, dtypes.boolean, self.env.lanes)
        if guard.uniform is not None:
            mask = self.ops.binary(BinaryOp.AND, mask, guard.uniform)
        return self.ops.broadcast(mask, self.env.lanes)


def pieces_of(active: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first lane and the number of lanes of the fewest aligned pieces of 1, 2, 4, ... lanes, all ``active``."""
    first, most = 0, 1 << (len(active).bit_length() - 1)
    while first < len(active):
        count = most
        while count > 1 and (first % count or sum(active[first : first + count]) < count):
            count //= 2
        if active[first]:
            yield first, count
        first += count
