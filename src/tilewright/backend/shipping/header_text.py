"""The C header of a model: sizes as macros, and the functions that run it."""

from collections.abc import Sequence

from tilewright.backend.shipping.interface import Interface, Tensor
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import MAX_NUMBER, Symbol

VERSION = 2
"""Version of the interface in C."""


def header_text(interface: Interface, parts: Artifact, imports: Sequence[str]) -> str:
    """The header; ``imports``: the C functions that the object calls."""
    name, big = interface.prefix, interface.prefix.upper()
    needs = f"It calls {', '.join(imports)} of the C library." if imports else "It calls no other function."
    return f"""\
/* {name}: a model compiled by Tilewright {parts.build.tool} for {parts.build.target}.

   {needs} */
#ifndef {big}_H
#define {big}_H

#include <stdint.h>

#define {big}_ABI {VERSION}
#define {big}_INPUTS {len(interface.inputs)}
#define {big}_OUTPUTS {len(interface.outputs)}
{_tensors(interface)}
{_scratch(interface)}
#define {big}_SCRATCH_ALIGNMENT {abi.ALIGNMENT}
#define {big}_MAX_THREADS {abi.MAX_THREADS}

/* What {name}_run returns. */
#define {big}_OK {abi.ErrorCode.OK.value}
#define {big}_OUT_OF_BOUNDS {abi.ErrorCode.OUT_OF_BOUNDS.value}
#define {big}_LIMIT {abi.ErrorCode.LIMIT.value}
#define {big}_INDEX {abi.ErrorCode.INDEX.value}
#define {big}_INDEX_FROM_END {abi.ErrorCode.INDEX_FROM_END.value}
#define {big}_NO_TILES {abi.ErrorCode.NO_TILES.value}
#define {big}_BAD_SIZES {abi.ErrorCode.SIZES.value}

#ifdef __cplusplus
extern "C" {{
#endif
{_open_functions(interface) if interface.open else _fixed_functions(interface)}
#ifdef __cplusplus
}}
#endif
#endif
"""


def _tensors(interface: Interface) -> str:
    big, count, places = interface.prefix.upper(), len(interface.inputs), interface.bytes_at
    return "\n".join(
        (
            *_macros(f"{big}_INPUT", interface.inputs, places[:count]),
            *_macros(f"{big}_OUTPUT", interface.outputs, places[count:]),
            *_open_macros(f"{big}_OPEN", interface.open),
        )
    )


def _macros(prefix: str, tensors: Sequence[Tensor], places: Sequence[int]) -> list[str]:
    lines: list[str] = []
    for number, (tensor, bytes_at) in enumerate(zip(tensors, places, strict=True)):
        shape = ", ".join(str(extent) if isinstance(extent, int) else "-1" for extent in tensor.shape)
        lines += [
            f"#define {prefix}_{number}_NAME {_quoted(tensor.name)}",
            f"#define {prefix}_{number}_TYPE {_quoted(tensor.dtype)}",
            f"#define {prefix}_{number}_RANK {len(tensor.shape)}",
            f"#define {prefix}_{number}_SHAPE {{{shape or 1}}}",
            *(
                [f"#define {prefix}_{number}_BYTES {tensor.bytes}"]
                if tensor.is_fixed
                else [
                    f"#define {prefix}_{number}_SHAPE_AT {bytes_at - len(tensor.shape)}",
                    f"#define {prefix}_{number}_BYTES_AT {bytes_at}",
                ]
            ),
        ]
    return lines


def _open_macros(prefix: str, symbols: Sequence[Symbol]) -> list[str]:
    if not symbols:
        return []
    lines = [f"#define {prefix} {len(symbols)}"]
    for number, symbol in enumerate(symbols):
        lines += [
            f"#define {prefix}_{number}_NAME {_quoted(symbol.name)}",
            f"#define {prefix}_{number}_LEAST {symbol.minimum}",
            f"#define {prefix}_{number}_MOST {MAX_NUMBER if symbol.maximum is None else symbol.maximum}",
        ]
    return lines


def _scratch(interface: Interface) -> str:
    big = interface.prefix.upper()
    if interface.open:
        at = interface.scratch_bytes_at
        return f"#define {big}_SIZES {at + 1}\n#define {big}_SCRATCH_BYTES_AT {at}"
    return f"""\
#define {big}_SCRATCH_BYTES {interface.scratch_bytes}
#define {big}_SCRATCH_BYTES_OF(threads) ({interface.scratch_of(0)} + {interface.worker_bytes} * (threads))"""


def _fixed_functions(interface: Interface) -> str:
    name, big = interface.prefix, interface.prefix.upper()
    return f"""
/* Runs the model on this thread. inputs, outputs: an address for each tensor, which is dense, in row-major order, and
   aligned to its elements. scratch: {big}_SCRATCH_BYTES bytes of any content, aligned to {big}_SCRATCH_ALIGNMENT; each
   thread that calls at the same time has its own. */
int {name}_run(const void *const *inputs, void *const *outputs, void *scratch);
{_threads(interface)}
/* The same on several threads. scratch: {big}_SCRATCH_BYTES_OF(threads) bytes. */
int {name}_run_parallel(const void *const *inputs, void *const *outputs, void *scratch, int64_t threads,
    {name}_parallel_for *parallel_for, void *host);
"""


def _open_functions(interface: Interface) -> str:
    name, big = interface.prefix, interface.prefix.upper()
    return f"""
/* open: the {big}_OPEN extents that are known at run time only. sizes gets {big}_SIZES numbers: at _SHAPE_AT the
   extents of a tensor, at _BYTES_AT its bytes, and at {big}_SCRATCH_BYTES_AT those of the scratch memory for so many
   threads. Returns {big}_BAD_SIZES if the model was not made for such extents. */
int {name}_sizes(const int64_t *open, int64_t threads, int64_t *sizes);

/* Runs the model on this thread. inputs, outputs: an address for each tensor, which is dense, in row-major order, and
   aligned to its elements. scratch: memory of any content, aligned to {big}_SCRATCH_ALIGNMENT; each thread that calls
   at the same time has its own. */
int {name}_run(const int64_t *open, const void *const *inputs, void *const *outputs, void *scratch);
{_threads(interface)}
/* The same on several threads. */
int {name}_run_parallel(const int64_t *open, const void *const *inputs, void *const *outputs, void *scratch,
    int64_t threads, {name}_parallel_for *parallel_for, void *host);
"""


def _threads(interface: Interface) -> str:
    name, big = interface.prefix, interface.prefix.upper()
    return f"""
/* What parallel_for does: call task(argument, chunk, worker) once for each chunk in 0..chunks-1, on any threads and in
   any order, and return when all calls have. worker is in 0..threads-1 (at most {big}_MAX_THREADS); no two calls have
   the same at the same time. host is passed on as it was given. */
typedef void {name}_task(void *argument, int64_t chunk, int64_t worker);
typedef void {name}_parallel_for(void *host, {name}_task *task, void *argument, int64_t chunks);
"""


def _quoted(text: str) -> str:
    """A string literal of C: other bytes than plain letters as octal numbers, which end after three digits."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'
