"""The C header of a model: sizes as macros, and the function that runs it."""

from collections.abc import Sequence

from tilewright.backend.shipping.interface import Interface, Tensor
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact

VERSION = 1
"""Version of the interface in C."""


def header_text(interface: Interface, parts: Artifact, imports: Sequence[str]) -> str:
    """The header; ``imports``: the C functions that the object calls."""
    name, big = interface.prefix, interface.prefix.upper()
    tensors = "\n".join((*_macros(f"{big}_INPUT", interface.inputs), *_macros(f"{big}_OUTPUT", interface.outputs)))
    needs = f"It calls {', '.join(imports)} of the C library." if imports else "It calls no other function."
    return f"""\
/* {name}: a model compiled by Tilewright {parts.build.tool} for {parts.build.target}.

   {needs} */
#ifndef {big}_H
#define {big}_H

#define {big}_ABI {VERSION}
#define {big}_INPUTS {len(interface.inputs)}
#define {big}_OUTPUTS {len(interface.outputs)}
{tensors}

#define {big}_SCRATCH_BYTES {interface.scratch_bytes}
#define {big}_SCRATCH_ALIGNMENT {abi.ALIGNMENT}

/* What {name}_run returns. */
#define {big}_OK {abi.ErrorCode.OK.value}
#define {big}_OUT_OF_BOUNDS {abi.ErrorCode.OUT_OF_BOUNDS.value}
#define {big}_LIMIT {abi.ErrorCode.LIMIT.value}
#define {big}_INDEX {abi.ErrorCode.INDEX.value}
#define {big}_INDEX_FROM_END {abi.ErrorCode.INDEX_FROM_END.value}
#define {big}_NO_TILES {abi.ErrorCode.NO_TILES.value}

#ifdef __cplusplus
extern "C" {{
#endif

/* Runs the model on this thread. inputs, outputs: an address for each tensor, which is dense, in row-major order, and
   aligned to its elements. scratch: {big}_SCRATCH_BYTES bytes of any content, aligned to {big}_SCRATCH_ALIGNMENT; each
   thread that calls at the same time has its own. */
int {name}_run(const void *const *inputs, void *const *outputs, void *scratch);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _macros(prefix: str, tensors: Sequence[Tensor]) -> list[str]:
    lines: list[str] = []
    for number, tensor in enumerate(tensors):
        shape = ", ".join(map(str, tensor.shape))
        lines += [
            f"#define {prefix}_{number}_NAME {_quoted(tensor.name)}",
            f"#define {prefix}_{number}_TYPE {_quoted(tensor.dtype)}",
            f"#define {prefix}_{number}_RANK {len(tensor.shape)}",
            f"#define {prefix}_{number}_SHAPE {{{shape or 1}}}",
            f"#define {prefix}_{number}_BYTES {tensor.bytes}",
        ]
    return lines


def _quoted(text: str) -> str:
    """A string literal of C: other bytes than plain letters as octal numbers, which end after three digits."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'
