"""Steps that the library computes, as executables and as parts of artifacts.

A part's code is a ``Function`` as JSON; its constants are the weights, and perhaps a bias, row-major: they are packed
when the part is opened, for the processor that is there. The part names the library and the version with which it was
compiled. Another version 3 computes the same, perhaps not as fast as it was measured.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.dtypes import f32
from tilewright.base.errors import BadArtifact, BadInput, CorruptArtifact, Unsupported
from tilewright.runtime.artifact.artifact import Artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.library.onednn import library
from tilewright.runtime.library.primitive import Function, Layout, Primitive, Window
from tilewright.runtime.manifest import Manifest


class StepExecutable(Executable):
    """Runs a function of the library. Its manifest has one input, one output, and weights (and a bias) as constants.

    Raises ``Unsupported`` if there is no library, or if it does not implement the function, ``BadArtifact`` if the
    manifest is not that of a step.
    """

    def __init__(
        self, function: Function, manifest: Manifest, constants: Sequence[Array], threads: int | None = None
    ) -> None:
        super().__init__(manifest, constants, threads)
        self._function, self._data = function, _shapes_of(manifest, function)
        self._primitives: dict[int, Primitive] = {}
        self.primitive(self.threads)

    @property
    def function(self) -> Function:
        """What it computes."""
        return self._function

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory kept for later calls."""
        return sum(primitive.kept_bytes for primitive in tuple(self._primitives.values()))

    def primitive(self, threads: int) -> Primitive:
        """The function for a number of threads."""
        found = library()
        wanted = found.usable(threads)
        if wanted not in self._primitives:
            weights, *bias = self.constants
            offsets = bias[0] if bias else None
            like = next(iter(self._primitives.values()), None)
            self._primitives[wanted] = Primitive(found, self._function, self._data, weights, offsets, wanted, like)
        return self._primitives[wanted]

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, Array],
        threads: int | None,
        timeout: float | None,
        runs: int,
        /,
    ) -> tuple[list[Array], list[float]]:
        """The library is not stopped by the timeout."""
        inputs = self._accept(feeds)
        results = self._outputs(out, inputs, self._static_shapes)
        primitive = self.primitive(threads or self.threads)
        begin = time.perf_counter()
        for _ in range(runs):
            primitive.run(inputs[0], results[0])
        return results, [time.perf_counter() - begin]


def written(function: Function) -> bytes:
    """A function as the code of a part."""
    window = function.window
    content = {
        "window": None
        if window is None
        else {
            "strides": window.strides,
            "dilations": window.dilations,
            "before": window.before,
            "after": window.after,
            "groups": window.groups,
        },
        "transposed": function.transposed,
        "low": function.low,
        "high": function.high,
        "layout": function.layout.value,
    }
    return json.dumps(content).encode("ascii")


def read(code: bytes) -> Function:
    """The function of a part. Raises ``CorruptArtifact``."""
    try:
        given = fields.mapping(json.loads(code.decode("ascii")))
        transposed = bool(given["transposed"])
        limits = fields.optional(given["low"]), fields.optional(given["high"])
        function = Function(_window(given["window"]), transposed, *limits, Layout(fields.text(given["layout"])))
    except KeyError as error:
        raise CorruptArtifact(f"a step of a library has no {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise CorruptArtifact(f"a step of a library can't be read: {error}") from error
    if written(function) != code:
        raise CorruptArtifact("a step of a library is not as Tilewright writes it")
    return function


def _window(given: object) -> Window | None:
    if given is None:
        return None
    window = fields.mapping(given)
    return Window(
        _numbers(window["strides"]),
        _numbers(window["dilations"]),
        _numbers(window["before"]),
        _numbers(window["after"]),
        fields.whole(window["groups"]),
    )


def _numbers(given: object) -> tuple[int, ...]:
    return tuple(map(fields.whole, fields.items(given)))


@dataclass(frozen=True, slots=True)
class StepOpener:
    """Opens the steps of an artifact (``runtime.devices``)."""

    def executable(self, found: Artifact) -> Executable:
        """Raises ``Unsupported``, with the library's version and the remedy, if the library is missing."""
        if len(found.objects) != 1:
            raise CorruptArtifact(f"a step of a library has {len(found.objects)} objects")
        function = read(found.objects[0])
        try:
            return StepExecutable(function, found.manifest, found.constants)
        except Unsupported as error:
            raise Unsupported(f"parts of the model are computed by {found.build.target}: {error}") from error


def opening(accelerator: object) -> StepOpener:
    """Raises ``BadInput`` if an accelerator is given."""
    if accelerator is not None:
        raise BadInput("accelerator=: the model's parts are for the CPU and a library; leave it out")
    return StepOpener()


def _shapes_of(manifest: Manifest, function: Function) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of source and result. Raises ``BadArtifact`` if the arrays are not those of the function."""
    specs = (*manifest.inputs, *manifest.outputs, *manifest.constants)
    counts = len(manifest.inputs), len(manifest.outputs)
    shapes = [spec.static_shape for spec in specs if spec.dtype == f32 and spec.static_shape is not None]
    if counts != (1, 1) or len(specs) not in (3, 4) or len(shapes) < len(specs):
        raise BadArtifact("a step of a library has one input and one output of float32, weights, and perhaps a bias")
    source, result, weights, *bias = shapes
    columns = result[-1:] if function.window is None else result[1:2]
    if function.result(source, weights) != result or bias not in ([], [columns]):
        raise BadArtifact(f"a step of a library makes no {list(result)} of {list(source)} and {list(weights)}")
    return source, result
