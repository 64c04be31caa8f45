"""One function of the library with its weights, for a number of threads.

Arrays outside are row-major. The library may compute in another layout: weights are brought to it once, data in each
call, by reorders before and after. Any number of threads may call a ``Primitive`` at once: each call has a ``_Call``
of its own from a free list, with the memory that the library needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from tilewright.base.arrays import Array
from tilewright.base.choices import Choice
from tilewright.runtime.library.onednn import Argument, Arguments, Handle, Library, Query
from tilewright.runtime.memory import address_of, aligned


class Layout(Choice):
    """In which layout a convolution computes."""

    ROWS = "rows"
    """Row-major, as data come."""
    CHANNELS_LAST = "channels-last"
    CHOSEN = "chosen"
    """The one that the library takes for the fastest."""


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution: one number for each dimension in space. ``dilations``: 1 without."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    groups: int = 1

    def result(self, source: tuple[int, ...], weights: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of the result; None if source and weights do not fit."""
        each = (self.strides, self.dilations, self.before, self.after)
        rank, groups = len(self.strides), self.groups
        if any(len(numbers) != rank for numbers in each) or {len(source), len(weights)} != {rank + 2}:
            return None
        if min(groups, *self.strides, *self.dilations) < 1 or min(*self.before, *self.after) < 0:
            return None
        if weights[0] % groups or weights[1] * groups != source[1]:
            return None
        sizes = zip(source[2:], weights[2:], *each, strict=True)
        space = [(n + low + high - gap * (k - 1) - 1) // step + 1 for n, k, step, gap, low, high in sizes]
        return (source[0], weights[0], *space) if min(space) > 0 else None


@dataclass(frozen=True, slots=True)
class Function:
    """What is computed: a convolution, or without ``window`` the product of a matrix and the weights.

    ``transposed``: the weights of a product are stored with a row for each column of the result. Results are at least
    ``low`` and at most ``high``.
    """

    window: Window | None
    transposed: bool = False
    low: float | None = None
    high: float | None = None
    layout: Layout = Layout.ROWS

    def result(self, source: tuple[int, ...], weights: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of the result; None if source and weights do not fit."""
        if self.window is not None:
            return self.window.result(source, weights)
        inner, columns = (weights[::-1] if self.transposed else weights) if len(weights) == 2 else (0, 0)
        return (*source[:-1], columns) if len(source) > 1 and source[-1] == inner else None


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights in a layout; ``array`` has their bytes."""

    layout: Handle
    memory: Handle
    array: Array


@dataclass(frozen=True, slots=True)
class _Call:
    """What one call at a time uses."""

    stream: Handle
    source: Handle
    result: Handle
    steps: tuple[tuple[Handle, Arguments], ...]
    memory: tuple[Array, ...]


class Primitive:
    """A function of arrays of given shapes. ``weights`` and ``bias``: row-major; ``weights`` are packed."""

    def __init__(
        self,
        library: Library,
        function: Function,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        weights: Array,
        bias: Array | None,
        threads: int,
        like: "Primitive | None" = None,
    ) -> None:
        """``shapes``: of source and result; ``like``: the same function for other threads, whose weights are used if
        they are packed in the same way. Raises ``Unsupported`` for what the library does not implement."""
        self._library, self._threads = library, threads
        source, result = (_seen(shape, function) for shape in shapes)
        self._source, self._result = (library.strided(shape, _row_major(shape)) for shape in (source, result))
        shape, strides = _weights(function, weights.shape)
        plain = library.strided(shape, strides)
        offsets = None if bias is None else _offsets(library, function, result[1])
        with library.limited(threads):
            described = _described(library, function, (source, shape, result), offsets)
            self._main = library.primitive(described)
            self._inner = {
                Argument.SOURCE: library.described(described, Query.SOURCE),
                Argument.RESULT: library.described(described, Query.RESULT),
                Argument.SCRATCHPAD: library.described(described, Query.SCRATCHPAD),
            }
            self._before = self._reorder(self._source, self._inner[Argument.SOURCE])
            self._after = self._reorder(self._inner[Argument.RESULT], self._result)
            wanted = library.described(described, Query.WEIGHTS)
            is_packed = like is not None and library.equal(like.packed.layout, wanted)
            self.packed = like.packed if like is not None and is_packed else self._packed(plain, wanted, weights)
            """The weights as the primitive takes them."""
        self._constants = {Argument.WEIGHTS: self.packed.memory}
        self._bias = bias  # stays as long as its memory is used
        if bias is not None and offsets is not None:
            self._constants[Argument.BIAS] = library.memory(offsets, address_of(bias))
        self._free: list[_Call] = []

    def run(self, source: Array, result: Array) -> None:
        """Compute ``result`` of ``source``; both are row-major."""
        library = self._library
        try:
            call = self._free.pop()
        except IndexError:
            call = self._new()
        library.place(call.source, address_of(source))
        library.place(call.result, address_of(result))
        with library.limited(self._threads):
            for primitive, arguments in call.steps:
                library.execute(primitive, call.stream, arguments)
            library.wait(call.stream)
        self._free.append(call)

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory kept for later calls."""
        return sum(array.nbytes for call in tuple(self._free) for array in call.memory)

    def _new(self) -> _Call:
        """Memory for a call."""
        library = self._library
        source, result = library.memory(self._source, 0), library.memory(self._result, 0)
        inner = dict(self._constants)
        kept: list[Array] = []
        for argument, outer, reorder in (
            (Argument.SOURCE, source, self._before),
            (Argument.RESULT, result, self._after),
            (Argument.SCRATCHPAD, None, None),
        ):
            if outer is not None and reorder is None:
                inner[argument] = outer
                continue
            description = self._inner[argument]
            size = library.bytes_of(description)
            if size:
                kept.append(aligned(size, "a step of a library"))
                inner[argument] = library.memory(description, address_of(kept[-1]))
        steps = [(self._main, Arguments.of(inner))]
        if self._before is not None:
            steps.insert(0, (self._before, _copy(source, inner[Argument.SOURCE])))
        if self._after is not None:
            steps.append((self._after, _copy(inner[Argument.RESULT], result)))
        return _Call(library.stream(), source, result, tuple(steps), tuple(kept))

    def _reorder(self, source: Handle, result: Handle) -> Handle | None:
        """What brings data to another layout; None if it is the same."""
        if self._library.equal(source, result):
            return None
        return self._library.primitive(self._library.reorder(source, result))

    def _packed(self, plain: Handle, wanted: Handle, weights: Array) -> "Packed":
        """Weights in the layout ``wanted``."""
        library = self._library
        given = library.memory(plain, address_of(weights))
        reorder = self._reorder(plain, wanted)
        if reorder is None:
            return Packed(wanted, given, weights)
        packed = aligned(library.bytes_of(wanted), "weights of a library")
        made, stream = library.memory(wanted, address_of(packed)), library.stream()
        library.execute(reorder, stream, _copy(given, made))
        library.wait(stream)
        return Packed(wanted, made, packed)


def _copy(source: Handle, result: Handle) -> Arguments:
    return Arguments.of({Argument.SOURCE: source, Argument.RESULT: result})


def _described(
    library: Library,
    function: Function,
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    offsets: Handle | None,
) -> Handle:
    """The description of the primitive, which chooses the layout of the weights, and perhaps of data.

    ``shapes``: of source, weights and result.
    """
    source, result = (_data(library, shape, function.layout) for shape in shapes[::2])
    attributes = library.attributes(function.low, function.high)
    operands = (source, library.any_layout(shapes[1]), offsets, result)
    window = function.window
    if window is None:
        return library.product(operands, attributes)
    gaps = tuple(dilation - 1 for dilation in window.dilations)
    return library.convolution(operands, (window.strides, gaps, window.before, window.after), attributes)


def _data(library: Library, shape: tuple[int, ...], layout: Layout) -> Handle:
    match layout:
        case Layout.ROWS:
            return library.strided(shape, _row_major(shape))
        case Layout.CHOSEN:
            return library.any_layout(shape)
        case Layout.CHANNELS_LAST:
            batch, channels, *space = shape
            outer, *inner = _row_major((batch, *space, channels))
            return library.strided(shape, (outer, 1, *inner[:-1]))


def _seen(shape: tuple[int, ...], function: Function) -> tuple[int, ...]:
    """The shape of data as the library sees it: rows of a product are those of one matrix."""
    return shape if function.window is not None else (prod(shape[:-1]), shape[-1])


def _offsets(library: Library, function: Function, columns: int) -> Handle:
    """The description of the bias."""
    shape = (columns,) if function.window is not None else (1, columns)
    return library.strided(shape, _row_major(shape))


def _weights(function: Function, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and the strides of weights as the library sees them."""
    if function.window is None:
        rows, columns = shape[::-1] if function.transposed else shape
        return (rows, columns), (1, rows) if function.transposed else (columns, 1)
    if function.window.groups > 1:
        shape = (function.window.groups, shape[0] // function.window.groups, *shape[1:])
    return shape, _row_major(shape)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(shape[:0:-1], lambda a, b: a * b, initial=1))[::-1]
