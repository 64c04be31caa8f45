"""Operators that choose elements by data: ``NonZero``, ``NonMaxSuppression``, and those of ONNX's ``Unique``.

How many are chosen is data, too: some operators count, and others, which are told (``count``), make results of that
size.
"""

from tilewright.base.dtypes import boolean, i64
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import alloc, extern, for_range, if_then, seq, store
from tilewright.loops.ir import Buffer, Stmt
from tilewright.ops.build import Index, for_each, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.symbolic.expr import ONE, ZERO, Expr, as_expr, cast, const, equal, maximum, minimum, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.tensor.ir import Tensor


@operator("NonZero", FusionKind.OPAQUE)
def non_zero(x: Tensor, *, count: int | Expr) -> Tensor:
    """The positions of the first ``count`` elements that are not 0, as columns: i64[rank, count], in row-major order.

    ``x`` must have so many. Raises ``BadProgram`` for a scalar.
    """
    if not x.ndim:
        raise BadProgram(f"NonZero: {x} has no dimension")
    wanted = as_expr(count)

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (source,), (places,) = inputs, outputs

        def fill(found: Buffer) -> Stmt:
            def visit(index: Index) -> Stmt:
                put = [store(places, (const(axis), found[()]), place) for axis, place in enumerate(index)]
                chosen = cast(source[index], boolean) & (found[()] < wanted)
                return if_then(chosen, seq(*put, store(found, (), found[()] + 1)))

            return seq(store(found, (), ZERO), for_each(x.shape, visit))

        return alloc((), i64, fill, name="found")

    return extern([(const(x.ndim), wanted)], [x], body, [i64], "places")[0]


@operator("NonMaxSuppression", FusionKind.OPAQUE)
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    order: Tensor,
    most: Tensor,
    overlap: Tensor,
    threshold: Tensor,
    *,
    most_boxes: int | Expr,
    centered: bool = False,
) -> tuple[Tensor, Tensor]:
    """Of boxes that overlap, the one with the best score (ONNX): rows of batch, class and box, and how many count.

    ``boxes[batch, box, 4]``: two corners, or with ``centered`` the center and the size. ``scores[batch, class, box]``
    are in falling order, and ``order`` has the boxes' numbers. A box is chosen if its score is above ``threshold``, if
    none before it in its class shares more than ``overlap`` of their union with it, and if there are not yet ``most``
    of the class. ``most_boxes``: no more are chosen of a class.
    """
    batches, count, _ = boxes.shape
    classes = scores.shape[1]
    rows = batches * classes * minimum(as_expr(most_boxes), count)

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        corners, ranked, places, limit, least, floor = inputs
        chosen, total, alive = outputs

        def one(batch: Expr, kind: Expr, taken: Buffer) -> Stmt:
            def box(p: Expr) -> tuple[Expr, ...]:
                return tuple(corners[(batch, places[(batch, kind, p)], const(k))] for k in range(4))

            def choose(p: Expr) -> Stmt:
                at = total[(ZERO,)]
                put = [store(chosen, (at, const(k)), value) for k, value in enumerate((batch, kind))]

                def suppress(q: Expr) -> Stmt:
                    shares = _share_more(box(p), box(q), least[(ZERO,)], centered=centered)
                    return if_then(shares, store(alive, (q,), const(False, boolean)))

                return seq(
                    *put,
                    store(chosen, (at, const(2)), places[(batch, kind, p)]),
                    store(total, (ZERO,), at + 1),
                    store(taken, (), taken[()] + 1),
                    for_range(count, suppress, name="q"),
                )

            def visit(p: Expr) -> Stmt:
                wins = alive[(p,)] & (ranked[(batch, kind, p)] > floor[(ZERO,)])
                has_room = (taken[()] < limit[(ZERO,)]) & (total[(ZERO,)] < rows)
                return if_then(wins & has_room, choose(p))

            fresh = for_range(count, lambda p: store(alive, (p,), const(True, boolean)), name="fresh")
            return seq(store(taken, (), ZERO), fresh, for_range(count, visit, name="p"))

        def all_of(taken: Buffer) -> Stmt:
            return for_each((batches, classes), lambda index: one(index[0], index[1], taken))

        return seq(store(total, (ZERO,), ZERO), alloc((), i64, all_of, name="taken"))

    shapes = [(rows, const(3)), (ONE,), (count,)]
    chosen, total, _ = extern(
        shapes, [boxes, scores, order, most, overlap, threshold], body, [i64, i64, boolean], "chosen"
    )
    return chosen, total


def _share_more(a: tuple[Expr, ...], b: tuple[Expr, ...], overlap: Expr, *, centered: bool) -> Expr:
    """Whether two boxes share more than ``overlap`` of their union; boxes without an area share nothing."""
    sides_a, sides_b = (tuple(_side(box, axis, centered=centered) for axis in (0, 1)) for box in (a, b))
    shared: Expr | None = None
    meets: Expr | None = None
    for (low_a, high_a), (low_b, high_b) in zip(sides_a, sides_b, strict=True):
        length = minimum(high_a, high_b) - maximum(low_a, low_b)
        shared = length if shared is None else shared * length
        meets = (length > 0) if meets is None else meets & (length > 0)
    assert shared is not None
    assert meets is not None
    area_a, area_b = ((y[1] - y[0]) * (x[1] - x[0]) for y, x in (sides_a, sides_b))
    union = area_a + area_b - shared
    return meets & (area_a > 0) & (area_b > 0) & (union > 0) & (shared / union > overlap)


def _side(box: tuple[Expr, ...], axis: int, *, centered: bool) -> tuple[Expr, Expr]:
    """The ends of a box along an axis."""
    a, b = box[axis], box[axis + 2]
    if centered:
        half = b / 2
        return a - half, a + half
    return minimum(a, b), maximum(a, b)


_LONGEST = 62
"""Maximum passes of a merge sort: the logarithm of how many rows there may be."""


@operator("UniqueRows", FusionKind.OPAQUE)
def unique_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The group of each row of a matrix ``x[n, m]`` among the groups of equal rows, in order, i64[n]; and how many
    groups there are, i64[1].

    Rows are compared from their first element on. NaN is larger than all numbers, and one NaN is like another.
    """
    if x.ndim != 2:
        raise BadProgram(f"UniqueRows of {x}: it needs a matrix")
    count, length = x.shape

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (source,), (groups, total, runs) = inputs, outputs
        rows = _Rows(source, length)

        def sort(sign: Buffer) -> Stmt:
            def merging(cursors: tuple[Buffer, Buffer]) -> Stmt:
                def merge(s: Expr) -> Stmt:
                    return if_then(const(1) << s < count, rows.merged(runs, s, count, cursors, sign))

                fresh = for_range(count, lambda i: store(runs, (ZERO, i), i))
                return seq(fresh, for_range(_LONGEST, merge, name="s"))

            def left(first: Buffer) -> Stmt:
                return alloc((), i64, lambda second: merging((first, second)), name="right")

            return seq(alloc((), i64, left, name="left"), number(sign))

        def number(sign: Buffer) -> Stmt:
            def put(side: Buffer) -> Stmt:
                def passes(s: Expr) -> Stmt:
                    return if_then(const(1) << s < count, store(side, (), ONE - side[()]))

                def row(i: Expr) -> Stmt:
                    place = runs[(side[()], i)]
                    before = runs[(side[()], maximum(i - 1, ZERO))]
                    new = equal(i, ZERO) | ~equal(sign[()], ZERO)
                    compared = rows.compared(before, place, sign)
                    grown = if_then(new, store(total, (ZERO,), total[(ZERO,)] + 1))
                    return seq(compared, grown, store(groups, (place,), total[(ZERO,)] - 1))

                start = seq(store(side, (), ZERO), store(total, (ZERO,), ZERO))
                return seq(start, for_range(_LONGEST, passes, name="s"), for_range(count, row))

            return alloc((), i64, put, name="side")

        return alloc((), i64, sort, name="sign")

    groups, total, _ = extern([(count,), (ONE,), (const(2), count)], [x], body, [i64] * 3, "unique")
    return groups, total


@operator("UniqueGroups", FusionKind.OPAQUE)
def unique_groups(groups: Tensor, *, count: int | Expr, by_value: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Of the ``count`` groups of equal rows that ``UniqueRows`` found: the first row of each, the group of each row,
    and the size of each group; in order, or, unless ``by_value``, as the first rows come."""
    rows, wanted = groups.shape[0], as_expr(count)

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (own,), (firsts, inverse, sizes, numbers) = inputs, outputs

        def number(found: Buffer) -> Stmt:
            def meet(i: Expr) -> Stmt:
                group = own[(i,)]
                is_new = numbers[(group,)] < ZERO
                named = group if by_value else found[()]
                start = seq(
                    store(numbers, (group,), named),
                    store(firsts, (named,), i),
                    store(sizes, (named,), ZERO),
                    store(found, (), found[()] + 1),
                )
                place = numbers[(group,)]
                grow = store(sizes, (place,), sizes[(place,)] + 1)
                return seq(if_then(is_new, start), store(inverse, (i,), place), grow)

            unknown = for_range(wanted, lambda g: store(numbers, (g,), const(-1)))
            return seq(unknown, store(found, (), ZERO), for_range(rows, meet))

        return alloc((), i64, number, name="found")

    shapes = [(wanted,), (rows,), (wanted,), (wanted,)]
    firsts, inverse, sizes, _ = extern(shapes, [groups], body, [i64] * 4, "groups")
    return firsts, inverse, sizes


@operator("First", FusionKind.INJECTIVE)
def first(x: Tensor, *, count: int | Expr) -> Tensor:
    """The first ``count`` rows of ``x``, which must have so many."""
    return tensor((as_expr(count), *x.shape[1:]), lambda index: x[index])


class _Rows:
    """Rows of a matrix, to be compared and merged."""

    def __init__(self, source: Buffer, length: Expr) -> None:
        self._source = source
        self._length = length

    def compared(self, a: Expr, b: Expr, sign: Buffer) -> Stmt:
        """Set ``sign`` to -1, 0 or 1 where row ``a`` is before, equal to, or after row ``b``."""

        def step(k: Expr) -> Stmt:
            left, right = self._source[(a, k)], self._source[(b, k)]
            return if_then(
                equal(sign[()], ZERO),
                seq(
                    if_then(_less(left, right), store(sign, (), const(-1))),
                    if_then(_less(right, left), store(sign, (), ONE)),
                ),
            )

        return seq(store(sign, (), ZERO), for_range(self._length, step, name="k"))

    def merged(self, runs: Buffer, s: Expr, count: Expr, cursors: tuple[Buffer, Buffer], sign: Buffer) -> Stmt:
        """Merge runs of ``2 ** s`` sorted numbers of rows, from one side of ``runs`` to the other."""
        first, second = cursors
        width, before, after = const(1) << s, s % 2, (s + 1) % 2

        def step(j: Expr) -> Stmt:
            base = j // (width * 2) * (width * 2)
            middle, end = minimum(base + width, count), minimum(base + width * 2, count)
            last = count - 1
            begin = if_then(equal(j, base), seq(store(first, (), base), store(second, (), middle)))
            a, b = (runs[(before, minimum(cursor[()], last))] for cursor in cursors)
            take_left = (first[()] < middle) & ((second[()] >= end) | (sign[()] <= ZERO))

            def take(cursor: Buffer) -> Stmt:
                return seq(store(runs, (after, j), runs[(before, cursor[()])]), store(cursor, (), cursor[()] + 1))

            return seq(begin, self.compared(a, b, sign), if_then(take_left, take(first), take(second)))

        return for_range(count, step, name="j")


def _less(a: Expr, b: Expr) -> Expr:
    """Whether ``a`` comes before ``b``; NaN comes last."""
    if a.dtype.is_bool:
        return ~a & b
    if not a.dtype.is_float:
        return a < b
    return (a < b) | (unary(UnaryOp.ISNAN, b) & ~unary(UnaryOp.ISNAN, a))
