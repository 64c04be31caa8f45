"""Curves: their length, and samples that are worked out by hand."""

import numpy as np
import pytest

from tests.loops.workloads import conv2d_padded, matmul
from tilewright.base.errors import BadInput
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import maximum
from tilewright.tensor import build as te
from tilewright.tune.features import NO_FACTORS, Extractor, Structure, curve_buffers, curve_features
from tilewright.tune.features.quantities import Floats


def curves(program: Program, sample_n: int) -> Floats:
    """(buffers, curves, samples, 2) of one program."""
    extractor = Extractor.of(program)
    row = curve_features(extractor, NO_FACTORS, sample_n)[0]
    return row.reshape(len(curve_buffers(extractor.structure)), 4, sample_n, 2)


def buffers(structure: Structure) -> list[str]:
    return [touch.name for touch in curve_buffers(structure)]


def test_length_of_a_matmul() -> None:
    """Samples, buffers, curves, and two numbers for each sample."""
    extractor = Extractor.of(lower(matmul(128, 128, 128)))
    assert buffers(extractor.structure) == ["A_0", "B_0", "C_2"]
    assert curve_features(extractor, NO_FACTORS, sample_n=30).shape == (1, 720)
    assert curve_features(extractor, NO_FACTORS).shape == (1, 20 * 3 * 4 * 2)


def test_so_many_samples_as_are_asked_for() -> None:
    """More samples go further: the first ones stay, and those after them are of longer loops."""
    program = lower(matmul(128, 128, 128))
    few, many = curves(program, 5), curves(program, 30)
    np.testing.assert_array_equal(few, many[:, :, :5])
    assert curves(program, 1).shape == (3, 4, 1, 2)
    assert many[0, 3, 29, 0] > many[0, 3, 4, 0]


@pytest.mark.parametrize("sample_n", [0, -1, True, False])
def test_bad_numbers_of_samples_are_refused(sample_n: int) -> None:
    with pytest.raises(BadInput, match="sample_n"):
        curve_features(Extractor.of(lower(matmul(4, 4, 4))), NO_FACTORS, sample_n)


def test_samples_of_a_matmul() -> None:
    """Of ``A``: counts 128, 128, 16384; reuses 1, 128, 128; products from outside 128, 16384, 2097152."""
    by_count, by_reuse, outside, count = curves(lower(matmul(128, 128, 128)), 24)[0]
    at = list(range(24))
    steps = [x - (0 if x < 7 else 7 if x < 14 else 14) for x in at]
    assert by_count[:, 0].tolist() == [0 if x < 7 else 7 for x in at]
    assert by_count[:, 1].tolist() == steps
    assert by_reuse[:, 0].tolist() == [7 if x < 7 else 14 for x in at]
    assert by_reuse[:, 1].tolist() == [x if x < 7 else x - 7 for x in at]
    assert outside[:, 0].tolist() == [0 if x < 7 else 14 if x < 14 else 21 for x in at]
    assert outside[:, 1].tolist() == steps
    assert count[:, 0].tolist() == [0 if x < 7 else 7 if x < 21 else 14 for x in at]
    assert count[:, 1].tolist() == [x - x // 7 * 7 for x in at]


def test_length_does_not_depend_on_the_nest() -> None:
    naive = lower(matmul(24, 24, 24))
    s = Schedule(naive)
    s.split("i", (None, 2, 3))
    s.split("k", (None, 4))
    assert curves(s.program, 20).shape == curves(naive, 20).shape
    assert not np.array_equal(curves(s.program, 20), curves(naive, 20))


def test_the_deepest_loops_have_curves() -> None:
    """The copy and the activation around a convolution have not, also where no floats are calculated with."""
    assert buffers(Extractor.of(lower(conv2d_padded(8, 3, 4, 3, 1))).structure) == ["W_0", "conv_2", "padded_1"]
    a = te.placeholder((4, 5), name="A")
    rows = te.compute((4,), lambda i: a[i, 0], name="R")
    both = te.compute((4, 5), lambda i, j: maximum(rows[i], a[i, j]), name="M")
    assert buffers(Extractor.of(lower(both)).structure) == ["A_1", "M_0", "R_1"]


def test_nests_that_are_as_deep_or_not() -> None:
    """Of a copy, two products that are as deep, and one that is not: the last access in a product that is."""
    a, b, c = (te.placeholder((4, 5), name=name) for name in "ABC")
    copy = te.compute((4, 5), lambda i, j: a[i, j], name="T")
    first = te.compute((4, 5), lambda i, j: copy[i, j] * b[i, j], name="M")
    second = te.compute((4, 5), lambda i, j: first[i, j] * b[i, j], name="N")
    third = te.compute((4,), lambda i: second[i, 0] * c[i, 0], name="P")
    assert buffers(Extractor.of(lower(third)).structure) == ["B_1", "M_1", "N_0", "T_1"]


def test_a_buffer_and_its_copy_are_one() -> None:
    a, copy = te.placeholder((4,), name="A"), te.placeholder((4,), name="A_local")
    both = te.compute((4,), lambda i: a[i] * copy[i], name="D")
    assert buffers(Extractor.of(lower(both)).structure) == ["A_local_0", "D_0"]


def test_copies_are_the_buffer_that_they_copy() -> None:
    s = Schedule(lower(matmul(8, 8, 8)))
    s.cache_read("C", "A", LOCAL)
    s.cache_write("C", "C", LOCAL)
    assert buffers(Extractor.of(s.program).structure) == ["A_local_1", "B_0", "C_local_2"]
    s.split("i", (None, 2))
    s.compute_at("A_local", "j")
    assert buffers(Extractor.of(s.program).structure) == ["A_local_1", "B_0", "C_local_2"]
