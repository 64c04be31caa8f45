"""The matrix unit of x86 (AMX: Intel's manual, volume 1, chapter 18, and volume 2, ``TDPBF16PS`` and ``TDPBUSD``).

Eight tile registers have up to 16 rows of 64 bytes. A function configures them, keeps sums in up to five of them over
the whole reduction, stores these, and releases the registers: no state of the unit outlives it, so that nothing else
(signals, other libraries) is concerned, and the system has nothing of it to save.

Where the number of rows is known at run time only, whole blocks of them come first, and then the tiles that hold what
is left, in a configuration for the height of the last one: there is a table of these.

``tdpbf16ps`` adds the products of even and of odd places up apart, each in f32 with one rounding to nearest even, and
takes denormal numbers for 0; products of bytes are exact, modulo 2**32.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import prod

from tilewright.base.dtypes import bf16, f32, i8, i32, u8
from tilewright.kernels.tile_descriptions import Terms, TileProduct, TileUnit

_REGISTERS = 8
_ROW_BYTES = 64
_WORD = 4
_SECOND_CACHE = 2
"""Of LLVM's localities: the first cache is full of what is in use."""


@cache
def x86_tile_units() -> tuple[TileUnit, ...]:
    """Those of all types."""
    kinds = (
        ("tdpbf16ps", bf16, bf16, f32, 2, "amx-bf16"),
        ("tdpbusd", u8, i8, i32, 4, "amx-int8"),
        ("tdpbssd", i8, i8, i32, 4, "amx-int8"),
    )
    return tuple(TileUnit(*kind, 16, 16, 16, tile_code, _fits) for kind in kinds)


def _fits(rows: int, columns: int) -> bool:
    """The operands of the longer side pass through the registers that are left: two, as the last tile of rows may be
    lower than others."""
    return rows * columns + min(rows, columns) + 2 <= _REGISTERS


def tile_code(product: TileProduct) -> str:
    """The function on memory for ``product``."""
    code = _Code(product)
    return f"""
{code.constants}
define internal void @{product.name}({code.parameters}) {{
{code.body}
}}
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.{product.unit.name}(i8, i8, i8)
"""


class _Code:
    """The text of one function, line by line. Strides and offsets are in bytes."""

    def __init__(self, product: TileProduct) -> None:
        self._product = product
        self._lines: list[str] = ["entry:"]
        self._heights, self._count = product.row_blocks[0][1], product.column_tiles
        sizes = {"a": product.unit.left.itemsize, "b": product.unit.right.itemsize, "c": product.unit.wide.itemsize}
        ranks = {"a": len(product.left), "b": len(product.right), "c": len(product.spatial)}
        self.parameters = ", ".join(
            f"ptr %{name}{''.join(f', i64 %{name}.{place}' for place in range(rank - 1))}"
            for name, rank in ranks.items()
        )
        self._strides = {
            name: [*(self._value(f"mul i64 %{name}.{d}, {sizes[name]}") for d in range(rank - 1)), str(sizes[name])]
            for name, rank in ranks.items()
        }
        self._asked, self._part, self._is_last, self._constants = 0, "0", False, list[str]()
        if product.is_open:
            self._open_rows()
        else:
            self._all_rows()
        self._effect("@llvm.x86.tilerelease()")
        self._lines.append("  ret void")
        self.body, self.constants = "\n".join(self._lines), "\n".join(self._constants)

    def _all_rows(self) -> None:
        """All blocks of rows, those of a kind after the other."""
        product, before, start = self._product, "entry", 0
        for number, (count, heights) in enumerate(product.row_blocks):
            self._heights, self._label = heights, f"rows{number}"
            self._asked = self._share_of(count) if not number else 0
            shapes = f"@{product.name}.{number}"
            self._constants.append(f'{shapes} = internal constant [64 x i8] c"{self._shapes}", align 64')
            self._effect(f"@llvm.x86.ldtilecfg(ptr {shapes})")
            before = self._columns(before, count, str(start))
            start += count * sum(heights)

    def _open_rows(self) -> None:
        """As many whole blocks as there are, then the tiles of the rows that are left."""
        product, tile, most = self._product, self._product.unit.rows, self._product.most_rows
        self.parameters += ", i64 %rows"
        blocks, left = (self._value(f"{operation} i64 %rows, {most}") for operation in ("udiv", "urem"))
        start = self._value(f"sub i64 %rows, {left}")
        self._heights, self._label = product.tiles_of(most), "rows0"
        self._asked = self._share_of(product.spatial[product.rows] // most)
        shapes = f"@{product.name}.0"
        self._constants.append(f'{shapes} = internal constant [64 x i8] c"{self._shapes}", align 64')
        before = self._where(f"icmp ne i64 {blocks}, 0", "entry", shapes, blocks, "0")
        self._asked, self._part, self._is_last = 0, "0", True
        for number in range(1, most // tile + 1):
            self._label = f"rows{number}"
            shapes = f"@{product.name}.{number}"
            self._constants.append(self._table(shapes, number - 1))
            lower = self._value(f"sub i64 {left}, {(number - 1) * tile + 1}")  # huge if fewer rows are left
            own = self._value(f"getelementptr [64 x i8], ptr {shapes}, i64 {lower}")
            before = self._where(f"icmp ult i64 {lower}, {tile}", before, own, 1, start)

    def _table(self, name: str, whole: int) -> str:
        """Configurations for ``whole`` tiles and one below them, by its height; keeps the last of lower ones."""
        unit, texts = self._product.unit, list[str]()
        for height in range(unit.rows, 0, -1):
            self._heights = (*[unit.rows] * whole, height)
            texts.append(f'[64 x i8] c"{self._shapes}"')
        return f"{name} = internal constant [{unit.rows} x [64 x i8]] [{', '.join(reversed(texts))}], align 64"

    def _where(self, condition: str, before: str, shapes: str, count: int | str, start: str) -> str:
        """So many blocks of rows, configured by ``shapes``, where the condition holds; returns the label behind."""
        here = f"{self._label}.are"
        self._lines.append(f"  br i1 {self._value(condition)}, label %{here}, label %{here}.done")
        self._lines.append(f"{here}:")
        self._effect(f"@llvm.x86.ldtilecfg(ptr {shapes})")
        self._columns(here, count, start)
        self._lines += [f"  br label %{here}.done", f"{here}.done:"]
        return f"{here}.done"

    def _share_of(self, count: int) -> int:
        """The lines that each of ``count`` blocks of rows asks for in a step."""
        return -(-self._lines_of_step // count) if self._product.asks_ahead else 0

    def _columns(self, before: str, count: int | str, start: str) -> str:
        """The loop over blocks of columns, each of ``count`` blocks of rows from row ``start`` on; returns the label
        where it ends."""
        product = self._product
        a, c = (
            self._moved(operand, self._value(f"mul i64 {stride}, {start}"))
            for operand, stride in (("%a", self._row_of_a), ("%c", self._row_of_c))
        )
        moving = [("%b", self._column("b", self._count)), (c, self._column("c", self._count))]

        def block(here: str, places: Sequence[str]) -> str:
            b, c = places
            return self._rows(here, count, a, b, c)

        return self._loop(f"{self._label}.columns", before, (product.column_blocks, 1), moving, block)

    def _rows(self, before: str, count: int | str, a: str, b: str, c: str) -> str:
        """The loop over blocks of rows."""
        rows = sum(self._heights)
        by_a, by_c = (self._value(f"mul i64 {stride}, {rows}") for stride in (self._row_of_a, self._row_of_c))

        def block(here: str, places: Sequence[str]) -> str:
            self._part = f"%{here}.i" if count != 1 else "0"
            return self._block(here, places[0], b, places[1])

        return self._loop(self._label, before, (count, 1), [(a, by_a), (c, by_c)], block)

    def _block(self, before: str, a: str, b: str, c: str) -> str:
        for number in range(len(self._heights) * self._count):
            self._effect(f"@llvm.x86.tilezero(i8 {number})")
        end = self._loops(self._outer(), before, a, b)
        self._store(c)
        return end

    @property
    def _lines_of_step(self) -> int:
        """Lines of ``b`` that a step of a block of columns reads: they lie side by side."""
        return self._product.at_once * self._count

    @property
    def _row_of_a(self) -> str:
        return self._moves(self._product.rows)[0]

    @property
    def _row_of_c(self) -> str:
        return self._strides["c"][self._product.rows]

    # Registers --------------------------------------------------------------------------------------------------------

    def _sums(self, row: int, column: int) -> int:
        return row * self._count + column

    @property
    def _has_lower(self) -> bool:
        """Whether the last tile of rows may be lower than others, and has a register of its own."""
        return self._is_last or self._heights[-1] != self._heights[0]

    @property
    def _rows_pass(self) -> bool:
        """Whether the tiles of ``a`` pass through registers, while those of ``b`` stay during a step."""
        return len(self._heights) >= self._count

    def _operand(self, row: int | None, column: int | None) -> int:
        """The register of the tile of ``a`` in the row, or of ``b`` in the column, of tiles."""
        place = row if row is not None else column
        assert place is not None, "a row or a column"
        first = len(self._heights) * self._count
        if (row is not None) is not self._rows_pass:
            return first + place
        passing = range(first + min(len(self._heights), self._count), _REGISTERS)
        if row is None or not self._has_lower:
            return passing[place % len(passing)]
        is_lower = row == len(self._heights) - 1
        return passing[-1] if is_lower else passing[place % (len(passing) - 1)]

    @property
    def _shapes(self) -> str:
        """The configuration: the bytes of a row of each register, and its rows."""
        width = self._product.at_once * _WORD
        shapes = [(0, 0)] * _REGISTERS
        for row, height in enumerate(self._heights):
            for column in range(self._count):
                shapes[self._sums(row, column)] = (height, _ROW_BYTES)
                shapes[self._operand(None, column)] = (self._product.at_once, _ROW_BYTES)
            shapes[self._operand(row, None)] = (height, width)
        widths, heights = [b for _, w in shapes for b in (w, 0)], [h for h, _ in shapes]
        palette = 1
        table = (palette, *[0] * 15, *widths, *[0] * 16, *heights, *[0] * 8)
        return "".join(f"\\{byte:02x}" for byte in table)

    # Loops ------------------------------------------------------------------------------------------------------------

    def _outer(self) -> list[tuple[int, int]]:
        """The axes of the loops of the reduction and the elements of an iteration, outermost first."""
        product, split = self._product, len(self._product.spatial)
        others = [(axis, 1) for axis in range(split, product.group) if axis != product.steps]
        loops = [*others, (product.steps, product.at_once)]
        return [(axis, size) for axis, size in loops if product.extents[axis] > size]

    def _loops(self, loops: Sequence[tuple[int, int]], before: str, a: str, b: str) -> str:
        """The loops around a step, which moves both operands."""
        if not loops:
            self._step(a, b)
            return before
        (axis, size), *inner = loops
        by_a, by_b = (self._value(f"mul i64 {stride}, {size}") for stride in self._moves(axis))

        def body(here: str, places: Sequence[str]) -> str:
            return self._loops(inner, here, *places)

        extent = self._product.extents[axis]
        return self._loop(f"{self._label}.loop{axis}", before, (extent, size), [(a, by_a), (b, by_b)], body)

    def _loop(
        self,
        here: str,
        before: str,
        steps: tuple[int | str, int],
        moving: Sequence[tuple[str, str]],
        body: Callable[[str, Sequence[str]], str],
    ) -> str:
        """A loop over an extent, in ``steps`` of a size, which is ``moving`` pointers by so many bytes; returns the
        label where it ends, as ``body`` does. A single step is no loop. An extent of run time is at least a step."""
        extent, size = steps
        if isinstance(extent, int) and extent <= size:
            return body(before, [start for start, _ in moving])
        i, places = f"%{here}", [f"%{here}.p{number}" for number in range(len(moving))]
        self._lines += [f"  br label {i}", f"{here}:"]
        first = len(self._lines)
        self._lines += ["" for _ in range(1 + len(moving))]
        last = body(here, places)
        self._lines[first] = f"  {i}.i = phi i64 [ 0, %{before} ], [ {i}.next, %{last} ]"
        for line, (place, (start, by)) in enumerate(zip(places, moving, strict=True), first + 1):
            self._lines[line] = f"  {place} = phi ptr [ {start}, %{before} ], [ {place}.next, %{last} ]"
            self._lines.append(f"  {place}.next = getelementptr i8, ptr {place}, i64 {by}")
        self._lines.append(f"  {i}.next = add i64 {i}.i, {size}")
        self._lines.append(f"  {i}.more = icmp ult i64 {i}.next, {extent}")
        self._lines.append(f"  br i1 {i}.more, label {i}, label {i}.end")
        self._lines.append(f"{here}.end:")
        return f"{here}.end"

    def _moves(self, axis: int) -> tuple[str, str]:
        """What moving on by one along ``axis`` adds to the addresses of both operands."""
        product, strides = self._product, self._strides
        return self._distance(product.left, strides["a"], axis), self._distance(product.right, strides["b"], axis)

    def _distance(self, indices: Sequence[Terms], strides: Sequence[str], axis: int) -> str:
        total = "0"
        for terms, stride in zip(indices, strides, strict=True):
            for factor in (factor for own, factor in terms if own == axis):
                total = self._value(f"add i64 {total}, {self._value(f'mul i64 {stride}, {factor}')}")
        return total

    def _step(self, a: str, b: str) -> None:
        """One product for each tile of the sums."""
        product = self._product
        by_row, by_step = self._row_of_a, self._moves(product.steps)[1]
        staying = range(self._count) if self._rows_pass else range(len(self._heights))
        for place in staying:
            self._load(place, a, b, by_row, by_step, is_row=not self._rows_pass)
        for place in range(len(self._heights) if self._rows_pass else self._count):
            self._load(place, a, b, by_row, by_step, is_row=self._rows_pass)
            for other in staying:
                row, column = (place, other) if self._rows_pass else (other, place)
                numbers = (self._sums(row, column), self._operand(row, None), self._operand(None, column))
                self._effect(f"@llvm.x86.{product.unit.name}({', '.join(f'i8 {number}' for number in numbers)})")
        if self._asked:
            self._ask(b)

    def _ask(self, b: str) -> None:
        """Ask for a part of what the next block of columns reads in this step: each block of rows asks for another."""
        behind = prod(self._product.reduced) // self._product.unit.group * self._count * _ROW_BYTES
        part = self._value(f"mul i64 {self._part}, {self._asked * _ROW_BYTES}")
        first = self._moved(b, self._value(f"add i64 {part}, {behind}"))
        for line in range(self._asked):
            place = self._moved(first, str(line * _ROW_BYTES))
            self._effect(f"@llvm.prefetch.p0(ptr {place}, i32 0, i32 {_SECOND_CACHE}, i32 1)")

    def _load(self, place: int, a: str, b: str, by_row: str, by_step: str, *, is_row: bool) -> None:
        if is_row:
            start = self._value(f"mul i64 {by_row}, {sum(self._heights[:place])}")
            number, source, stride = self._operand(place, None), self._moved(a, start), by_row
        else:
            number, source, stride = self._operand(None, place), self._moved(b, self._column("b", place)), by_step
        self._effect(f"@llvm.x86.tileloadd64(i8 {number}, ptr {source}, i64 {stride})")

    def _store(self, c: str) -> None:
        by_row = self._row_of_c
        for row in range(len(self._heights)):
            start = self._moved(c, self._value(f"mul i64 {by_row}, {sum(self._heights[:row])}"))
            for column in range(self._count):
                place = self._moved(start, self._column("c", column))
                self._effect(f"@llvm.x86.tilestored64(i8 {self._sums(row, column)}, ptr {place}, i64 {by_row})")

    def _column(self, operand: str, number: int) -> str:
        """Where the column ``number`` of tiles begins in the operand: a tile's row has as many bytes in both."""
        product = self._product
        if product.panels is None:
            return str(number * _ROW_BYTES)
        panel, within = divmod(number, product.panel_tiles)
        stride = self._strides["c"][product.panels] if operand == "c" else self._moves(product.panels)[1]
        return self._value(f"add i64 {self._value(f'mul i64 {stride}, {panel}')}, {within * _ROW_BYTES}")

    # Lines ------------------------------------------------------------------------------------------------------------

    def _value(self, text: str) -> str:
        name = f"%v{len(self._lines)}"
        self._lines.append(f"  {name} = {text}")
        return name

    def _moved(self, pointer: str, offset: str) -> str:
        return self._value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _effect(self, call: str) -> None:
        self._lines.append(f"  call void {call}")
