"""A model as a WebAssembly module that needs nothing of its host: memory, stack, constants and call are inside.

The memory from address 0: the stack (which grows down, so that an overflow is a trap), the object's data, the
constants, the inputs, the outputs, and the scratch memory of a call with its context and pointers filled in. So a host
writes inputs, calls ``run(context)``, and reads outputs. The custom section ``tilewright`` says where, as JSON.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from tilewright.backend.shipping import wasm_object as wasm
from tilewright.backend.shipping.interface import Interface, Tensor, offsets
from tilewright.backend.shipping.wasm_object import END, I32, I32_CONST, WasmObject, read_object, signed, unsigned
from tilewright.base.errors import Unsupported
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.memory import round_up

_STACK_BYTES = 1 << 20
_PAGE = 1 << 16
_MOST_BYTES = (1 << 31) - _PAGE
"""Addresses are non-negative numbers of 32 bits, as some engines have no more memory."""
_RUN = "tw_run"
_FUNCTION_REFERENCE = 0x70


@dataclass(frozen=True, slots=True)
class _Layout:
    """Addresses in the memory of the module."""

    constants: int
    tensors: tuple[int, ...]
    """Of the inputs, then of the outputs."""
    scratch: int
    end: int

    @staticmethod
    def of(interface: Interface, begin: int) -> "_Layout":
        constants = round_up(begin, abi.ALIGNMENT)
        at, size = offsets([tensor.bytes for tensor in (*interface.inputs, *interface.outputs)])
        first = constants + interface.constant_bytes
        scratch = first + size
        end = scratch + interface.scratch_bytes
        if end > _MOST_BYTES:
            raise Unsupported(f"the module needs {end} bytes of memory, and engines have {_MOST_BYTES}; use a program")
        return _Layout(constants, tuple(first + offset for offset in at), scratch, end)


def wasm_module(parts: Artifact, interface: Interface) -> bytes:
    """The module. Raises ``Unsupported`` if it calls functions of others, or needs too much memory."""
    item = read_object(parts.objects[0], _STACK_BYTES)
    layout = _Layout.of(interface, item.end)
    pieces = [*item.data, (layout.scratch, _context(interface, layout))]
    if interface.constants:
        pieces.append((layout.constants, interface.constant_data(parts)))
    pages = -(-layout.end // _PAGE)
    return b"".join(
        (
            wasm.MAGIC,
            _section(wasm.TYPE, item.types),
            _section(wasm.FUNCTION, item.functions),
            _section(wasm.TABLE, b"\x01" + bytes((_FUNCTION_REFERENCE, 1)) + unsigned(item.entries) * 2),
            _section(wasm.MEMORY, b"\x01\x01" + unsigned(pages) * 2),
            _section(wasm.GLOBAL, b"\x01" + bytes((I32, 1, I32_CONST)) + signed(_STACK_BYTES) + bytes((END,))),
            _section(wasm.EXPORT, _exports(item)),
            _section(wasm.ELEMENT, item.elements),
            _section(wasm.COUNT, unsigned(len(pieces))),
            _section(wasm.CODE, item.code),
            _section(wasm.DATA, _data(pieces)),
            _section(wasm.CUSTOM, _name("tilewright") + _description(interface, layout)),
        )
    )


def _section(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + unsigned(len(body)) + body


def _name(text: str) -> bytes:
    return unsigned(len(text.encode())) + text.encode()


def _exports(item: WasmObject) -> bytes:
    run = _name("run") + b"\0" + unsigned(item.indices[_RUN])
    return b"\x02" + _name("memory") + b"\x02\0" + run


def _data(pieces: Sequence[tuple[int, bytes]]) -> bytes:
    parts = [unsigned(len(pieces))]
    for at, piece in pieces:
        parts += [bytes((0, I32_CONST)), signed(at), bytes((END,)), unsigned(len(piece)), piece]
    return b"".join(parts)


def _context(interface: Interface, layout: _Layout) -> bytes:
    """The context of a call with one thread (``runtime.abi``), and the pointers, of four bytes, after it."""
    block = bytearray(interface.workspace_at)
    fields = {
        abi.CONTEXT_THREADS: 1,
        abi.CONTEXT_SCRATCH: layout.scratch + interface.worker_at,
        abi.CONTEXT_SCRATCH_STRIDE: interface.worker_bytes,
        abi.CONTEXT_BUFFERS: layout.scratch + interface.buffers_at,
        abi.CONTEXT_WORKSPACE: layout.scratch + interface.workspace_at,
    }
    for offset, value in fields.items():
        struct.pack_into("<q", block, offset, value)
    pointers = (*layout.tensors, *(layout.constants + at for at in interface.constants_at))
    struct.pack_into(f"<{len(pointers)}I", block, interface.buffers_at, *pointers)
    return bytes(block)


def _description(interface: Interface, layout: _Layout) -> bytes:
    count = len(interface.inputs)
    return json.dumps(
        {
            "abi": 1,
            "inputs": _placed(interface.inputs, layout.tensors[:count]),
            "outputs": _placed(interface.outputs, layout.tensors[count:]),
            "context": layout.scratch,
        }
    ).encode()


def _placed(tensors: Sequence[Tensor], places: Sequence[int]) -> list[dict[str, object]]:
    return [
        {"name": one.name, "dtype": one.dtype, "shape": list(one.shape), "bytes": one.bytes, "at": at}
        for one, at in zip(tensors, places, strict=True)
    ]


def loader_text() -> str:
    """The JavaScript module that loads such modules, in browsers and elsewhere: the same for all of them."""
    return files("tilewright.backend.shipping").joinpath("loader.js").read_text()
