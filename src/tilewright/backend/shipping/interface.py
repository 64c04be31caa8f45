"""What a caller without Python knows of a model: names, sizes, and where things are in the scratch memory of a call."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.names import readable, shown
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.manifest import TensorSpec, byte_size
from tilewright.runtime.memory import round_up

POINTER = 8
"""Bytes that a pointer takes in a table, on machines with shorter ones too."""
_TAKEN = "tw"
"""The prefix of the code's own names."""
MOST_BYTES = 3 << 29
"""Maximum bytes of constants, and of the memory of a call: code reaches 2 GiB."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input, output or constant of fixed shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @staticmethod
    def of(spec: TensorSpec) -> "Tensor":
        """Raises ``Unsupported`` for a shape that is known at run time only."""
        shape = spec.static_shape
        if shape is None:
            raise Unsupported(
                f"{spec}: what ships without Python has fixed shapes; give the sizes by shapes= or --shape, or save an "
                "artifact"
            )
        return Tensor(spec.name, spec.dtype.numpy.name, shape, byte_size(spec.dtype, shape))


@dataclass(frozen=True, slots=True)
class Interface:
    """The tensors of a model and the layout of the scratch memory of a call, which is aligned to ``abi.ALIGNMENT``.

    The scratch memory holds the context of the call (``runtime.abi``), pointers to all tensors, the workspace, and the
    scratch of the one worker, in this order. ``prefix``: of names in C.
    """

    prefix: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    workspace_bytes: int
    worker_bytes: int

    @staticmethod
    def of(parts: Artifact, prefix: str) -> "Interface":
        """Raises ``Unsupported`` if a size is known at run time only, or too large for code to reach."""
        manifest = parts.manifest
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix) or prefix == _TAKEN:
            raise BadInput(
                f"{shown(prefix)} is no prefix of names in C, or {_TAKEN}, which is taken; give letters, digits and _, "
                "a letter first"
            )
        specs = (manifest.inputs, manifest.outputs, manifest.constants)
        inputs, outputs, constants = (tuple(map(Tensor.of, some)) for some in specs)
        if not isinstance(manifest.workspace, int) or manifest.symbols:
            sizes = ", ".join(readable(symbol.name) for symbol in manifest.symbols)
            raise Unsupported(
                f"what ships without Python has fixed shapes, and {sizes} is known at run time only; give the sizes by "
                "shapes= or --shape, or save an artifact"
            )
        made = Interface(prefix, inputs, outputs, constants, manifest.workspace, manifest.scratch)
        for size, what in ((made.constant_bytes, "its constants"), (made.scratch_bytes, "a call of it")):
            if size > MOST_BYTES:
                raise Unsupported(f"{what} takes {size} bytes, and {MOST_BYTES} can ship; save an artifact")
        return made

    @property
    def buffers_at(self) -> int:
        """Offset of the pointers in the scratch memory."""
        return abi.CONTEXT_BYTES

    @property
    def workspace_at(self) -> int:
        """Offset of the workspace in the scratch memory."""
        count = len(self.inputs) + len(self.outputs) + len(self.constants)
        return round_up(self.buffers_at + POINTER * count, abi.ALIGNMENT)

    @property
    def worker_at(self) -> int:
        """Offset of the worker's scratch in the scratch memory."""
        return round_up(self.workspace_at + self.workspace_bytes, abi.ALIGNMENT)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the scratch memory of a call."""
        return round_up(self.worker_at + self.worker_bytes, abi.ALIGNMENT)

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
