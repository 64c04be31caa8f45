"""Products with weights of 4 or 8 bits, which are packed as they are: in integers, or in floats.

``BlockDigits`` writes numbers with one to three digits, so that dot products sum up products of digits and codes
exactly; the error is that of a number of 8, 16 or 24 bits, relative to the largest of its block. A weight takes 4 bits
if its codes are at most 15 apart, whatever type they had. Codes, scales and zero points are packed at compile time, in
panels of columns that the kernel reads from the first byte to the last.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import i8, i32, u8
from tilewright.cost.kernels import sum_cycles
from tilewright.graph import Array, Node, Value, make_node
from tilewright.kernels.dot_products import product_of
from tilewright.ops.operator import require
from tilewright.ops.weight_products import GROUP
from tilewright.passes.alternatives.api import Building, Errors, Facts, Way
from tilewright.passes.blocks import points

_PRODUCT = require("WeightProduct")
MOST_ROWS = 128
"""Most rows whose products are summed up in i32: sums of digits of 8 bits by codes of 8 bits stay in range."""
WIDEST, NARROWEST = 64, 16
"""Columns of a panel: as many as a tile of one row has, or fewer; whole registers on all processors."""
_MORE = 1.05
"""Panels may have so many times the columns of the weight."""
_OF_HALVES = 2
"""Digits of a number of 16 bits."""
_CONVERSION = 4
"""Operations to convert a code, in multiply-adds."""
_TYPES = {1: (i8, u8, i32), 2: (i8, u8, i8, i32)}
"""Of what is multiplied and added up, by the codes in a byte."""
_OTHER_ERRORS = Errors(has_own_terms=False)
"""As large as those of f32: nothing is required in exchange."""


class InDigits:
    """By dot products, if the target has them, for constant weights in blocks of whole steps."""

    name = "digits and codes"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op != _PRODUCT:
            return
        blocks = _Blocks.of(_Weight.of(node, facts.constants))
        instruction = None if blocks is None else product_of(facts.target, *_TYPES[blocks.weight.in_byte])
        if blocks is not None and instruction is not None:
            codes = blocks.weight.codes
            digits = _digits(node, facts)
            products = points(node.outputs[0].shape) * len(codes) * digits * instruction.multiply_adds // GROUP
            words = codes.size // (GROUP * blocks.weight.in_byte)
            make = partial(_in_digits, digits=digits)
            yield Way(self.name, sum_cycles(products, words, facts.target), make=make, errors=_OTHER_ERRORS)


class InFloats:
    """As a product of floats, to which the codes are converted a strip of columns at a time: for any target."""

    name = "codes in floats"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op == _PRODUCT:
            codes = node.inputs[1]
            assert codes is not None, "a product has two operands"
            products = points(node.outputs[0].shape) * points(codes.shape) // max(1, points(node.outputs[0].shape[-1:]))
            conversions = _CONVERSION * points(codes.shape)
            yield Way(self.name, sum_cycles(products + conversions, 0, facts.target), make=_in_floats)


IN_DIGITS, IN_FLOATS = InDigits(), InFloats()


@dataclass(frozen=True, slots=True)
class _Weight:
    """A constant weight ``[depth, columns]``."""

    codes: Array
    """Integers of any type."""
    scale: NDArray[np.float32]
    """``[scales, columns]``."""
    zero: NDArray[np.float32]
    """The same shape."""
    size: int
    """Rows with one scale."""

    @staticmethod
    def of(node: Node, constants: Mapping[Value, Array]) -> "_Weight":
        """The weight of ``node``."""
        given = dict(node.attributes)
        codes, scale, *more = (None if value is None else constants[value] for value in node.inputs[1:])
        assert codes is not None and scale is not None, "a weight has codes and scales"
        zero = more[0] if more and more[0] is not None else np.zeros(1, np.float32)
        if given.get("transposed", False):
            codes, scale, zero = codes.T, scale.T, zero.T
        depth, columns = codes.shape
        size = given.get("block_size", 0)
        assert isinstance(size, int), "the operator checked its attributes"
        rows = min(size, depth) or depth
        shape = (-(-depth // rows) if rows else 0, columns)
        scales, zeros = (np.broadcast_to(array.astype(np.float32), shape) for array in (scale, zero))
        return _Weight(codes, scales, zeros, rows)

    @property
    def lowest(self) -> int:
        """The code that is stored as 0."""
        return int(self.codes.min()) if self.codes.size else 0

    @property
    def in_byte(self) -> int:
        """Codes that share a byte: two if they are near each other."""
        return 2 if self.codes.size and int(self.codes.max()) - int(self.codes.min()) < 1 << 4 else 1

    @property
    def width(self) -> int:
        """Columns of a panel."""
        columns, wide = self.codes.shape[1], (WIDEST, WIDEST // 2, NARROWEST)
        return next((w for w in wide if -(-columns // w) * w <= _MORE * columns), NARROWEST)

    def padded_codes(self, step: int) -> NDArray[np.uint8]:
        """``[rows, panels, width]``, from 0 on, with zeros up to a multiple of ``step`` rows and in the last panel."""
        depth, columns = self.codes.shape
        panels = -(-columns // self.width)
        codes = np.zeros((-(-depth // step) * step, panels * self.width), np.uint8)
        codes[:depth, :columns] = self.codes.view(np.uint8) - np.uint8(self.lowest % (1 << 8))
        return codes.reshape(len(codes), panels, self.width)

    def in_panels(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[panels, scales, width]``."""
        panels = -(-array.shape[1] // self.width)
        padded = np.zeros((len(array), panels * self.width), np.float32)
        padded[:, : array.shape[1]] = array
        return np.ascontiguousarray(padded.reshape(len(array), panels, self.width).transpose(1, 0, 2))

    def packed_zero(self) -> Array:
        """One number if all are equal; bytes if all are such; in panels."""
        zero = self.zero - np.float32(self.lowest)
        if not zero.size or np.all(zero == zero.reshape(-1)[0]):
            return np.array(zero.reshape(-1)[0] if zero.size else 0, np.float32)
        packed = self.in_panels(zero)
        are_bytes = np.all((packed >= 0) & (packed <= 255) & (packed == np.rint(packed)))
        return packed.astype(np.uint8) if are_bytes else packed


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A weight for ``BlockProducts``: in ``block`` rows whose products are summed up in i32."""

    weight: _Weight
    block: int

    @property
    def shared(self) -> int:
        """Blocks with one scale."""
        return -(-self.weight.size // self.block)

    @staticmethod
    def of(weight: _Weight) -> "_Blocks | None":
        """The blocks of ``weight``; None if it is empty, or if they are not whole steps."""
        step, depth = GROUP * weight.in_byte, len(weight.codes)
        whole = min(MOST_ROWS, -(-depth // step) * step)
        block = whole if weight.size == depth else _block(weight.size, step)
        return None if block is None or not weight.codes.size else _Blocks(weight, block)

    def packed(self) -> NDArray[np.uint8]:
        """``[panels, steps, width, 4]``."""
        codes, groups = self.weight.padded_codes(self.block), self.weight.in_byte
        parts = codes.reshape(-1, groups, GROUP, *codes.shape[1:]).transpose(1, 3, 0, 4, 2)
        return _in_bytes(parts)


def _in_bytes(parts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The first part, or two in bytes: the second one in the upper halves."""
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else parts[0] | parts[1] << np.uint8(4))


def _digits(node: Node, facts: Facts) -> int:
    """Those of the node; where values have 16 bits, no more than these."""
    digits = int(str(dict(node.attributes).get("digits", 3)))
    return digits if facts.narrow.dtype is None else min(digits, _OF_HALVES)


def _block(size: int, step: int) -> int | None:
    """The most rows that are summed up at once in blocks of ``size``: whole steps, and a part of them all."""
    fitting = (rows for rows in range(min(size, MOST_ROWS), 0, -1) if size % rows == 0 and rows % step == 0)
    return next(fitting, None)


def _in_digits(node: Node, building: Building, digits: int) -> None:
    blocks = _Blocks.of(_Weight.of(node, building.constants))
    a, result = node.inputs[0], node.outputs[0].name
    assert blocks is not None and a is not None, "see `InDigits`"
    names = [building.names.fresh(f"{result}.{part}") for part in ("digits", "unit", "sums")]
    options = {"block": blocks.block, "digits": digits}
    left = make_node(require("BlockDigits"), [a], names, options, node.source)
    building.append(left)
    weight = _constants(node, building, blocks.weight, blocks.packed())
    attributes = {"columns": blocks.weight.codes.shape[1], "shared": blocks.shared}
    building.add(require("BlockProducts"), [*left.outputs, *weight], node, "product", attributes)
    building.finish(node)


def _in_floats(node: Node, building: Building) -> None:
    weight = _Weight.of(node, building.constants)
    in_byte, size = weight.in_byte, max(1, weight.size)
    codes = weight.padded_codes(in_byte)
    packed = _in_bytes(codes.reshape(len(codes) // in_byte, in_byte, *codes.shape[1:]).transpose(1, 2, 0, 3))
    attributes = {"columns": weight.codes.shape[1], "in_byte": in_byte, "block_size": size}
    inputs = [node.inputs[0], *_constants(node, building, weight, packed)]
    building.add(require("CodeProducts"), inputs, node, "product", attributes)
    building.finish(node)


def _constants(node: Node, building: Building, weight: _Weight, codes: Array) -> list[Value]:
    """Codes, scales and zero points."""
    arrays = (codes, weight.in_panels(weight.scale), weight.packed_zero())
    return [building.constant(f"{node.outputs[0].name}.weight", array) for array in arrays]
