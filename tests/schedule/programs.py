"""Random small te programs, and random primitives on whatever a schedule has become."""

from collections.abc import Callable

from hypothesis import strategies as st

from tilewright.base.dtypes import i32
from tilewright.loops.ir import Loop
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, block_at
from tilewright.symbolic.expr import maximum, minimum
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor
from tilewright.tensor.scan import scan

_SIZES = st.sampled_from([4, 5, 6, 7, 3, 2, 1])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """One to three operations, one reading the other: on i32, so that every order of a sum gives equal bits."""
    rows, columns = draw(_SIZES), draw(_SIZES)
    tensor = te.placeholder((rows, columns), i32, "A")
    for position in range(draw(st.integers(1, 3))):
        tensor = _operation(draw, tensor, f"T{position}")
    return tensor


def _operation(draw: st.DrawFn, source: Tensor, name: str) -> Tensor:
    rows, columns = (int(str(extent)) for extent in source.shape)
    match draw(st.integers(0, 6)):
        case 0:
            return te.compute((rows, columns), lambda i, j: source[i, j] * 3 - i.astype(i32), name=name)
        case 1:
            return te.compute((columns, rows), lambda i, j: maximum(source[j, i], 2), name=name)
        case 2:
            k = te.reduce_axis((0, columns), name="k")
            other = te.placeholder((columns, 3), i32, f"B_{name}")
            return te.compute((rows, 3), lambda i, j: te.sum(source[i, k] * other[k, j], axis=k), name=name)
        case 3:
            k = te.reduce_axis((0, rows), name="k")
            return te.compute((2, columns), lambda i, j: te.max(source[k, j] + i.astype(i32), axis=k), name=name)
        case 4 if columns > 2:
            w = te.reduce_axis((0, 3), name="w")
            return te.compute((rows, columns - 2), lambda i, j: te.sum(source[i, j + w], axis=w), name=name)
        case 5 if rows > 1:
            state = te.placeholder((rows, columns), i32, f"S_{name}")
            start = te.compute((1, columns), lambda t, i: source[t, i], name=f"start_{name}")
            update = te.compute((rows, columns), lambda t, i: state[t - 1, i] + source[t, i], name=f"next_{name}")
            return scan(start, update, state, name=name)
        case _:
            return te.compute(
                (rows + 1, columns), lambda i, j: te.select(i < rows, source[minimum(i, rows - 1), j], 1), name=name
            )


def loop_names(s: Schedule) -> list[str]:
    return [stmt.var.name for stmt in walk(s.program.body) if isinstance(stmt, Loop)]


def block_names(s: Schedule) -> list[str]:
    return [block.name for block in all_blocks(s.program.body)]


def buffer_names(s: Schedule, block: str) -> list[str]:
    found = block_at(s.program, BlockRef(block)).stmt
    return [region.buffer.name for region in (*found.reads, *found.writes)]


Move = Callable[[Schedule], object]


@st.composite
def loop_moves(draw: st.DrawFn, s: Schedule) -> Move:
    """A primitive on loops, with arguments that may or may not make sense."""
    names = loop_names(s)
    if not names:
        return lambda s: None
    loop = draw(st.sampled_from(names))
    match draw(st.integers(0, 8)):
        case 0 | 1:
            some = [(None, 2), (None, 3), (2, None), (None, 4), (2, None, 2), (3, 3), (1, None)]
            factors = draw(st.sampled_from(some))
            return lambda s: s.split(loop, factors)
        case 2 | 3:
            first = names.index(loop)
            return lambda s: s.fuse(*names[first : first + 2])
        case 4 | 5:
            chosen = draw(st.lists(st.sampled_from(names), unique=True, min_size=2, max_size=3)) if names[1:] else names
            return lambda s: s.reorder(*chosen)
        case 6:
            return lambda s: s.vectorize(loop)
        case 7:
            return lambda s: s.parallel(loop)
        case _:
            parts = draw(st.integers(1, 3))
            return lambda s: s.split(loop, s.sample_perfect_tile(loop, parts))


@st.composite
def block_moves(draw: st.DrawFn, s: Schedule) -> Move:
    """A primitive that moves computation or data."""
    block, loops = draw(st.sampled_from(block_names(s))), loop_names(s)
    buffer = draw(st.sampled_from(buffer_names(s, block)))
    loop = draw(st.sampled_from(loops)) if loops else ""
    scope = draw(st.sampled_from([GLOBAL, LOCAL]))
    moves: list[Move] = [
        lambda s: s.compute_at(block, loop),
        lambda s: s.reverse_compute_at(block, loop),
        lambda s: s.compute_inline(block),
        lambda s: s.reverse_compute_inline(block),
        lambda s: s.cache_read(block, buffer, scope),
        lambda s: s.cache_write(block, buffer, scope),
        lambda s: s.rfactor(loop),
        lambda s: s.decompose_reduction(block, loop),
    ]
    return draw(st.sampled_from(moves))
