"""A model with run-time extents that is compiled for each size of inputs at its first run.

For models without a symbolic form: a shape depends on extents in an unsupported way.
Each version is an ordinary model of fixed shapes, compiled at the first inputs of its sizes, which takes the time of a
compilation; kernels are taken from the cache on disk if possible.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from tilewright.base.arguments import FilePath, checked
from tilewright.base.choices import Choice
from tilewright.base.errors import BadFeed, BadInput, InvalidModel, Unsupported, UnsupportedModel
from tilewright.base.forks import ProcessLock
from tilewright.base.remedies import by_bounds, by_shapes
from tilewright.base.settings import Settings
from tilewright.compilation import Compiled, Options
from tilewright.composed import ComposedModel
from tilewright.insight.compare import TOLERANCE, Against, Comparison
from tilewright.insight.explain import Explanation, Finding, Memory
from tilewright.insight.profile import Profile
from tilewright.model import CompiledModel, Seconds, Tolerance
from tilewright.runtime import artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.feeds import Feed, wrong_names
from tilewright.runtime.loading import InMemory
from tilewright.runtime.manifest import Symbol, TensorSpec
from tilewright.runtime.runnable import Pickled, RunnableModel, unpickled

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")

VERSIONS = 8
"""Maximum versions of a model in memory, each with its own packed weights."""


class Dynamic(Choice):
    """The treatment of run-time extents."""

    AUTO = "auto"
    """Symbolic if possible, else specialized, with a warning and a finding of ``explain`` that state the reason."""
    SYMBOLIC = "symbolic"
    """One compiled model for all sizes; models without a symbolic form are refused."""
    SPECIALIZE = "specialize"
    """A version for each size, compiled at its first inputs."""


class Versions(Generic[Key, Made]):
    """A thread-safe cache of at most ``most`` objects by key, made on demand; the least recently used is evicted."""

    def __init__(self, make: Callable[[Key], Made], most: int) -> None:
        self._make = make
        self._most = most
        self._made: OrderedDict[Key, Made] = OrderedDict()
        self._access = ProcessLock()
        self._making = ProcessLock()

    def get(self, key: Key) -> Made:
        """The object of ``key``. Objects are made one at a time; existing ones are returned without waiting."""
        found = self._find(key)
        if found is not None:
            return found
        with self._making.held():
            found = self._find(key)
            if found is None:
                found = self._make(key)
                with self._access.held():
                    self._made[key] = found
                    while len(self._made) > self._most:
                        self._made.popitem(last=False)
        return found

    def _find(self, key: Key) -> Made | None:
        with self._access.held():
            if key in self._made:
                self._made.move_to_end(key)
            return self._made.get(key)

    def all(self) -> list[tuple[Key, Made]]:
        """The present objects, the most recently used last."""
        with self._access.held():
            return list(self._made.items())


Sizes = artifact.Sizes


def show(sizes: Sizes) -> str:
    """``n=3, m=5``."""
    return ", ".join(f"{name}={size}" for name, size in sizes)


class SpecializingModel(ComposedModel):
    """A model that compiles a version for each size of its inputs, and keeps the last few."""

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        options: Options,
        reason: str,
        make: Callable[[Sizes], CompiledModel],
        most: int = VERSIONS,
    ) -> None:
        """``make`` compiles for given sizes; ``reason``: why versions are needed. Nothing is compiled yet."""
        super().__init__(options)
        self._inputs = tuple(inputs)
        self._reason = reason
        self._versions = Versions(make, most)
        names = dict.fromkeys(extent for spec in inputs for extent in spec.shape if isinstance(extent, str))
        self._symbols = [Symbol(name, 0, options.bounds.get(name)) for name in names]
        self._feeds_of = tuple(map(Feed, self._inputs))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs of the version used last, with its sizes. Raises ``BadInput`` if there is none yet."""
        return self._last().outputs

    @property
    def compiled(self) -> Compiled:
        """The results of compiling the version used last. Raises ``BadInput`` if there is none yet."""
        return self._last().compiled

    @property
    def executable(self) -> Executable:
        """The code of the version used last. Raises ``BadInput`` if there is none yet."""
        return self._last().executable

    @property
    def is_cached(self) -> bool:
        """Whether the version used last came from the cache of models."""
        made = self._versions.all()
        return bool(made) and made[-1][1].is_cached

    def versions(self) -> dict[Sizes, CompiledModel]:
        """The versions in memory, the most recently used last."""
        return dict(self._versions.all())

    @checked(BadFeed)
    def version(self, **sizes: int) -> CompiledModel:
        """The version for these run-time extents, compiled if needed: ``model.version(n=128).save("n128.tw")``.

        Raises ``BadFeed`` for missing, unknown or invalid extents, ``UnsupportedModel`` if it can't be compiled.
        """
        names = [symbol.name for symbol in self._symbols]
        if set(sizes) != set(names):
            raise wrong_names(names, sizes, "run-time extent")
        for symbol in self._symbols:
            symbol.check(sizes[symbol.name], "sizes")
        key = tuple((name, sizes[name]) for name in names)
        try:
            return self._versions.get(key)
        except InvalidModel as error:
            raise BadFeed(f"the model does not fit together for {show(key)}: {error}") from error
        except Unsupported as error:
            raise UnsupportedModel(f"for {show(key)}: {error}") from error

    @checked(BadInput)
    def save(
        self,
        path: FilePath,
        *,
        signed: bool = True,
        key: FilePath | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Write the versions in memory as one file, which ``tilewright.load`` runs for inputs of their sizes only.

        Otherwise as ``CompiledModel.save``. Raises ``BadInput`` also if there is no version yet. A single one is
        saved by ``model.version(n=128).save(path)``.
        """
        key_dir = (settings or Settings.from_environment()).key_dir
        secret = None if key is None else artifact.SecretKey(key)
        sources = self._last()._files()
        artifact.save_versions(self._saved(), path, key_dir, signed=signed, key=secret, inputs=sources)

    def _saved(self) -> artifact.Versions:
        """Raises ``BadInput`` if there is no version yet, ``Unsupported`` if versions can't be saved."""
        self._last()
        return artifact.Versions(self._inputs, {sizes: made.contents() for sizes, made in self._versions.all()})

    def __reduce__(self) -> tuple[Callable[[Pickled], RunnableModel], tuple[Pickled]]:
        """The versions in memory are pickled. Raises as ``save``."""
        return unpickled, (InMemory.of(self._saved(), self._options.threads),)

    @checked(BadInput)
    def profile(self, *inputs: object, seconds: Seconds = 1.0, roofs: bool = True) -> Profile:
        feeds = self._feeds(inputs)
        return self._version_for(feeds).profile(feeds, seconds=seconds, roofs=roofs)

    @checked(BadInput)
    def compare(
        self,
        *inputs: object,
        against: Against | str = Against.ONNXRUNTIME,
        per_layer: bool = True,
        tolerance: Tolerance = TOLERANCE,
    ) -> Comparison:
        feeds = self._feeds(inputs)
        version = self._version_for(feeds)
        return version.compare(feeds, against=against, per_layer=per_layer, tolerance=tolerance)

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """The explanation of the version used last, if there is one, and the treatment of each run-time extent."""
        made = self._versions.all()
        seen = "; ".join(show(sizes) for sizes, _ in made) or "none"
        one_size = by_shapes({spec.name: spec.shape for spec in self._inputs})
        limits = by_bounds(symbol.name for symbol in self._symbols if symbol.maximum is None)
        step = (
            f"give {one_size} for one size"
            if self._reason == ASKED
            else f"give {one_size}, or {limits} if that is missing"
        )
        reason = f"a version is compiled for each size, as {self._reason} (made: {seen})"
        extents = tuple(Finding("run-time extent", symbol.name, reason, step) for symbol in self._symbols)
        if not made:
            options, memory = self._options, Memory(0, 0, self._options.memory_limit)
            policies = (
                options.math.value,
                options.precision.value,
                options.checks.value,
                memory,
                options.superopt.value,
            )
            asked = (str(options.target), options.threads or 0, *policies)
            return Explanation(*asked, rules=(), left_out=(), kernels=(), nodes=(), findings=extents)
        last = made[-1][1].explain(places, records)
        return replace(last, findings=(*last.findings, *extents))

    def _last(self) -> CompiledModel:
        made = self._versions.all()
        if not made:
            names = ", ".join(f"{symbol.name}=..." for symbol in self._symbols)
            raise BadInput(
                "this model is compiled for each size of its inputs, and no version is there yet: run it, or ask for "
                f"one by model.version({names}); or compile with shapes="
            )
        return made[-1][1]

    def _executable_for(self, feeds: Mapping[str, object]) -> Executable:
        return self._version_for(feeds).executable

    def _version_for(self, feeds: Mapping[str, object]) -> CompiledModel:
        """The version for ``feeds``. Raises ``BadFeed`` if these do not fit the inputs, or each other."""
        names = [feed.name for feed in self._feeds_of]
        if set(feeds) != set(names):
            raise wrong_names(names, feeds)
        found: dict[str, int] = {}
        for feed in self._feeds_of:
            feed.bind(feed.accept(feeds[feed.name]), found)
        return self.version(**found)


ASKED = "it was asked for"
"""The reason if the user requested versions."""
