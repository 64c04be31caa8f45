"""What a program for a board without Python writes: outputs, and the time of all calls, by a clock that is known."""

import struct

import numpy as np

import tilewright
from tests.backend.shipping.emulator import TICK, emulate
from tests.backend.shipping.networks import lenet, sample
from tilewright.backend.shipping.board import board_program

CALLS = 3


def test_a_program_calls_as_often_as_it_is_asked_to_and_tells_the_time_of_all_calls() -> None:
    x = sample((1, 1, 28, 28))
    interface, program = board_program(tilewright.compile(lenet(), target="aarch64").contents(), between_bytes=1000)
    found = emulate(program, struct.pack("<Q", CALLS) + x.tobytes())
    assert (found.code, found.errors) == (0, b"")
    sizes = [tensor.bytes for tensor in interface.outputs]
    assert struct.unpack("<Q", found.out[sum(sizes) :]) == (CALLS * TICK,)
    begin = 0
    for size, wanted in zip(sizes, tilewright.compile(lenet())(x), strict=True):
        given = np.frombuffer(found.out[begin : begin + size], wanted.dtype).reshape(wanted.shape)
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)
        begin += size
