"""Products with weights of 4 or 8 bits, which are stored as such: ``w = (code - zero) * scale``, in blocks of rows.

The blocks of a weight are summed up separately, and each sum is scaled once. For sums in integers, the other factor is
written with three digits in base 256, relative to the largest magnitude of its block (``BlockDigits``): a fixed-point
number of 24 bits, about as exact as f32. Then ``vpdpbusd`` adds exact products of digits and codes. For models that
permit it, these are numbers of 16 bits, with two digits, or of 8 bits, with one.
"""

from tilewright.base.dtypes import f32, i8, i32, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.contraction import matmul
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.quantization import parameter_of
from tilewright.ops.shapes import same_extent, simplified
from tilewright.symbolic.expr import ZERO, Const, Expr, cast, const, maximum, select, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

LARGEST = {1: 127.0, 2: 32_600.0, 3: 8_355_000.0}
"""The magnitude of the largest number of a block, in units of its last digit, by the number of digits: what these can
express, or a bit less."""
GROUP = 4
"""Products of one instruction per accumulator."""
_LEAST = 2.0**-103
"""The smallest magnitude that is told from 0: the factor to units is finite, and the unit is a normal number."""
_BASE, _HALF = 256, 128


@operator("WeightProduct", FusionKind.CONTRACTION, Trait.COMPOSITE)
def weight_product(
    a: Tensor,
    codes: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    transposed: bool = False,
    block_size: int = 0,
    digits: int = 3,
) -> Tensor:
    """``a [..., m, k]`` times the matrix ``(codes - zero) * scale`` in f32.

    ``codes`` is ``[k, n]``, or ``[n, k]`` if ``transposed``. ``scale`` and ``zero`` are one number, one for each
    column, or one for each column of each block of ``block_size`` rows (in the order of dimensions of ``codes``).
    ``digits``: as many are enough to write ``a`` (``BlockDigits``).
    """
    if digits not in LARGEST:
        raise BadProgram(f"WeightProduct with {digits} digits: there are 1, 2 and 3")
    if codes.ndim != 2 or a.dtype != f32 or not codes.dtype.is_int or codes.dtype.bits > 8:
        raise BadProgram(f"WeightProduct of {a} and {codes}: a product of f32 by a matrix of small integers is needed")
    axis = int(transposed) if block_size else int(not transposed)
    scale_at = parameter_of(codes, scale, axis, block_size)
    zero_at = None if zero is None else parameter_of(codes, zero, axis, block_size)

    def body(index: Index) -> Expr:
        at = index[::-1] if transposed else index
        code = cast(codes[at], f32)
        return (code if zero_at is None else code - cast(zero_at(at), f32)) * cast(scale_at(at), f32)

    return matmul(a, tensor(codes.shape[::-1] if transposed else codes.shape, body))


@operator("UnpackCodes", FusionKind.INJECTIVE)
def unpack_codes(x: Tensor) -> Tensor:
    """The codes of 4 bits in bytes (u8), twice as many along the last axis: the lower half of a byte first."""
    if x.dtype != u8 or not x.ndim:
        raise BadProgram(f"UnpackCodes of {x}: bytes are needed")

    def body(index: Index) -> Expr:
        *row, place = index
        return (x[(*row, place // 2)] >> cast(place % 2 * 4, u8)) & const(15, u8)

    return tensor((*x.shape[:-1], simplified(x.shape[-1] * 2)), body)


@operator("BlockDigits", FusionKind.OPAQUE)
def block_digits(x: Tensor, *, block: int, digits: int) -> tuple[Tensor, Tensor, Tensor]:
    """The numbers ``x [..., k]`` in ``digits`` (1 to 3), least significant first, and the unit and the sum of each
    ``block`` of them, in that unit.

    Digits (i8) are ``[..., digits, k]``, with zeros up to whole blocks; units and sums (f32) are ``[..., k / block]``.
    A block with an infinity or NaN gets a unit that makes all products with it NaN.
    """
    if x.dtype != f32 or not x.ndim or block < 1 or digits not in LARGEST:
        raise BadProgram(f"BlockDigits of {x} in {digits} digits and blocks of {block}: rows of f32 are needed")
    largest, offset = LARGEST[digits], _HALF * sum(_BASE**place for place in range(digits))
    *rows, depth = x.shape
    blocks = simplified((depth + (block - 1)) // block)
    is_whole = isinstance(depth, Const) and int(depth.value) % block == 0

    def at(index: Index, place: Expr) -> Expr:
        own = x[(*index, place)]
        return own if is_whole else select(place < depth, own, const(0.0, f32))

    inner, counted = te.reduce_axis((0, block), name="k"), te.reduce_axis((0, block), name="k")

    def magnitude(index: Index) -> Reduction:
        return te.max(unary(UnaryOp.ABS, at(index[:-1], index[-1] * block + inner.var)), axis=inner)

    most = tensor((*rows, blocks), magnitude, name="most")
    unit = tensor(most.shape, lambda index: maximum(most[index], const(_LEAST, f32)) / largest, name="unit")
    factor = tensor(most.shape, lambda i: const(largest, f32) / maximum(most[i], const(_LEAST, f32)), name="factor")

    def word(index: Index) -> Expr:
        *row, place = index
        return cast(unary(UnaryOp.ROUND, at(tuple(row), place) * factor[(*row, place // block)]), i32)

    shape = (*rows, const(digits), simplified(blocks * block))
    if digits == 1:  # words are digits
        written = words = tensor(shape, lambda index: cast(word((*index[:-2], index[-1])), i8), name="digits")
    else:
        words = tensor((*rows, const(1), shape[-1]), lambda index: word((*index[:-2], index[-1])), name="words")

        def digit(index: Index) -> Expr:
            *row, position, place = index
            moved = words[(*row, ZERO, place)] + offset  # not negative, and each digit is then 128 less
            return cast(((moved >> cast(position * 8, i32)) & (_BASE - 1)) - _HALF, i8)

        written = tensor(shape, digit, name="digits")

    def counting(index: Index) -> Reduction:
        return te.sum(cast(words[(*index[:-1], ZERO, index[-1] * block + counted.var)], i32), axis=counted)

    total = tensor(most.shape, counting, name="total")
    return written, unit, tensor(most.shape, lambda index: cast(total[index], f32), name="sums")


@operator("BlockProducts", FusionKind.CONTRACTION)
def block_products(
    digits: Tensor, unit: Tensor, sums: Tensor, codes: Tensor, scale: Tensor, zero: Tensor, *, columns: int, shared: int
) -> Tensor:
    """The product of numbers by ``BlockDigits`` with a weight in panels, in f32: ``[..., columns]``.

    ``codes`` (u8) are ``[panels, steps, width, 4]``: for two groups of rows in a step, the codes of the second one are
    the upper four bits. ``scale`` (f32) is ``[panels, scales, width]``, and so is ``zero``, unless it is one number;
    each scale is that of ``shared`` successive blocks. Columns of panels beyond ``columns`` are not part of the result.
    """
    *rows, count, depth = digits.shape
    panels, steps, width, group = codes.shape
    blocks, groups = unit.shape[-1], simplified(depth // (steps * group))
    is_whole = same_extent(depth, groups * steps * group) and groups in (const(1), const(2))
    if not is_whole or count not in (const(1), const(2), const(3)) or (digits.dtype, codes.dtype) != (i8, u8):
        raise BadProgram(f"BlockProducts of {digits} and {codes}: digits (i8) and codes (u8) of equal steps are needed")
    in_block, in_step = simplified(steps // blocks), int(str(groups)) * GROUP
    step, inner = te.reduce_axis((0, in_block), name="k"), te.reduce_axis((0, group), name="g")

    def product(index: Index) -> Reduction:
        *row, place, block, column = index
        at = block * in_block + step.var
        stored = codes[column // width, at, column % width, inner.var]
        parts = [stored] if groups == const(1) else [stored & const(15, u8), stored >> const(4, u8)]
        starts = (at * in_step + half * GROUP for half in range(len(parts)))
        lefts = (cast(digits[(*row, place, start + inner.var)], i32) for start in starts)
        terms = [left * cast(part, i32) for left, part in zip(lefts, parts, strict=True)]
        return te.sum(terms[0] if len(terms) == 1 else terms[0] + terms[1], axis=(step, inner))

    padded = simplified(panels * width)
    products = tensor((*rows, count, blocks, padded), product, name="products")
    block = te.reduce_axis((0, blocks), name="b")

    def scaled(index: Index) -> Reduction:
        *row, column = index
        lowest, *others = (products[(*row, const(p), block.var, column)] for p in range(int(str(count))))
        whole = cast(others[0] * _BASE + lowest if others else lowest, f32)
        if others[1:]:
            whole = cast(others[1], f32) * float(_BASE * _BASE) + whole
        place = column // width, block.var // shared, column % width
        neutral = cast(zero[place] if zero.ndim else zero[()], f32)
        left = whole - neutral * sums[(*row, block.var)]
        return te.sum(left * (unit[(*row, block.var)] * scale[place]), axis=block)

    result = tensor((*rows, padded), scaled, name="scaled")
    shape = (*rows, const(columns))
    return result if shape == result.shape else tensor(shape, lambda index: result[index])


@operator("CodeProducts", FusionKind.CONTRACTION)
def code_products(
    a: Tensor, codes: Tensor, scale: Tensor, zero: Tensor, *, columns: int, in_byte: int, block_size: int
) -> Tensor:
    """``a [..., k]`` (f32) times a weight in panels that is dequantized on its way: ``[..., columns]``.

    ``codes`` (u8) are ``[panels, k / in_byte, width]``: one, or two rows in a byte, the first one in the lower half.
    ``scale`` (f32) is ``[panels, k / block_size, width]``, and so is ``zero``, unless it is one number.
    """
    if a.dtype != f32 or not a.ndim or codes.dtype != u8 or codes.ndim != 3 or in_byte not in (1, 2):
        raise BadProgram(f"CodeProducts of {a} and {codes}: rows of f32, and codes (u8) in panels are needed")
    *rows, depth = a.shape
    panels, steps, width = codes.shape
    if not same_extent(steps, simplified((depth + (in_byte - 1)) // in_byte)):
        raise BadProgram(f"CodeProducts of {a} and {codes}: {depth} columns against {steps} rows of {in_byte} codes")

    def dequantized(index: Index) -> Expr:
        panel, row, column = index
        code, place = codes[panel, row // in_byte, column], (panel, row // block_size, column)
        if in_byte == 2:
            code = (code >> cast(row % 2 * 4, u8)) & const(15, u8)
        return (cast(code, f32) - cast(zero[place] if zero.ndim else zero[()], f32)) * scale[place]

    weight = tensor((panels, depth, width), dequantized, name="weight")
    k = te.reduce_axis((0, depth), name="k")

    def product(index: Index) -> Reduction:
        *row, column = index
        return te.sum(a[(*row, k.var)] * weight[column // width, k.var, column % width], axis=k)

    result = tensor((*rows, simplified(panels * width)), product, name="product")
    shape = (*rows, const(columns))
    return result if shape == result.shape else tensor(shape, lambda index: result[index])
