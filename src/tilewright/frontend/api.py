"""The interface of front ends, which open models of one format and read them into graphs.

    class Layers:                                   # a FrontEnd
        accepted = "a .layers file"

        def open(self, given: object) -> Source | None:
            return LayersFile(given) if isinstance(given, Path) and given.suffix == ".layers" else None

    class LayersFile(Source):
        def load(self, shapes, bounds, most_bytes=None) -> Graph: ...

Compiling needs only ``load``. The other methods of a ``Source`` have defaults, some of which raise ``Unsupported``.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.store import Cache
from tilewright.graph import Array, Graph, Value

GivenShapes = Mapping[str, Iterable[int | str]]
"""Shapes by input name; a str names a dimension known only at run time."""

Stamp = tuple[int, ...]
"""File attributes that change with a write (``base.files.stamp``)."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The identity of a model: equal digests give equal graphs.

    ``reader``: the front end, and the versions of its libraries. ``source``: SHA-256 of the model; ``others``: of each
    other file of the model, by its name there. ``files``: the attributes of the hashed files at that time.
    """

    reader: str
    source: str
    others: Mapping[str, str]
    files: Mapping[Path, Stamp]


class Part(Protocol):
    """The content of one file of a bundle (``insight.repro``)."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def copy(self, file: IO[bytes]) -> None:
        """Write it to ``file``."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """A part in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def copy(self, file: IO[bytes]) -> None:
        file.write(self.data)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that can't be compiled, and why."""

    node: str
    operator: str
    reason: str
    follows: bool
    """Whether it reads a result of a refused node: then the reason may be a consequence."""


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """The number of nodes with an operator, and how many of them can't be compiled."""

    operator: str
    nodes: int
    refused: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """All nodes of a model (``places``), by operator, and those that are refused."""

    places: tuple[str, ...]
    operators: tuple[OperatorCount, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs with which a program is run once, to see what it computes.

    ``inputs``: one value, a tuple or list by position, or a mapping by name. ``dynamic_shapes``: its open dimensions,
    in the notation of its framework.
    """

    inputs: object = None
    dynamic_shapes: object = None


class Source(ABC):
    """A model given by the user. Nothing is read before a method is called, and each call reads it again."""

    @abstractmethod
    def load(self, shapes: GivenShapes, bounds: Mapping[str, int], most_bytes: int | None = None) -> Graph:
        """The graph, every node with its place in the model.

        ``shapes``: shapes of inputs by name; a str names a dimension known only at run time, and ``bounds`` its upper
        bound. ``most_bytes``: maximum of all constants together; None: available memory.

        Raises ``InvalidModel`` if the model is missing or malformed, ``UnsupportedModel`` if it can't be compiled,
        ``ResourceLimit`` if it is too large, ``UntrustedData`` if it names files outside of its folder.
        """

    def inputs(self, shapes: GivenShapes) -> Sequence[Value]:
        """The inputs as declared: some sizes are not known yet. Raises as ``load`` does."""
        return self.load(shapes, {}).inputs

    def coverage(self, shapes: GivenShapes) -> Coverage:
        """Which nodes can be compiled, with all refused ones. Raises as ``load`` does."""
        nodes = self.load(shapes, {}).nodes
        counts = Counter(node.op.name for node in nodes)
        operators = tuple(OperatorCount(name, counts[name], 0) for name in sorted(counts))
        return Coverage(tuple(dict.fromkeys(node.source for node in nodes if node.source)), operators, ())

    def files(self) -> tuple[Path, ...]:
        """The files of the model, its own first: outputs must not overwrite them. Does not raise."""
        return ()

    def sha256(self) -> str | None:
        """The SHA-256 of the model without other files, in hexadecimal digits, for the manifest of an artifact; None if
        unknown. Raises as ``load`` does."""
        return None

    def digest(self, notes: Cache) -> Digest | None:
        """The model's key in the cache of models; None: it is not cached.

        ``notes``: a store for expensive facts that follow from the hashed data.

        Raises ``OSError``, ``ValueError`` or a ``TilewrightError`` if the model can't be read.
        """
        return None

    def parts(self) -> Mapping[str, Part]:
        """Files with the whole model, for a bundle; ``open`` takes the first one. Raises as ``load`` does."""
        raise Unsupported("models of this form can't be packed; send the model itself")

    def path_for_others(self, folder: Path) -> Path:
        """A file from which another process can open the model: its own, or one written to ``folder``.

        Raises ``BadInput`` if it can't be written, ``ResourceLimit`` if it is too large.
        """
        own = self.files()
        if not own:
            raise BadInput("models of this form can't be handed to another process; compile it without isolate=")
        return own[0].absolute()

    def by_onnxruntime(self, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
        """Those of the ``wanted`` values that exist in the model, and its outputs, by ONNX Runtime without
        optimizations.

        Raises ``Unsupported`` if that is not possible here, ``BadInput`` if ONNX Runtime refuses the model.
        """
        raise Unsupported("ONNX Runtime does not run models of this form; compare with against='reference'")


@runtime_checkable
class FrontEnd(Protocol):
    """Opens models of one format. See ``docs/extending.md``."""

    @property
    def accepted(self) -> str:
        """The accepted inputs, for errors: ``a path, or a ModelProto``."""
        ...

    def open(self, given: object) -> Source | None:
        """The model; None if ``given`` is not of this format. Validity is checked when it is read."""
        ...
