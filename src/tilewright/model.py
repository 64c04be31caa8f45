"""``CompiledModel``: a compiled model, with methods to run, save, profile, explain and compare it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias, cast

from tilewright.base.arguments import FilePath, Within, checked
from tilewright.base.errors import BadInput, InternalError, Unsupported
from tilewright.base.forks import ProcessLock
from tilewright.base.form import Form
from tilewright.base.memory import memory_guarded
from tilewright.base.outputs import check_output, output
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
from tilewright.runtime.loading import InMemory
from tilewright.runtime.runnable import RunnableModel

Seconds: TypeAlias = Annotated[float, Within(0, 86_400)]
Tolerance: TypeAlias = Annotated[float, Within(0, float("inf"))]


class CompiledModel(RunnableModel):
    """A model compiled in this process or in another one, or loaded from the cache, with its origin."""

    def __init__(self, executable: Executable, parts: artifact.Artifact, origin: "Origin") -> None:
        """``parts``: the contents of its artifact."""
        super().__init__(executable, None, lambda: InMemory.of(parts, origin.options.threads))
        self._parts = parts
        self._origin = origin
        self._making = ProcessLock()
        self._made = origin.made

    @property
    def options(self) -> Options:
        """The options of its compilation."""
        return self._origin.options

    @property
    def is_cached(self) -> bool:
        """Whether it came from the cache of models."""
        return self._origin.is_cached

    @property
    def compiled(self) -> Compiled:
        """All results of the compilation. A model from the cache is compiled again for this, once.

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
        """Write an artifact, usually ``*.tw``, which ``tilewright.load`` runs without the compiler.

        The file is written atomically; it may replace another one, but never the model (``base.outputs``). It is signed
        with a private key of this user (``runtime.artifact.origin``), who can load it without ``trust=True``. All
        bytes except the signature are reproducible for the same model, target and version.

        ``key``: a file with a secret key (``tilewright sign --generate``) for an additional signature: users with its
        public key can load the artifact by ``trust=KEY``.

        Raises ``BadInput`` if it can't be written, if there is no folder for keys, or no key in ``key``;
        ``Unsupported`` if models of its back end can't be saved.
        """
        parts, key_dir = self.contents(), (settings or Settings.from_environment()).key_dir
        secret = None if key is None else artifact.SecretKey(key)
        artifact.save(parts, path, key_dir, signed=signed, key=secret, inputs=self._files())

    @checked(BadInput)
    @memory_guarded("what ships was made")
    def emit(self, path: FilePath, form: Form | str = Form.PROGRAM, *, name: str | None = None) -> tuple[Path, ...]:
        """Write what runs without Python (``docs/emit.md``), and return the paths of all files.

        ``form``: ``"program"``, a static executable for Linux; ``"object"``, a relocatable object, with its C header
        beside it; ``"header"``, the header alone; ``"wasm"``, a WebAssembly module, with a JavaScript module that loads
        it; ``"page"``, an HTML file that runs it. These two are for ``wasm32`` and ``wasm64`` only. ``name``: what
        names in C begin with; by default the file's name without suffix.

        Raises ``BadInput`` if a file can't be written, ``name`` is no name in C, or the target has no such form;
        ``Unsupported`` for code that needs functions of the C library where there is none.
        """
        from tilewright.backend.shipping.ship import shipped

        parts, place = self.contents(), Path(path)
        prefix = _c_name(place.stem) if name is None else name
        files = [
            (place if file.suffix is None else place.with_suffix(file.suffix), file)
            for file in shipped(parts, Form.named(form), prefix)
        ]
        if len({where for where, _ in files}) < len(files):
            raise BadInput(f"{place}: another file of it has this suffix; give it another name")
        for where, _ in files:
            check_output(where, self._files())
        for where, file in files:
            with output(where, self._files(), mode=0o777 if file.is_executable else 0o666) as stream:
                stream.write(file.data)
        return tuple(where for where, _ in files)

    def contents(self) -> artifact.Artifact:
        """The contents of its artifact. Raises ``Unsupported`` if models of its back end can't be saved."""
        if not self._parts.objects:
            raise Unsupported(f"the back end {self.options.backend.name} makes nothing that can be saved; leave it out")
        return self._parts

    def _files(self) -> tuple[Path, ...]:
        """The files that it was compiled from, which no output may overwrite."""
        return self._origin.source.files()

    @checked(BadInput)
    def profile(self, *inputs: object, seconds: Seconds = 1.0, roofs: bool = True) -> Profile:
        """The time of each kernel for these inputs: runs for about ``seconds``, and at least five times.

        ``inputs`` are arrays by position, or one mapping by name. ``roofs``: also measure the peak of this machine (a
        second), to rate each kernel by it. Raises ``BadFeed`` for inputs that do not fit.
        """
        target, threads = self.options.target, self.executable.threads
        measure = (lambda: measure_peak(target, threads)) if roofs else None
        return profile(self.executable, self._feeds(inputs), self.compiled, measure, seconds)

    @checked(BadInput)
    def explain(self, places: Iterable[str] = (), records: FilePath | None = None) -> Explanation:
        """The kernel of each node, the schedule of each kernel, and missed optimizations with reasons.

        ``places``: all nodes of the model, to list also those evaluated at import (constants and shapes). ``records``:
        a database of measurements; the explanation has a finding for each kernel with records. Raises ``BadInput`` if
        there is no such file.
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


def _c_name(text: str) -> str:
    """``text`` as the beginning of names in C."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return plain if plain[:1].isalpha() and plain != "tw" else f"model_{plain}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source and the options of a compiled model, and the cache of kernels."""

    source: Source
    options: Options
    cache: Store | None
    make: Callable[[], "Made"]
    """Compiles it again; raises ``BadInput`` if the model has changed."""
    made: "Made | None"
    """The results of compiling; None if it came from the cache or from another process."""
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """The imported graph, and the results of compiling it."""

    graph: Graph
    compiled: Compiled
