"""Which calls keep the interpreter's lock: the short ones, as long as they are short, and none with a timeout."""

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from tests.runtime.images import ENDLESS, image_of
from tilewright.base import dtypes as dt
from tilewright.base.errors import ResourceLimit
from tilewright.runtime import entry
from tilewright.runtime.entry import Entry
from tilewright.runtime.manifest import Manifest, TensorSpec
from tilewright.runtime.native import NativeExecutable

_Function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
CALLS = 30


@pytest.fixture
def address() -> Iterator[int]:
    """A function that returns its argument plus one."""
    function = _Function(lambda context: (context or 0) + 1)
    yield ctypes.cast(function, ctypes.c_void_p).value or 0
    del function


def called(made: Entry, times: int = CALLS) -> Entry:
    assert [made.call(turn) for turn in range(times)] == list(range(1, times + 1))
    return made


def keeps_the_lock(made: Entry) -> bool:
    return made.call == made._held


def test_short_calls_keep_the_lock(address: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "SHORT_NANOSECONDS", 1 << 60)
    monkeypatch.setattr(entry, "_LONG_NANOSECONDS", 1 << 60)
    assert not keeps_the_lock(called(Entry(address), 15))
    assert keeps_the_lock(called(Entry(address)))


def test_others_never_do(address: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "SHORT_NANOSECONDS", -1)
    made = called(Entry(address))
    assert made.call is made.releasing


def test_calls_that_become_long_release_it_again(address: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "SHORT_NANOSECONDS", 1 << 60)
    monkeypatch.setattr(entry, "_LONG_NANOSECONDS", 1 << 60)
    made = called(Entry(address))
    monkeypatch.setattr(entry, "_LONG_NANOSECONDS", -1)
    called(made, entry._LONG_IN_A_ROW - 1)
    assert keeps_the_lock(made), "these may have been interrupted"
    called(made, 1)
    assert made.call is made.releasing


ENDLESS_IF_NOT_ZERO = (
    ENDLESS.replace("@tw_main", "@endless")
    + """
define i32 @tw_main(ptr %buffers, ptr %dims, ptr %workspace, ptr %context) nounwind {
  %x = load ptr, ptr %buffers
  %value = load i64, ptr %x
  %none = icmp eq i64 %value, 0
  br i1 %none, label %end, label %wait
wait:
  %code = call i32 @endless(ptr %buffers, ptr %dims, ptr %workspace, ptr %context)
  ret i32 %code
end:
  ret i32 0
}
"""
)


def test_a_timeout_ends_a_model_that_was_quick_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "SHORT_NANOSECONDS", 1 << 60)
    spec = TensorSpec("x", dt.i64, ())
    model = NativeExecutable(Manifest((spec,), ()), image_of(ENDLESS_IF_NOT_ZERO), threads=1)
    for _ in range(CALLS):
        model.run({"x": np.int64(0)})
    with pytest.raises(ResourceLimit, match="longer than its timeout"):
        model.run({"x": np.int64(1)}, timeout=0.02)
