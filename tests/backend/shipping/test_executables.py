"""How the system maps a program: what may be written and executed, and where pages of any size allow that."""

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import model as make_model

LARGEST = {"x86_64": 1 << 12, "aarch64": 1 << 16, "riscv64": 1 << 12}
"""Bytes of the largest pages of kernels."""
LOADED, STACK = 1, 0x6474E551
EXECUTE, WRITE, READ = 1, 2, 4


@pytest.mark.parametrize("target", LARGEST)
def test_segments(target: str, tmp_path: Path) -> None:
    x, weights = np.ones((2, 8), np.float32), {"w": np.ones((8, 8), np.float32)}
    network = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], weights)
    (path,) = tilewright.compile(network, target=target).emit(tmp_path / "program")
    data, page = path.read_bytes(), LARGEST[target]
    (table,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    segments = [struct.unpack_from("<IIQQQQQQ", data, table + 56 * place) for place in range(count)]
    assert [flags for kind, flags, *_ in segments if kind == STACK] == [READ | WRITE]
    loaded = [fields for kind, *fields in segments if kind == LOADED]
    assert loaded[0][0] == READ | EXECUTE
    assert loaded[-1][0] == READ  # the weights
    for flags, offset, address, _, stored, size, alignment in loaded:
        assert not flags & WRITE or not flags & EXECUTE
        assert stored == size
        assert offset + stored <= len(data)
        assert (alignment, (address - offset) % page) == (page, 0)
    for before, after in pairwise(sorted(loaded, key=lambda fields: fields[2])):
        assert (before[2] + before[5] - 1) // page < after[2] // page
