"""Where a call's memory is: no two of its parts overlap, and all lie within the bytes that the header asks for."""

import ctypes
import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

import tilewright
from tests.frontend.models import single_node
from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.shipping.header_text import header_text
from tilewright.backend.shipping.interface import Interface
from tilewright.backend.shipping.run_text import CONSTANTS, c_text, run_text
from tilewright.runtime import abi
from tilewright.runtime.loader import load_image
from tilewright.target.target import Target

INTERFACE = Interface("net", (), (), (), (), workspace=192, worker_bytes=128)
"""Of a model that needs both kinds of memory; its tensors do not matter here."""
WORDS = abi.CONTEXT_BYTES // 8
TELLER = f"""\
@{CONSTANTS} = constant i8 0
@told = internal global [{WORDS} x i64] zeroinitializer

define i32 @{abi.MAIN}(ptr %a, ptr %b, ptr %c, ptr %d) {{
  ret i32 0
}}

define i32 @{abi.ENTER}(ptr %context) {{
  %all = load [{WORDS} x i64], ptr %context
  store [{WORDS} x i64] %all, ptr @told
  ret i32 0
}}

define ptr @where() {{
  ret ptr @told
}}
"""
"""In place of a model and its support functions: keeps the context that it is given."""


def asked_for(threads: int) -> int:
    """What the header's formula gives."""
    relu = tilewright.compile(single_node("Relu", {"x": np.zeros(4, np.float32)}))
    text = header_text(INTERFACE, relu.contents(), ())
    found = re.search(r"define NET_SCRATCH_BYTES_OF\(threads\) \((\d+) \+ (\d+) \* \(threads\)\)", text)
    assert found is not None
    return int(found[1]) + int(found[2]) * threads


def parts(threads: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the workers' memory and of the workspace, relative to what a call is given."""
    target = Target.of(Target.host().arch)
    image = load_image([compile_object(text, target) for text in (run_text(INTERFACE), c_text(INTERFACE), TELLER)])
    block = np.zeros(INTERFACE.scratch_of(threads) + abi.ALIGNMENT, np.uint8)
    scratch = -(-block.ctypes.data // abi.ALIGNMENT) * abi.ALIGNMENT
    word, long = ctypes.c_void_p, ctypes.c_int64
    run = ctypes.CFUNCTYPE(ctypes.c_int, word, word, word, long, word, word)(image.symbol("net_run_parallel"))
    assert run(None, None, scratch, threads, None, None) == 0
    where = ctypes.CFUNCTYPE(ctypes.c_void_p)(image.symbol("where"))()
    told = (ctypes.c_int64 * WORDS).from_address(where)
    workers, stride, workspace = (
        told[at // 8] for at in (abi.CONTEXT_SCRATCH, abi.CONTEXT_SCRATCH_STRIDE, abi.CONTEXT_WORKSPACE)
    )
    for worker in range(threads):
        at = workers + worker * stride - scratch
        yield at, at + INTERFACE.worker_bytes
    yield workspace - scratch, workspace - scratch + INTERFACE.workspace_bytes


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_memory_of_workers_and_the_workspace_are_apart(threads: int) -> None:
    found = sorted(parts(threads))
    assert all(begin % abi.ALIGNMENT == 0 for begin, _ in found)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(found))
    assert found[0][0] >= INTERFACE.dims_at
    assert found[-1][1] <= asked_for(threads)
