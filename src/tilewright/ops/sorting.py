"""Ordering along one axis: ``ArgMax``, ``ArgMin`` and ``TopK``.

NaN comes before all numbers in ``ArgMax`` and ``ArgMin``, as in NumPy; for ``TopK`` it is larger than all numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.base.dtypes import i64
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import alloc, extern, for_range, if_then, seq, store
from tilewright.loops.ir import Buffer, LoopKind, Stmt
from tilewright.ops.build import Index, for_each, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import normalize_axis, static
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, as_expr, binary, const, equal, minimum, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.target.machine import Machine
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor
from tilewright.tensor.reducers import TupleReduction

_LONGEST = 62
"""Maximum passes of a merge sort: the logarithm of how many elements an array may have."""
INSERTION_LIMIT = 32
"""Number of results up to which a sorted list is kept; for more, the whole row is sorted. Where two algorithms
cross, and no figure of a processor: insertion takes steps in proportion to it, sorting in proportion to a logarithm."""
PARALLEL_WORK = Machine().parallel_work // 2
"""Number of elements from which rows run in parallel: each is compared and moved, which takes two operations. The
figure is that of an unknown machine, as operators are written before a target is known: shapes and values of a graph
must not depend on it."""


def _place_of_extreme(
    name: str, reducer: Callable[..., TupleReduction], x: Tensor, axis: int, select_last_index: bool
) -> Tensor:
    """The index along ``axis`` of the element that ``reducer`` keeps: the lowest; with negated indices, the last."""
    at = normalize_axis(axis, x.ndim)
    if x.shape[at] == ZERO:
        raise BadProgram(f"{name}: dimension {at} of {x} is empty, so that it has no extreme element")
    k = te.reduce_axis((0, x.shape[at]), name="k")
    shape = (*x.shape[:at], ONE, *x.shape[at + 1 :])

    def best(*index: Expr) -> TupleReduction:
        return reducer((-k.var if select_last_index else k.var, x[(*index[:at], k.var, *index[at + 1 :])]), axis=k)

    places, _ = te.compute(shape, best)
    return tensor(shape, lambda index: -places[index] if select_last_index else places[index])


@operator("ArgMax", FusionKind.REDUCTION)
def argmax(x: Tensor, *, axis: int = 0, select_last_index: bool = False) -> Tensor:
    """The i64 index of the largest element along ``axis`` (kept with extent 1); of equal ones the first or last.

    Raises ``BadProgram`` if there are no elements along ``axis``.
    """
    return _place_of_extreme("ArgMax", te.argmax, x, axis, select_last_index)


@operator("ArgMin", FusionKind.REDUCTION)
def argmin(x: Tensor, *, axis: int = 0, select_last_index: bool = False) -> Tensor:
    """The i64 index of the smallest element along ``axis``; otherwise as ``ArgMax``."""
    return _place_of_extreme("ArgMin", te.argmin, x, axis, select_last_index)


@operator("TopK", FusionKind.OPAQUE)
def top_k(x: Tensor, *, k: int | Expr, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The ``k`` largest (or smallest) elements along ``axis``, best first, and their i64 indices.

    Of equal elements the one with the lower index comes first. Raises ``BadProgram`` if the extent along ``axis`` is
    known to be less than ``k``; where either is known at run time only, inputs must be such that it is not.
    """
    at = normalize_axis(axis, x.ndim)
    count, wanted = x.shape[at], as_expr(k)
    if isinstance(count, Const) and isinstance(wanted, Const) and not 0 <= wanted.value <= count.value:
        raise BadProgram(f"TopK: k = {k} is out of range for dimension {at} of {x}")
    others = (*x.shape[:at], *x.shape[at + 1 :])
    inserts = isinstance(wanted, Const) and wanted.value <= INSERTION_LIMIT
    shape = (*x.shape[:at], wanted, *x.shape[at + 1 :])
    sides = [] if inserts or isinstance(count, Const) else [(*others, const(2), count)]

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (source,), (values, places, *orders) = inputs, outputs
        kind = LoopKind.PARALLEL if _is_large(x) else LoopKind.SERIAL

        def row(index: Index) -> Stmt:
            selection = _Selection(source, values, places, (index[:at], index[at:]), count, wanted, largest)
            if inserts:
                return selection.by_insertion()
            return selection.by_sorting() if not orders else selection.sorted_through(orders[0])

        return seq() if wanted == ZERO else for_each(others, row, kind)

    dtypes = [x.dtype, i64, *(i64 for _ in sides)]
    values, places, *_ = extern([shape, shape, *sides], [x], body, dtype=dtypes, name="top_k")
    return values, places


def _is_large(x: Tensor) -> bool:
    extents = static(x.shape)
    work = 1
    for extent in extents or ():
        work *= extent
    return extents is None or work >= PARALLEL_WORK


@dataclass(frozen=True, slots=True)
class _Selection:
    """The best ``k`` of one row of ``count`` elements; ``around`` are the indices before and after the row's."""

    source: Buffer
    values: Buffer
    places: Buffer
    around: tuple[Index, Index]
    count: Expr
    k: Expr
    largest: bool

    def by_insertion(self) -> Stmt:
        """The results are a sorted list of the best so far; most elements are only compared with its last one.

        An index ``count`` marks an empty entry.
        """
        clear = for_range(
            self.k,
            lambda p: seq(store(self.values, self._at(p), const(0, self.values.dtype)), self._put_place(p, self.count)),
            name="empty",
        )

        def consider(later: Expr) -> Stmt:
            """An element equal to the last one comes after it."""
            i = later + self.k
            last = self.values[self._at(self.k - 1)]
            return if_then(self._precedes(self._element(i), last), self._insert(i))

        first = for_range(self.k, self._insert, name="first")
        return seq(clear, first, for_range(self.count - self.k, consider, name="i"))

    def _insert(self, i: Expr) -> Stmt:
        """Insert element ``i`` into the list, and move worse ones down."""

        def sink(value: Buffer, place: Buffer, held: Buffer) -> Stmt:
            def step(p: Expr) -> Stmt:
                swap = seq(
                    store(held, (), place[()]),
                    store(place, (), self.places[self._at(p)]),
                    self._put_place(p, held[()]),
                    self._swap_values(value, p),
                )
                return if_then(self._wins(value[()], place[()], p), swap)

            start = seq(store(value, (), self._element(i)), store(place, (), i))
            return seq(start, for_range(self.k, step, name="p"))

        return self._with_scalars(sink)

    def _with_scalars(self, body: Callable[[Buffer, Buffer, Buffer], Stmt]) -> Stmt:
        def with_value(value: Buffer) -> Stmt:
            def with_place(place: Buffer) -> Stmt:
                return alloc((), i64, lambda held: body(value, place, held), name="held")

            return alloc((), i64, with_place, name="place")

        return alloc((), self.source.dtype, with_value, name="value")

    def _swap_values(self, value: Buffer, p: Expr) -> Stmt:
        def body(old: Buffer) -> Stmt:
            here = self._at(p)
            return seq(
                store(old, (), self.values[here]), store(self.values, here, value[()]), store(value, (), old[()])
            )

        return alloc((), self.source.dtype, body, name="old")

    def _wins(self, value: Expr, place: Expr, p: Expr) -> Expr:
        """Whether an element belongs before the one at position ``p`` of the list."""
        there, its_place = self.values[self._at(p)], self.places[self._at(p)]
        ties = ~self._precedes(there, value) & (place < its_place)
        return equal(its_place, self.count) | self._precedes(value, there) | ties

    def by_sorting(self) -> Stmt:
        """A merge sort of the indices, starting with runs of one; each pass copies from one half of ``order`` to the
        other."""
        assert isinstance(self.count, Const), "else there is no room for the order beside the results"
        length = int(self.count.value)
        passes = max(length - 1, 0).bit_length()

        def body(order: Buffer) -> Stmt:
            merge = for_range(passes, lambda s: self._merge(order, s, ()), name="s")
            return seq(self._unsorted(order, ()), merge, self._put_all(order, (), const(passes % 2)))

        return alloc((2, length), i64, body, name="order")

    def sorted_through(self, order: Buffer) -> Stmt:
        """The same for a number of elements that is known at run time only, through rows of ``order``.

        ``_LONGEST`` passes are enough for any number; those beyond its logarithm do nothing.
        """
        row = (*self.around[0], *self.around[1])

        def body(done: Buffer) -> Stmt:
            def step(s: Expr) -> Stmt:
                return if_then((const(1) << s) < self.count, seq(self._merge(order, s, row), store(done, (), s + 1)))

            start = seq(self._unsorted(order, row), store(done, (), ZERO))
            return seq(start, for_range(_LONGEST, step, name="s"), self._put_all(order, row, done[()] % 2))

        return alloc((), i64, body, name="done")

    def _unsorted(self, order: Buffer, row: Index) -> Stmt:
        return for_range(self.count, lambda i: store(order, (*row, ZERO, i), i), name="i")

    def _put_all(self, order: Buffer, row: Index, side: Expr) -> Stmt:
        def put(p: Expr) -> Stmt:
            place = order[(*row, side, p)]
            return seq(store(self.values, self._at(p), self._element(place)), self._put_place(p, place))

        return for_range(self.k, put, name="p")

    def _merge(self, order: Buffer, s: Expr, row: Index) -> Stmt:
        """Merge runs of ``2 ** s`` sorted indices into runs of twice the length."""
        width = const(1) << s
        before, after = (*row, s % 2), (*row, (s + 1) % 2)

        def merge(left: Buffer, right: Buffer) -> Stmt:
            def step(j: Expr) -> Stmt:
                base = j // (width * 2) * (width * 2)
                middle, end = minimum(base + width, self.count), minimum(base + width * 2, self.count)
                first, second = order[(*before, left[()])], order[(*before, right[()])]
                in_order = ~self._precedes(self._element(second), self._element(first))
                take_left = (left[()] < middle) & ((right[()] >= end) | in_order)

                def take(cursor: Buffer) -> Stmt:
                    return seq(
                        store(order, (*after, j), order[(*before, cursor[()])]), store(cursor, (), cursor[()] + 1)
                    )

                begin = if_then(equal(j, base), seq(store(left, (), base), store(right, (), middle)))
                return seq(begin, if_then(take_left, take(left), take(right)))

            return for_range(self.count, step, name="j")

        return alloc((), i64, lambda left: alloc((), i64, lambda r: merge(left, r), name="right"), name="left")

    def _precedes(self, a: Expr, b: Expr) -> Expr:
        """Whether the value ``a`` is better than ``b``."""
        better = binary(BinaryOp.GT if self.largest else BinaryOp.LT, a, b)
        if not a.dtype.is_float:
            return better
        high, low = (a, b) if self.largest else (b, a)
        return better | (unary(UnaryOp.ISNAN, high) & ~unary(UnaryOp.ISNAN, low))

    def _element(self, i: Expr) -> Expr:
        return self.source[(*self.around[0], i, *self.around[1])]

    def _at(self, p: Expr) -> Index:
        return (*self.around[0], p, *self.around[1])

    def _put_place(self, p: Expr, place: Expr | int) -> Stmt:
        return store(self.places, self._at(p), place)
