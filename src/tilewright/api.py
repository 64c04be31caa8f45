"""What a user calls: ``compile`` a model, and run it."""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tilewright import __version__
from tilewright.base.events import to_log
from tilewright.base.settings import Settings
from tilewright.base.store import Store
from tilewright.base.target import Target
from tilewright.driver import Compiled, Options, compile_graph
from tilewright.frontend import onnx_importer, onnx_proto
from tilewright.runtime import artifact
from tilewright.runtime.runnable import RunnableModel

if TYPE_CHECKING:
    import onnx


class CompiledModel(RunnableModel):
    """A model that was compiled in this process: it runs, and knows how it was made."""

    def __init__(self, compiled: Compiled, source: str | None = None) -> None:
        super().__init__(compiled.executable)
        self.compiled = compiled
        self._source = source

    def save(self, path: str | os.PathLike[str], *, signed: bool = True, settings: Settings | None = None) -> None:
        """Write an artifact, by custom ``*.tw``, which ``tilewright.load`` runs without the compiler.

        The file appears whole or not at all, and replaces one that is there. It is signed with a key that only this
        user has (``runtime.artifact.origin``), so that this user can load it without ``trust=True``. All but the
        signature is the same, byte for byte, for the same model, target and version, whoever compiles it.

        Raises ``BadInput`` if it can't be written, or there is no place for the key.
        """
        made, target = self.compiled, self.compiled.options.target
        build = artifact.Build(__version__, self._source, str(target), target.arch.value, target.features)
        parts = artifact.Artifact(build, made.executable.manifest, made.objects, made.executable.constants)
        artifact.save(parts, path, (settings or Settings.from_environment()).key_dir, signed=signed)


def compile(
    model: "str | os.PathLike[str] | onnx.ModelProto",
    *,
    shapes: Mapping[str, Iterable[int | str]] | None = None,
    bounds: Mapping[str, int] | None = None,
    target: Target | str = "host",
    threads: int | None = None,
    settings: Settings | None = None,
) -> CompiledModel:
    """Compile an ONNX model (a path or a ``ModelProto``) for this machine or another ``target``.

    ``shapes`` gives shapes of inputs by name, ``bounds`` upper bounds of dimensions known at run time only, by name.
    ``threads``: the most that one call uses; by default all that this process may use. Raises ``InvalidModel`` for a
    malformed model, ``UnsupportedModel`` for what can't be compiled; both name the node and what would help.
    """
    chosen = settings or Settings.from_environment()
    graph = onnx_importer.load(model, shapes)
    options = Options(_target(target), threads or chosen.num_threads, bounds or {}, chosen.bounds_check)
    cache = Store.open(chosen, to_log(logging.getLogger("tilewright")))
    return CompiledModel(compile_graph(graph, options, cache, chosen.watch()), onnx_proto.sha256(model))


def _target(target: Target | str) -> Target:
    return target if isinstance(target, Target) else Target.host() if target == "host" else Target.parse(target)
