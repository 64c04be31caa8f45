"""What a caller without Python knows of a model: names, sizes, and where things are in the scratch memory of a call."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.base.errors import BadInput, InternalError, Unsupported
from tilewright.base.names import shown
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import Extent, Formula, Shape, Symbol, TensorSpec
from tilewright.runtime.memory import round_up

_POINTER = 8
"""Bytes for a pointer in a table: on machines with shorter ones, some are not used."""
_TAKEN = "tw"
"""The prefix of the code's own names."""
MOST_BYTES = 3 << 29
"""Maximum bytes of constants: code reaches 2 GiB."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input, output or constant. Extents that are known at run time only are names of symbols."""

    name: str
    dtype: str
    shape: Shape
    item_bytes: int

    @staticmethod
    def of(spec: TensorSpec) -> "Tensor":
        """The tensor that a manifest describes."""
        return Tensor(spec.name, spec.dtype.numpy.name, spec.shape, spec.dtype.itemsize)

    @property
    def size(self) -> Formula:
        """Its bytes."""
        known = [extent for extent in self.shape if isinstance(extent, int)]
        fixed = reduce(int.__mul__, known, self.item_bytes)
        names = (extent for extent in self.shape if isinstance(extent, str))
        return reduce(_times, names, fixed)

    @property
    def extents(self) -> tuple[int, ...]:
        """Its shape, if that is known."""
        known = tuple(extent for extent in self.shape if isinstance(extent, int))
        if len(known) < len(self.shape):
            raise InternalError(f"the shape of {self.name!r} is known at run time only")
        return known

    @property
    def is_fixed(self) -> bool:
        """Whether its shape is known."""
        return isinstance(self.size, int)

    @property
    def bytes(self) -> int:
        """Its bytes, if its shape is known."""
        size = self.size
        if not isinstance(size, int):
            raise InternalError(f"the size of {self.name!r} is known at run time only")
        return size


def _times(size: Formula, extent: str) -> Formula:
    return "*", size, extent


@dataclass(frozen=True, slots=True)
class Interface:
    """The tensors of a model and the layout of the scratch memory of a call, which is aligned to ``abi.ALIGNMENT``.

    The scratch memory holds the context of the call (``runtime.abi``), two pointers for who runs chunks, pointers to
    all tensors, the extents that are known at run time only, the scratch of each worker, and the workspace, in this
    order. ``prefix``: of names in C. ``symbols``: the manifest's; ``workspace``: bytes, or the symbol of them.
    """

    prefix: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    symbols: tuple[Symbol, ...]
    workspace: Extent
    worker_bytes: int
    """Scratch of one worker: a multiple of ``abi.ALIGNMENT``."""

    @staticmethod
    def of(parts: Artifact, prefix: str) -> "Interface":
        """Raises ``BadInput`` for a prefix that is none, ``Unsupported`` for constants too large for code to reach."""
        manifest = parts.manifest
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix) or prefix == _TAKEN:
            raise BadInput(
                f"{shown(prefix)} is no prefix of names in C, or {_TAKEN}, which is taken; give letters, digits and _, "
                "a letter first"
            )
        specs = (manifest.inputs, manifest.outputs, manifest.constants)
        inputs, outputs, constants = (tuple(map(Tensor.of, some)) for some in specs)
        worker = round_up(manifest.scratch, abi.ALIGNMENT)
        made = Interface(prefix, inputs, outputs, constants, manifest.symbols, manifest.workspace, worker)
        if made.constant_bytes > MOST_BYTES:
            raise Unsupported(
                f"its constants take {made.constant_bytes} bytes, and {MOST_BYTES} can ship; save an artifact"
            )
        return made

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs and outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def open(self) -> tuple[Symbol, ...]:
        """The extents that a caller gives: all others follow from them."""
        return tuple(symbol for symbol in self.symbols if symbol.value is None)

    @property
    def host_at(self) -> int:
        """Offset of the two pointers for who runs chunks."""
        return abi.CONTEXT_BYTES

    @property
    def buffers_at(self) -> int:
        """Offset of the pointers to tensors."""
        return self.host_at + 2 * _POINTER

    @property
    def dims_at(self) -> int:
        """Offset of the values of all symbols."""
        return self.buffers_at + _POINTER * (len(self.tensors) + len(self.constants))

    @property
    def workers_at(self) -> int:
        """Offset of the scratch of the workers."""
        return round_up(self.dims_at + 8 * len(self.symbols), abi.ALIGNMENT)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace, if all shapes are known."""
        if not isinstance(self.workspace, int):
            raise InternalError(f"the size of the workspace, {self.workspace}, is known at run time only")
        return self.workspace

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the scratch memory of a call on one thread, if all shapes are known."""
        return self.scratch_of(1)

    def scratch_of(self, threads: int) -> int:
        """The same for a number of threads."""
        return self.workers_at + threads * self.worker_bytes + self.workspace_bytes

    @property
    def bytes_at(self) -> tuple[int, ...]:
        """The place of the bytes of each input and output in a list of sizes: its extents are just before."""
        places: list[int] = []
        for tensor in self.tensors:
            places.append((places[-1] + 1 if places else 0) + len(tensor.shape))
        return tuple(places)

    @property
    def scratch_bytes_at(self) -> int:
        """The last place in a list of sizes."""
        return self.bytes_at[-1] + 1 if self.tensors else 0

    @property
    def constants_at(self) -> tuple[int, ...]:
        """The offset of each constant among all."""
        return offsets([tensor.bytes for tensor in self.constants])[0]

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants, each of which is aligned."""
        return offsets([tensor.bytes for tensor in self.constants])[1]

    def constant_data(self, parts: Artifact) -> bytes:
        """The bytes of all constants at their offsets."""
        data = bytearray(self.constant_bytes)
        for at, array in zip(self.constants_at, parts.constants, strict=True):
            data[at : at + array.nbytes] = array.tobytes()
        return bytes(data)


def offsets(sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Aligned offsets of pieces of these sizes, one after the other, and where the last ends."""
    found: list[int] = []
    end = 0
    for size in sizes:
        found.append(end)
        end = round_up(end + size, abi.ALIGNMENT)
    return tuple(found), end
