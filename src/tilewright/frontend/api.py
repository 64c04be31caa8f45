"""What a front end is: it opens models of one form, and makes graphs of them.

    class Layers:                                   # a FrontEnd
        accepted = "a .layers file"

        def open(self, given: object) -> Source | None:
            return LayersFile(given) if isinstance(given, Path) and given.suffix == ".layers" else None

    class LayersFile(Source):
        def load(self, shapes, bounds, most_bytes=None) -> Graph: ...

``load`` is all that compiling needs. What else a ``Source`` can do has a default, which says so where it can't.
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
"""Shapes by input name; a str names a dimension that is known at run time only."""

Stamp = tuple[int, ...]
"""What changes when a file is written to (``base.files.stamp``)."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What a model is known by: equal digests give equal graphs.

    ``reader``: the front end, and the versions of what it reads with. ``source``: SHA-256 of the model; ``others``: of
    each other file that it is made of, as the model calls it. ``files``: what was hashed, as it was then.
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
    """A part that is in memory."""

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
    """Whether it reads what a refused node makes: then the reason may be a consequence of that."""


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """How many nodes of the model use an operator, and how many of them can't be compiled."""

    operator: str
    nodes: int
    refused: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """All nodes of a model (``places``), by operator, and those that are refused."""

    places: tuple[str, ...]
    operators: tuple[OperatorCount, ...]
    refusals: tuple[Refusal, ...]


class Source(ABC):
    """A model as its user gives it. Nothing is read before a method is called, and each reads it anew."""

    @abstractmethod
    def load(self, shapes: GivenShapes, bounds: Mapping[str, int], most_bytes: int | None = None) -> Graph:
        """The graph, every node with its place in the model.

        ``shapes`` gives the shapes of inputs by name; a str names a dimension that is known at run time only, and
        ``bounds`` says the most that it may be. ``most_bytes``: of all constants together; None: what there is.

        Raises ``InvalidModel`` if the model is missing or malformed, ``UnsupportedModel`` for what can't be compiled,
        ``ResourceLimit`` for what is too large, ``UntrustedData`` for files that the model may not name.
        """

    def inputs(self, shapes: GivenShapes) -> Sequence[Value]:
        """The inputs, before the model can be compiled: some sizes are not known yet. Raises as ``load`` does."""
        return self.load(shapes, {}).inputs

    def coverage(self, shapes: GivenShapes) -> Coverage:
        """What of the model can be compiled, all that is refused at once. Raises as ``load`` does."""
        nodes = self.load(shapes, {}).nodes
        counts = Counter(node.op.name for node in nodes)
        operators = tuple(OperatorCount(name, counts[name], 0) for name in sorted(counts))
        return Coverage(tuple(dict.fromkeys(node.source for node in nodes if node.source)), operators, ())

    def files(self) -> tuple[Path, ...]:
        """The files that the model is in, its own first: nothing is written over them. Raises nothing."""
        return ()

    def sha256(self) -> str | None:
        """The SHA-256 of the model without other files, in hexadecimal digits, for who asks an artifact what it was
        made from; None if nobody can say. Raises as ``load`` does."""
        return None

    def digest(self, notes: Cache) -> Digest | None:
        """What the cache of models knows the model by; None: it is compiled anew each time.

        ``notes``: for what is long to find out and follows from what is hashed.

        Raises ``OSError``, ``ValueError`` or a ``TilewrightError`` if the model can't be read.
        """
        return None

    def parts(self) -> Mapping[str, Part]:
        """Files with all of the model, for a bundle; ``open`` is given the first there. Raises as ``load`` does."""
        raise Unsupported("models of this form can't be packed; send the model itself")

    def path_for_others(self, folder: Path) -> Path:
        """A file from which another process can open the model: its own, or one that is written into ``folder``.

        Raises ``BadInput`` if it can't be written, ``ResourceLimit`` if it is too large.
        """
        own = self.files()
        if not own:
            raise BadInput("models of this form can't be handed to another process; compile it without isolate=")
        return own[0].absolute()

    def by_onnxruntime(self, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
        """The ``wanted`` values that the model has, and its outputs, by ONNX Runtime without its optimizations.

        Raises ``Unsupported`` if that is not possible here, ``BadInput`` if ONNX Runtime refuses the model.
        """
        raise Unsupported("ONNX Runtime does not run models of this form; compare with against='reference'")


@runtime_checkable
class FrontEnd(Protocol):
    """Opens models of one form. See ``docs/extending.md``."""

    @property
    def accepted(self) -> str:
        """What it opens, as errors say it: ``a path or a ModelProto``."""
        ...

    def open(self, given: object) -> Source | None:
        """The model; None if ``given`` is no model of this form. Whether it is a good one, reading it says."""
        ...
