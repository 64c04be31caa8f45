"""LLVM IR of the calls of a model in C's terms, on memory that the caller gives.

    i32 tw_sizes(open, i64 threads, sizes)                              sizes of all tensors, and of the scratch memory
    i32 tw_call(open, inputs, outputs, scratch, i64 threads, pool)      a call; ``pool``: who runs chunks, or null
    i32 PREFIX_run(inputs, outputs, scratch)                            the same on one thread
    i32 PREFIX_run_parallel(inputs, outputs, scratch, i64 threads, run, host)      the same on threads of the caller

``open`` has the extents that are known at run time only, and ``sizes`` gets the list that ``Interface`` describes. The
functions in C of a model that has such extents take ``open`` first, and one more has the sizes.
"""

from collections.abc import Iterable

from tilewright.backend.cpu.support import RUN
from tilewright.backend.shipping.formula_text import Arithmetic
from tilewright.backend.shipping.interface import Interface
from tilewright.base.tile_permission import ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
from tilewright.runtime import abi
from tilewright.runtime.manifest import MAX_NUMBER

CONSTANTS = "tw_constants"
"""The symbol of the constants, one after the other."""
CALL, SIZES = "tw_call", "tw_sizes"


def run_text(interface: Interface, *, asks_for_tiles: bool = False) -> str:
    """The definitions of all of these but those in C, and of ``tw_run``; ``tw_constants`` is elsewhere.

    ``asks_for_tiles``: whether the system is asked in each call, by ``tw_system``, if the matrix unit may be used.
    """
    texts = (
        RUN,
        f"@{CONSTANTS} = external hidden constant i8",
        _SYSTEM if asks_for_tiles else "",
        _dims(interface),
        _sizes(interface),
        _call(interface, asks_for_tiles=asks_for_tiles),
    )
    return "\n".join(texts)


def _dims(interface: Interface) -> str:
    """The value of each symbol, in the order of the manifest, from the open ones."""
    numbers, known, given = Arithmetic(), dict[str, str](), 0
    for place, symbol in enumerate(interface.symbols):
        if symbol.value is None:
            value = numbers.loaded("%open", given)
            given += 1
        else:
            value = numbers.value(symbol.value, known)
        numbers.check(value, symbol.minimum, MAX_NUMBER if symbol.maximum is None else symbol.maximum)
        numbers.store(value, "%dims", place)
        known[symbol.name] = value
    lines = "\n".join(numbers.lines)
    return f"""\
; Whether the extents are refused.
define internal i1 @tw_dims(ptr %open, ptr %dims) nounwind {{
{lines}
  ret i1 {numbers.failed}
}}
"""


def _sizes(interface: Interface) -> str:
    numbers = Arithmetic()
    known = {symbol.name: numbers.loaded("%dims", place) for place, symbol in enumerate(interface.symbols)}
    for tensor, bytes_at in zip(interface.tensors, interface.bytes_at, strict=True):
        for place, extent in enumerate(tensor.shape, bytes_at - len(tensor.shape)):
            numbers.store(numbers.value(extent, known), "%sizes", place)
        numbers.store(numbers.value(tensor.size, known), "%sizes", bytes_at)
    threads = numbers.wide("%threads")
    numbers.check(threads, 1, abi.MAX_THREADS)
    workers = numbers.binary("*", threads, str(interface.worker_bytes))
    fixed = numbers.binary("+", workers, str(interface.workers_at))
    whole = numbers.binary("+", fixed, numbers.value(interface.workspace, known))
    numbers.store(whole, "%sizes", interface.scratch_bytes_at)
    lines = "\n".join(numbers.lines)
    return f"""\
define hidden i32 @{SIZES}(ptr %open, i64 %threads, ptr %sizes) nounwind {{
  %dims = alloca [{max(1, len(interface.symbols))} x i64]
  %refused = call i1 @tw_dims(ptr %open, ptr %dims)
{lines}
  %failed = or i1 %refused, {numbers.failed}
  %code = select i1 %failed, i32 {abi.ErrorCode.SIZES.value}, i32 0
  ret i32 %code
}}
"""


def _call(interface: Interface, *, asks_for_tiles: bool) -> str:
    """It writes all fields of the context that a call reads, so the scratch memory may hold anything before."""
    given = _copied("inputs", len(interface.inputs), 0)
    results = _copied("outputs", len(interface.outputs), len(interface.inputs))
    constants = (_constant(len(interface.tensors) + i, at) for i, at in enumerate(interface.constants_at))
    lines = "\n".join((*given, *results, *constants))
    return f"""\
define hidden i32 @{CALL}(ptr %open, ptr %inputs, ptr %outputs, ptr %scratch, i64 %threads, ptr %pool) nounwind {{
  %few = icmp slt i64 %threads, 1
  %many = icmp sgt i64 %threads, {abi.MAX_THREADS}
  %no.number = or i1 %few, %many
  %dims = getelementptr i8, ptr %scratch, i64 {interface.dims_at}
  %no.sizes = call i1 @tw_dims(ptr %open, ptr %dims)
  %wrong = or i1 %no.number, %no.sizes
  br i1 %wrong, label %misfit, label %ready
misfit:
  ret i32 {abi.ErrorCode.SIZES.value}
ready:
{_ASKING if asks_for_tiles else ""}\
  store [{abi.CONTEXT_BYTES // 8} x i64] zeroinitializer, ptr %scratch, align {abi.ALIGNMENT}
  %buffers = getelementptr i8, ptr %scratch, i64 {interface.buffers_at}
{lines}
{_field(abi.CONTEXT_POOL, "ptr", "%pool")}
{_field(abi.CONTEXT_THREADS, "i64", "%threads")}
  %workers = getelementptr i8, ptr %scratch, i64 {interface.workers_at}
{_field(abi.CONTEXT_SCRATCH, "ptr", "%workers")}
{_field(abi.CONTEXT_SCRATCH_STRIDE, "i64", str(interface.worker_bytes))}
{_field(abi.CONTEXT_BUFFERS, "ptr", "%buffers")}
{_field(abi.CONTEXT_DIMS, "ptr", "%dims")}
  %taken = mul i64 %threads, {interface.worker_bytes}
  %workspace = getelementptr i8, ptr %workers, i64 %taken
{_field(abi.CONTEXT_WORKSPACE, "ptr", "%workspace")}
  %code = call i32 @tw_run(ptr %scratch)
  ret i32 %code
}}
"""


_REQUEST = (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA, 0, 0, 0, 0)
_ASKING = f"""\
  %asked = call i64 @tw_system({", ".join(f"i64 {number}" for number in _REQUEST)})
  %granted = icmp eq i64 %asked, 0
  br i1 %granted, label %run, label %refused
refused:
  ret i32 {abi.ErrorCode.NO_TILES.value}
run:
"""
_SYSTEM = "declare hidden i64 @tw_system(i64, i64, i64, i64, i64, i64, i64)"


def c_text(interface: Interface) -> str:
    """The definitions of the functions in C, and of ``tw_parallel_for`` on threads of the caller."""
    name = interface.prefix
    first, open_ = ("ptr %open, ", "%open") if interface.open else ("", "null")
    sizes = f"""\
define i32 @{name}_sizes(ptr %open, i64 %threads, ptr %sizes) nounwind {{
  %code = call i32 @{SIZES}(ptr %open, i64 %threads, ptr %sizes)
  ret i32 %code
}}
"""
    return f"""\
{sizes if interface.open else ""}
define i32 @{name}_run({first}ptr %inputs, ptr %outputs, ptr %scratch) nounwind {{
  %code = call i32 @{CALL}(ptr {open_}, ptr %inputs, ptr %outputs, ptr %scratch, i64 1, ptr null)
  ret i32 %code
}}

define i32 @{name}_run_parallel({first}ptr %inputs, ptr %outputs, ptr %scratch, i64 %threads, ptr %run, ptr %host)
    nounwind {{
  %pool = getelementptr i8, ptr %scratch, i64 {interface.host_at}
  store ptr %run, ptr %pool
  %host.at = getelementptr ptr, ptr %pool, i64 1
  store ptr %host, ptr %host.at
  %code = call i32 @{CALL}(ptr {open_}, ptr %inputs, ptr %outputs, ptr %scratch, i64 %threads, ptr %pool)
  ret i32 %code
}}

declare hidden i32 @{SIZES}(ptr, i64, ptr)
declare hidden i32 @{CALL}(ptr, ptr, ptr, ptr, i64, ptr)
"""


def c_names(interface: Interface) -> frozenset[str]:
    """The functions in C."""
    verbs = ("run", "run_parallel", *(("sizes",) if interface.open else ()))
    return frozenset(f"{interface.prefix}_{verb}" for verb in verbs)


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
  %{array}.{i}.to = getelementptr ptr, ptr %buffers, i64 {first + i}
  store ptr %{array}.{i}, ptr %{array}.{i}.to"""


def _constant(place: int, offset: int) -> str:
    return f"""\
  %constant.{place} = getelementptr ptr, ptr %buffers, i64 {place}
  store ptr getelementptr (i8, ptr @{CONSTANTS}, i64 {offset}), ptr %constant.{place}"""
