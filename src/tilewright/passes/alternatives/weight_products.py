"""Products with weights of 4 or 8 bits: in integers, with weights packed as they are; or in floats.

``BlockDigits`` writes numbers with two or three digits, so that ``vpdpbusd`` sums up products of digits and codes exactly; the
error is that of a number of 16 or 24 bits, relative to the largest of its block. A weight takes 4 bits if its codes are at
most 15 apart, whatever type they had. Codes, scales and zero points are packed at compile time, in panels of columns
that the kernel reads from the first byte to the last.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.cost.kernels import sum_cycles
from tilewright.graph import Array, Node, Value, make_node
from tilewright.kernels.dot_products import LANES, dot_products
from tilewright.ops.operator import require
from tilewright.ops.weight_products import GROUP
from tilewright.passes.alternatives.api import Building, Errors, Facts, Way
from tilewright.passes.blocks import points

_PRODUCT = require("WeightProduct")
MOST_ROWS = 128
"""Most rows whose products are summed up in i32: sums of digits of 8 bits by codes of 8 bits stay in range."""
WIDEST = 64
"""Columns of a panel: as many as a tile of one row has."""
_MORE = 1.05
"""Panels may have so many times the columns of the weight."""


_OTHER_ERRORS = Errors(has_own_terms=False)
"""As large as those of f32: nothing is required in exchange."""


class InDigits:
    """By ``vpdpbusd``, if the target has it, for constant weights in blocks of whole steps."""

    name = "digits and codes"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op != _PRODUCT or dot_products(facts.target).get("vpdpbusd_nibbles") is None:
            return
        plan = _Plan.of(_Weight.of(node, facts.constants))
        if plan is not None:
            products = points(node.outputs[0].shape) * plan.depth * _digits(node) // GROUP
            words = plan.depth * plan.columns // (GROUP * plan.groups)
            yield Way(self.name, sum_cycles(products, words, facts.target), make=_in_digits, errors=_OTHER_ERRORS)


class InFloats:
    """As a product of floats."""

    name = "weights in floats"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op == _PRODUCT:
            codes = node.inputs[1]
            assert codes is not None, "a product has two operands"
            depth = points(codes.shape) // max(1, points(node.outputs[0].shape[-1:]))
            cycles = sum_cycles(points(node.outputs[0].shape) * depth, points(codes.shape), facts.target)
            yield Way(self.name, cycles, make=_in_floats)


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

    def in_floats(self) -> NDArray[np.float32]:
        """As it is multiplied."""
        scale, zero = (np.repeat(array, self.size, axis=0)[: len(self.codes)] for array in (self.scale, self.zero))
        return (self.codes.astype(np.float32) - zero) * scale


@dataclass(frozen=True, slots=True)
class _Plan:
    """A weight, and how it is packed."""

    weight: _Weight
    groups: int
    """Groups of rows whose codes share bytes."""
    block: int
    """Rows whose products are summed up in i32."""

    @property
    def depth(self) -> int:
        """Rows."""
        return self.weight.codes.shape[0]

    @property
    def columns(self) -> int:
        """Columns."""
        return self.weight.codes.shape[1]

    @property
    def lowest(self) -> int:
        """The code that is stored as 0."""
        return int(self.weight.codes.min())

    @property
    def shared(self) -> int:
        """Blocks with one scale."""
        return -(-self.weight.size // self.block)

    @staticmethod
    def of(weight: _Weight) -> "_Plan | None":
        """How ``weight`` is packed; None if it is empty, or if its blocks are not whole steps."""
        if not weight.codes.size:
            return None
        groups = 2 if int(weight.codes.max()) - int(weight.codes.min()) < 16 else 1
        step, depth = GROUP * groups, len(weight.codes)
        block = min(MOST_ROWS, -(-depth // step) * step) if weight.size == depth else _block(weight.size, step)
        return None if block is None else _Plan(weight, groups, block)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        wide = (WIDEST, WIDEST // 2, LANES)
        return next((w for w in wide if -(-self.columns // w) * w <= _MORE * self.columns), LANES)

    def packed_codes(self) -> NDArray[np.uint8]:
        """``[panels, steps, width, 4]``."""
        step, width = GROUP * self.groups, self.width
        steps, panels = -(-self.depth // self.block) * self.block // step, -(-self.columns // width)
        codes = np.zeros((steps * step, panels * width), np.uint8)
        codes[: self.depth, : self.columns] = self.weight.codes.astype(np.int16) - self.lowest
        parts = codes.reshape(steps, self.groups, GROUP, panels, width).transpose(1, 3, 0, 4, 2)
        return np.ascontiguousarray(parts[0] if self.groups == 1 else parts[0] | parts[1] << 4)

    def in_panels(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """``[panels, scales, width]``."""
        panels = -(-self.columns // self.width)
        padded = np.zeros((len(array), panels * self.width), np.float32)
        padded[:, : self.columns] = array
        return np.ascontiguousarray(padded.reshape(len(array), panels, self.width).transpose(1, 0, 2))

    def packed_zero(self) -> Array:
        """One number if all are equal; bytes if all are such; in panels."""
        zero = self.weight.zero - np.float32(self.lowest)
        first = zero.reshape(-1)[0]
        if np.all(zero == first):
            return np.array(first, np.float32)
        packed = self.in_panels(zero)
        are_bytes = np.all((packed >= 0) & (packed <= 255) & (packed == np.rint(packed)))
        return packed.astype(np.uint8) if are_bytes else packed


def _digits(node: Node) -> int:
    return int(str(dict(node.attributes).get("digits", 3)))


def _block(size: int, step: int) -> int | None:
    """The most rows that are summed up at once in blocks of ``size``: whole steps, and a part of them all."""
    fitting = (rows for rows in range(min(size, MOST_ROWS), 0, -1) if size % rows == 0 and rows % step == 0)
    return next(fitting, None)


def _in_digits(node: Node, building: Building) -> None:
    plan = _Plan.of(_Weight.of(node, building.constants))
    a, result = node.inputs[0], node.outputs[0].name
    assert plan is not None and a is not None, "see `InDigits`"
    names = [building.names.fresh(f"{result}.{part}") for part in ("digits", "unit", "sums")]
    digits = make_node(require("BlockDigits"), [a], names, {"block": plan.block, "digits": _digits(node)}, node.source)
    building.append(digits)
    packed = (plan.packed_codes(), plan.in_panels(plan.weight.scale), plan.packed_zero())
    weight = [building.constant(f"{result}.weight", array) for array in packed]
    attributes = {"columns": plan.columns, "shared": plan.shared}
    building.add(require("BlockProducts"), [*digits.outputs, *weight], node, "product", attributes)
    building.finish(node)


def _in_floats(node: Node, building: Building) -> None:
    weight = building.constant(f"{node.outputs[0].name}.weight", _Weight.of(node, building.constants).in_floats())
    building.add(require("MatMul"), [node.inputs[0], weight], node, "product")
    building.finish(node)
