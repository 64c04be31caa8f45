"""A model as a WebAssembly module that needs nothing of its host: stack, data and constants are in its memory.

The memory from address 0: the stack (which grows down, so that an overflow is a trap), the objects' data, the
constants; what follows is the host's, for tensors and for the scratch memory of calls. The module exports ``memory``,
and the functions ``sizes`` and ``run`` of ``run_text``. The custom section ``tilewright`` says what a host
needs to know, as JSON.

With threads, the memory is shared: the module imports it, and one of its instances calls ``init``, which fills it. Each
thread has an instance, whose stack the host sets (the global ``stack``); those that only help run ``work``.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.support import support_text
from tilewright.backend.shipping import wasm_object as wasm
from tilewright.backend.shipping.interface import Interface, Tensor
from tilewright.backend.shipping.run_text import CALL, CONSTANTS, SIZES, run_text
from tilewright.backend.shipping.wasm_link import WasmImage, data_end, link, missing
from tilewright.backend.shipping.wasm_numbers import signed, unsigned
from tilewright.backend.shipping.wasm_object import END, I32, I32_CONST, I64, I64_CONST, WasmObject, read_object
from tilewright.backend.shipping.wasm_threads_text import pool_for_wasm
from tilewright.base.errors import Unsupported
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import Symbol
from tilewright.runtime.memory import round_up
from tilewright.target.target import Architecture, Target

STACK_BYTES = 1 << 20
"""Of each thread."""
_PAGE = 1 << 16
_MOST_PAGES = {Architecture.WASM32: (1 << 15) - 1, Architecture.WASM64: 1 << 18}
"""Addresses of 32 bits are non-negative, as some engines have no more memory; with 64 bits, engines have 16 GiB."""
_FUNCTION_REFERENCE = 0x70
_TYPE_OF_INIT = b"\x60\0\0"
THREADS = "atomics"
"""The feature of the target with which a module has threads."""


def wasm_module(parts: Artifact, interface: Interface) -> bytes:
    """The module. Raises ``Unsupported`` if it calls functions of others, or needs too much memory."""
    target = Target.parse(parts.build.target)
    objects = _objects(parts, interface, target)
    if lacking := missing(objects) - {CONSTANTS}:
        raise Unsupported(
            f"the model calls {', '.join(sorted(lacking))} of the C library, which a WebAssembly module has not: leave "
            "out the operators that need it, or emit an object for a processor and link it"
        )
    constants_at = round_up(data_end(objects, STACK_BYTES), abi.ALIGNMENT)
    heap = constants_at + interface.constant_bytes
    most = _MOST_PAGES[target.arch] * _PAGE
    if heap > most:
        raise Unsupported(f"the module needs {heap} bytes of memory, and engines have {most}; use a program")
    image = link(objects, STACK_BYTES, {CONSTANTS: constants_at})
    pieces = list(image.data)
    if interface.constants:
        pieces.append((constants_at, interface.constant_data(parts)))
    return _assembled(image, pieces, heap, _description(interface, heap, target), _Kind.of(target))


def _objects(parts: Artifact, interface: Interface, target: Target) -> list[WasmObject]:
    """The model with its calls, and with support functions that know threads if the target has them."""
    parsed = [read_object(data) for data in parts.objects]
    regions = pool_for_wasm() if target.has(THREADS) else ""
    support = support_text(target.arch.value, threads=False, regions=regions)
    return [
        *(one for one in parsed if not _defines(one, abi.ENTER)),
        *(read_object(compile_object(text, target)) for text in (support, run_text(interface))),
    ]


def _defines(item: WasmObject, name: str) -> bool:
    return any(symbol.name == name and symbol.index is not None for symbol in item.symbols)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a module depends on, besides its model."""

    has_threads: bool
    is_wide: bool
    """Whether addresses have 64 bits."""
    most_pages: int

    @staticmethod
    def of(target: Target) -> "_Kind":
        return _Kind(target.has(THREADS), target.arch is Architecture.WASM64, _MOST_PAGES[target.arch])

    def limits(self, pages: int) -> bytes:
        """Of the memory: the least number of pages, and with threads the most."""
        most = unsigned(self.most_pages) if self.has_threads else b""
        return bytes((3 * self.has_threads | 4 * self.is_wide,)) + unsigned(pages) + most

    def address(self, at: int) -> bytes:
        """An instruction that has an address as its result."""
        return bytes((I64_CONST if self.is_wide else I32_CONST,)) + signed(at)


def _assembled(
    image: WasmImage, pieces: Sequence[tuple[int, bytes]], heap: int, description: bytes, kind: _Kind
) -> bytes:
    """The module's sections. With threads, a function ``init`` is its last one, which copies all pieces of data."""
    has_threads = kind.has_threads
    types = (*image.types, *((_TYPE_OF_INIT,) if has_threads else ()))
    functions = (*image.functions, *((len(image.types),) if has_threads else ()))
    bodies = image.bodies + (_init(pieces, kind) if has_threads else b"")
    limits = kind.limits(-(-heap // _PAGE))
    table = bytes((_FUNCTION_REFERENCE, 1 | 4 * kind.is_wide)) + unsigned(1 + len(image.slots)) * 2
    stack = bytes((I64 if kind.is_wide else I32, 1)) + kind.address(STACK_BYTES) + bytes((END,))
    sections = (
        (wasm.TYPE, _vector(types)),
        *(((wasm.IMPORT, _vector([_name("env") + _name("memory") + b"\x02" + limits])),) if has_threads else ()),
        (wasm.FUNCTION, _vector([unsigned(kind) for kind in functions])),
        (wasm.TABLE, _vector([table])),
        *(() if has_threads else ((wasm.MEMORY, _vector([limits])),)),
        (wasm.GLOBAL, _vector([stack])),
        (wasm.EXPORT, _vector(_exports(image, has_threads=has_threads))),
        *(((wasm.ELEMENT, _elements(image, kind)),) if image.slots else ()),
        (wasm.COUNT, unsigned(len(pieces))),
        (wasm.CODE, unsigned(len(functions)) + bodies),
        (wasm.DATA, _vector([_data(at, piece, kind) for at, piece in pieces])),
        (wasm.CUSTOM, _name("tilewright") + description),
    )
    return wasm.MAGIC + b"".join(bytes((kind,)) + unsigned(len(body)) + body for kind, body in sections)


def _vector(items: Sequence[bytes]) -> bytes:
    return unsigned(len(items)) + b"".join(items)


def _name(text: str) -> bytes:
    return unsigned(len(text.encode())) + text.encode()


def _exports(image: WasmImage, *, has_threads: bool) -> list[bytes]:
    names = {"run": CALL, "sizes": SIZES, **({"work": abi.WORKER} if has_threads else {})}
    functions = [_name(name) + b"\0" + unsigned(image.names[inner]) for name, inner in names.items()]
    if not has_threads:
        return [_name("memory") + b"\x02\0", *functions]
    return [*functions, _name("init") + b"\0" + unsigned(len(image.functions)), _name("stack") + b"\x03\0"]


def _elements(image: WasmImage, kind: _Kind) -> bytes:
    """The table's functions, from 1 on: a call of number 0 is a trap."""
    return b"\x01\0" + kind.address(1) + bytes((END,)) + _vector([unsigned(function) for function in image.slots])


def _data(at: int, piece: bytes, kind: _Kind) -> bytes:
    place = b"\x01" if kind.has_threads else b"\0" + kind.address(at) + bytes((END,))
    return place + unsigned(len(piece)) + piece


def _init(pieces: Sequence[tuple[int, bytes]], kind: _Kind) -> bytes:
    """The body of a function that copies the pieces of data to their addresses: ``memory.init`` for each."""
    copies = (
        kind.address(at) + b"".join(bytes((I32_CONST,)) + signed(number) for number in (0, len(piece)))
        + b"\xfc\x08" + unsigned(place) + b"\0"
        for place, (at, piece) in enumerate(pieces)
    )  # fmt: skip
    body = b"\0" + b"".join(copies) + bytes((END,))
    return unsigned(len(body)) + body


def _description(interface: Interface, heap: int, target: Target) -> bytes:
    return json.dumps(
        {
            "abi": 2,
            "inputs": [_described(tensor) for tensor in interface.inputs],
            "outputs": [_described(tensor) for tensor in interface.outputs],
            "open": [_bounds(symbol) for symbol in interface.open],
            "heap": round_up(heap, abi.ALIGNMENT),
            "threads": _THREADS if target.has(THREADS) else None,
            "pages": _MOST_PAGES[target.arch],
            "bits": 64 if target.arch is Architecture.WASM64 else 32,
        }
    ).encode()


_THREADS = {
    "stack": STACK_BYTES,
    "pool": {
        "bytes": abi.POOL_BYTES,
        "spins": abi.DEFAULT_SPINS,
        "spins_at": abi.POOL_SPINS,
        "workers_at": abi.POOL_WORKERS,
        "slots_at": abi.POOL_SLOTS,
        "slot_bytes": abi.SLOT_BYTES,
    },
}
"""What a host needs to know to start threads (``runtime.abi``, "The pool")."""


def _described(tensor: Tensor) -> dict[str, object]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _bounds(symbol: Symbol) -> dict[str, object]:
    return {"name": symbol.name, "least": symbol.minimum, "most": symbol.maximum}


def loader_text() -> str:
    """The JavaScript module that loads such modules, in browsers and elsewhere: the same for all of them."""
    return files("tilewright.backend.shipping").joinpath("loader.js").read_text()
