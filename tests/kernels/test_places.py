"""One axis of places in place of the dimensions of images."""

import pytest

from tilewright import te
from tilewright.base.dtypes import DType, bf16, f32
from tilewright.kernels.places import merge_places
from tilewright.kernels.relayout import blocked, relayout, spread
from tilewright.ops.operator import require
from tilewright.symbolic.expr import Expr, cast
from tilewright.target.target import Target
from tilewright.tensor.ir import Reduction

PLAIN, UNIT = Target.parse("x86_64,znver4"), Target.parse("x86_64,sapphirerapids,+amx-bf16,+amx-int8")


def test_a_pointwise_convolution_has_one_axis_of_places() -> None:
    x, w = te.placeholder((1, 32, 7, 7), name="x"), te.placeholder((64, 32, 1, 1), name="w")
    (y,) = require("Conv").apply([x, w], {})
    (z,) = require("Relu").apply([y], {})
    known = {x: blocked(4, 16), z: blocked(4, 16)}
    merged = merge_places([z], spread([z], known, PLAIN.machine), PLAIN)
    assert {str(m) for m in merged.values()} == {"d0, d1, d2, d3 -> d0, d1 // 16, d2 * 7 + d3, d1 % 16"}
    assert [str(e) for e in relayout([z], merged)[z].shape] == ["1", "4", "49", "16"]
    (copied,) = require("Relu").apply([z], {})
    merged = merge_places([copied], {x: blocked(4, 16), y: blocked(4, 16), z: blocked(4, 16)}, PLAIN)
    assert [str(e) for e in relayout([copied], merged)[copied].shape] == ["1", "64", "49"]
    window = require("Conv").apply([x, te.placeholder((64, 32, 3, 3), name="v")], {"pads": (1,) * 4})
    assert merge_places(window, known, PLAIN) == known


@pytest.mark.parametrize(
    ("size", "dtype", "target", "is_merged"),
    [
        ((17, 17), bf16, UNIT, True),  # of 32 rows of tiles, 17 are filled; in all, 289 of 304
        ((35, 35), bf16, UNIT, True),  # 35 of 48; 245 of 256
        ((28, 28), bf16, UNIT, False),  # 28 of 32
        ((17, 17), f32, UNIT, False),
        ((17, 17), bf16, PLAIN, False),
        ((14, 14), bf16, PLAIN, True),
    ],
)
def test_places_of_large_planes_fill_tiles_of_a_matrix_unit(
    size: tuple[int, int], dtype: DType, target: Target, is_merged: bool
) -> None:
    x, w = te.placeholder((1, 32, *size), dtype, "x"), te.placeholder((64, 32), dtype, "w")
    c = te.reduce_axis((0, 32), name="c")

    def body(n: Expr, f: Expr, i: Expr, j: Expr) -> Reduction:
        return te.sum(cast(x[n, c, i, j], f32) * cast(w[f, c], f32), axis=c)

    y = te.compute((1, 64, *size), body, name="y")
    merged = merge_places([y], {x: blocked(4, 32), y: blocked(4, 32)}, target)
    places = [str(size[0] * size[1])] if is_merged else list(map(str, size))
    assert [str(extent) for extent in relayout([y], merged)[y].shape] == ["1", "2", *places, "32"]
