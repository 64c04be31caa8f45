"""LLVM IR of ``PREFIX_run``: a call of a model in C's terms, on memory that the caller gives."""

from collections.abc import Iterable

from tilewright.backend.cpu.support import RUN
from tilewright.backend.shipping.interface import POINTER, Interface
from tilewright.base.tile_permission import ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
from tilewright.runtime import abi

CONSTANTS = "tw_constants"
"""The symbol of the constants, one after the other."""


def run_text(interface: Interface, *, asks_for_tiles: bool = False) -> str:
    """The definitions of ``PREFIX_run(inputs, outputs, scratch)`` and of ``tw_run``; ``tw_constants`` is elsewhere.

    ``asks_for_tiles``: whether the system is asked in each call, by ``tw_system``, if the matrix unit may be used.

    It writes all fields of the context that a call with one thread reads, and the pointers; so the scratch memory may
    hold anything before.
    """
    given = _copied("inputs", len(interface.inputs), 0)
    results = _copied("outputs", len(interface.outputs), len(interface.inputs))
    first = len(interface.inputs) + len(interface.outputs)
    constants = (_constant(first + i, at) for i, at in enumerate(interface.constants_at))
    lines = "\n".join((*given, *results, *constants))
    return f"""\
{RUN}
@{CONSTANTS} = external hidden constant i8

define i32 @{interface.prefix}_run(ptr %inputs, ptr %outputs, ptr %scratch) nounwind {{
{_ASKING if asks_for_tiles else ""}\
  call void @llvm.memset.p0.i64(ptr align {abi.ALIGNMENT} %scratch, i8 0, i64 {abi.CONTEXT_BYTES}, i1 false)
  %buffers = getelementptr i8, ptr %scratch, i64 {interface.buffers_at}
{lines}
{_field(abi.CONTEXT_THREADS, "i64", "1")}
  %worker = getelementptr i8, ptr %scratch, i64 {interface.worker_at}
{_field(abi.CONTEXT_SCRATCH, "ptr", "%worker")}
{_field(abi.CONTEXT_SCRATCH_STRIDE, "i64", str(interface.worker_bytes))}
{_field(abi.CONTEXT_BUFFERS, "ptr", "%buffers")}
  %workspace = getelementptr i8, ptr %scratch, i64 {interface.workspace_at}
{_field(abi.CONTEXT_WORKSPACE, "ptr", "%workspace")}
  %code = call i32 @tw_run(ptr %scratch)
  ret i32 %code
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{_SYSTEM if asks_for_tiles else ""}"""


_REQUEST = (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA, 0, 0, 0, 0)
_ASKING = f"""\
  %asked = call i64 @tw_system({", ".join(f"i64 {number}" for number in _REQUEST)})
  %granted = icmp eq i64 %asked, 0
  br i1 %granted, label %run, label %refused
refused:
  ret i32 {abi.ErrorCode.NO_TILES.value}
run:
"""
_SYSTEM = "declare hidden i64 @tw_system(i64, i64, i64, i64, i64, i64, i64)\n"


def _field(offset: int, kind: str, value: str) -> str:
    return f"""\
  %field.{offset} = getelementptr i8, ptr %scratch, i64 {offset}
  store {kind} {value}, ptr %field.{offset}"""


def _copied(array: str, count: int, first: int) -> Iterable[str]:
    """Copies ``count`` pointers of the caller to the place ``first`` on."""
    for i in range(count):
        yield f"""\
  %{array}.{i}.from = getelementptr ptr, ptr %{array}, i64 {i}
  %{array}.{i} = load ptr, ptr %{array}.{i}.from
  %{array}.{i}.to = getelementptr i8, ptr %buffers, i64 {POINTER * (first + i)}
  store ptr %{array}.{i}, ptr %{array}.{i}.to"""


def _constant(place: int, offset: int) -> str:
    return f"""\
  %constant.{place} = getelementptr i8, ptr %buffers, i64 {POINTER * place}
  store ptr getelementptr (i8, ptr @{CONSTANTS}, i64 {offset}), ptr %constant.{place}"""
