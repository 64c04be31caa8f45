"""What a user calls: ``compile`` a model, and run it."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.base.errors import BadFeed
from tilewright.base.events import to_log
from tilewright.base.settings import Settings
from tilewright.base.store import Store
from tilewright.base.target import Target
from tilewright.driver import Compiled, Options, compile_graph
from tilewright.frontend import onnx_importer
from tilewright.graph import Array
from tilewright.runtime.manifest import TensorSpec

if TYPE_CHECKING:
    import onnx


class CompiledModel:
    """A model as native code. Any number of threads may call it at once."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._executable = compiled.executable

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input."""
        return self._executable.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output."""
        return self._executable.manifest.outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, object]) -> list[Array]:
        """The outputs called ``names`` (None: all, in the model's order) for inputs by name, as ONNX Runtime spells it.

        Raises ``BadFeed`` if an input is missing, unknown, or of another dtype or shape, or an output is unknown.
        """
        results = self._executable.run(feeds)
        if names is None:
            return results
        known = {spec.name: result for spec, result in zip(self.outputs, results, strict=True)}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise BadFeed(f"there is no output {', '.join(unknown)}; the outputs are {', '.join(known)}")
        return [known[name] for name in names]

    def __call__(self, *arrays: object) -> Array | tuple[Array, ...]:
        """The outputs for inputs by position; a single output comes alone."""
        if len(arrays) != len(self.inputs):
            expected = ", ".join(map(str, self.inputs))
            raise BadFeed(f"the model takes {len(self.inputs)} inputs ({expected}), not {len(arrays)}")
        results = self._executable.run({spec.name: a for spec, a in zip(self.inputs, arrays, strict=True)})
        return results[0] if len(results) == 1 else tuple(results)


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
    return CompiledModel(compile_graph(graph, options, cache, chosen.watch()))


def _target(target: Target | str) -> Target:
    return target if isinstance(target, Target) else Target.host() if target == "host" else Target.parse(target)
