"""A model that was compiled, now or before: run it, save it, and ask it what it does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias, cast

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, InternalError, Unsupported
from tilewright.base.forks import ProcessLock
from tilewright.base.memory import memory_guarded
from tilewright.base.settings import Settings
from tilewright.base.store import Store
from tilewright.base.superopt import Superopt
from tilewright.compilation import Compiled, Options
from tilewright.frontend.api import Source
from tilewright.graph import Array, Graph
from tilewright.insight.compare import TOLERANCE, Against, Comparison, all_values, compare
from tilewright.insight.explain import Explanation, explain
from tilewright.insight.peak import measure_peak
from tilewright.insight.profile import Profile, extents_of, profile
from tilewright.insight.references import Reference, in_float64
from tilewright.insight.tried import with_records
from tilewright.runtime import artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import accepted
from tilewright.runtime.runnable import RunnableModel

Seconds: TypeAlias = Annotated[float, Within(0, 86_400)]
Tolerance: TypeAlias = Annotated[float, Within(0, float("inf"))]


class CompiledModel(RunnableModel):
    """A model that was compiled, here or in a process of its own, now or before. It can find out how it was made."""

    def __init__(self, executable: Executable, parts: artifact.Artifact, origin: "Origin") -> None:
        """``parts``: what is saved of it."""
        super().__init__(executable)
        self._parts = parts
        self._origin = origin
        self._making = ProcessLock()
        self._made = origin.made

    @property
    def options(self) -> Options:
        """What it was compiled for."""
        return self._origin.options

    @property
    def is_cached(self) -> bool:
        """Whether it was compiled before, and came from the cache of models."""
        return self._origin.is_cached

    @property
    def compiled(self) -> Compiled:
        """Everything that compiling made. A model from the cache is compiled again for this, once.

        Raises ``BadInput`` if the model's file has changed since.
        """
        return self._story().compiled

    def _story(self) -> "Made":
        with self._making.held():
            if self._made is None:
                made = self._origin.make()
                if made.compiled.executable.manifest != self.executable.manifest:
                    if self.options.superopt is not Superopt.OFF:
                        raise BadInput(
                            "another graph was found this time; compile the model again to see how it is made"
                        )
                    raise InternalError("compiling the model again gave another one than the cache had")
                self._made = Made(made.graph, replace(made.compiled, executable=self.executable))
            return self._made

    @checked(BadInput)
    @memory_guarded("an artifact was saved")
    def save(
        self,
        path: FilePath,
        *,
        signed: bool = True,
        key: FilePath | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Write an artifact, by custom ``*.tw``, which ``tilewright.load`` runs without the compiler.

        The file appears whole or not at all, and replaces one that is there, but never the model (``base.outputs``). It
        is signed with a key that only this user has (``runtime.artifact.origin``), so that this user can load it
        without ``trust=True``. All but the signature is the same, byte for byte, for the same model, target and
        version, whoever compiles it.

        ``key``: a file with a secret key (``tilewright sign --generate``), to sign with as well: who knows its public
        key can load the artifact by ``trust=KEY``.

        Raises ``BadInput`` if it can't be written, or there is no place for the key, or none in ``key``;
        ``Unsupported`` if its back end makes nothing that can be saved.
        """
        if not self._parts.objects:
            raise Unsupported(f"the back end {self.options.backend.name} makes nothing that can be saved; leave it out")
        key_dir = (settings or Settings.from_environment()).key_dir
        secret = None if key is None else artifact.SecretKey(key)
        artifact.save(self._parts, path, key_dir, signed=signed, key=secret, inputs=self._origin.source.files())

    @checked(BadInput)
    def profile(self, *inputs: object, seconds: Seconds = 1.0, roofs: bool = True) -> Profile:
        """Where the time goes for these inputs, by kernel: runs for about ``seconds``, and at least five times.

        ``inputs`` are arrays by position, or one mapping by name. ``roofs``: measure what this machine can do, too
        (a second), to say how far each kernel is from it. Raises ``BadFeed`` for inputs that do not fit.
        """
        target, threads = self.options.target, self.executable.threads
        measure = (lambda: measure_peak(target, threads)) if roofs else None
        return profile(self.executable, self._feeds(inputs), self.compiled, measure, seconds)

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """What became of every node of the model, how its kernels run, and what was left undone and why.

        ``places``: all nodes of the model, if those that importing computed (constants and shapes) are to be listed.
        ``records``: a database of measurements; for each kernel that it knows, the explanation says what became of
        them. Raises ``BadInput`` if there is no such file.
        """
        made = self._story()
        found = replace(explain(made.compiled, made.graph, places), cached=self.is_cached)
        return found if records is None else with_records(found, made.compiled, Path(records))

    @checked(BadInput)
    def compare(
        self,
        *inputs: object,
        against: Against | str = Against.ONNXRUNTIME,
        per_layer: bool = True,
        tolerance: Tolerance = TOLERANCE,
    ) -> Comparison:
        """Differences from ONNX Runtime without its optimizations, or from a slow ``reference`` in float64.

        ``inputs`` are arrays by position, or one mapping by name. ``per_layer``: also of every value that leaves a
        kernel, which takes memory for all of them at once. Raises ``BadFeed`` for inputs that do not fit, ``BadInput``
        for another ``against``, ``Unsupported`` if ONNX Runtime is not installed.
        """
        chosen = Against.named(against)
        feeds = self._feeds(inputs)
        outputs = self.run(None, feeds)
        values = all_values(self.compiled, feeds, self._origin.cache) if per_layer else {}
        wanted = dict.fromkeys((*map(self.compiled.name_in_model, values), *(spec.name for spec in self.outputs)))
        reference = self._reference(chosen, feeds, wanted)
        return compare(self.compiled, outputs, values, reference, chosen.value, tolerance)

    def _reference(self, against: Against, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Reference:
        if against is Against.REFERENCE:
            return in_float64(self._story().graph, feeds, wanted, extents_of(self.executable.manifest, feeds))
        return Reference(self._origin.source.by_onnxruntime(feeds, wanted))

    def _feeds(self, inputs: Sequence[object]) -> Mapping[str, Array]:
        is_by_name = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        return accepted(self.inputs, cast("Mapping[str, object]", inputs[0]) if is_by_name else self.by_name(inputs))


@dataclass(frozen=True, slots=True)
class Origin:
    """What a model was compiled from and for; and the cache of kernels."""

    source: Source
    options: Options
    cache: Store | None
    make: Callable[[], "Made"]
    """Compiles it again; raises ``BadInput`` if it is not the same model any more."""
    made: "Made | None"
    """None if it was not compiled now, or not in this process."""
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """The graph as it was imported, and what compiling made of it."""

    graph: Graph
    compiled: Compiled
