"""One graph of ``torch.compile`` as a function, with a model for each set of weights.

Parameters and buffers are inputs of a graph, and constants of its model. Layers of one class may share a graph, with
weights of their own: each set has its model. A call checks that PyTorch has counted no write to a weight since, and
that it has the same memory; else its model is made again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch.export import Dim

from tilewright.api import compile as compile_model
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadInput, Unsupported
from tilewright.base.forks import ProcessLock
from tilewright.dynamo.graphs import Bound, computed_by_torch, inputs_of, with_outputs
from tilewright.model import CompiledModel
from tilewright.runtime.tensors import tensors_of

_LOG = logging.getLogger("tilewright")

MOST_MODELS = 64
"""Maximum models of one graph: for sets of weights, and for sizes if each has a model. The oldest goes out."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The inputs of a call, by their places, without the sizes of tensors."""

    weights: Mapping[int, torch.Tensor]
    free: Mapping[int, torch.Tensor]
    fixed: Mapping[int, object]
    """Numbers that are no tensor's size."""

    def key(self, *, is_per_size: bool) -> tuple[object, ...]:
        """Equal for calls that may have the same model."""
        shapes = tuple(tuple(one.shape) for one in self.free.values()) if is_per_size else ()
        return (*map(id, self.weights.values()), *map(repr, self.fixed.values()), *shapes)


@dataclass(frozen=True, slots=True)
class _Version:
    """A model, and the weights that it was made of."""

    model: CompiledModel
    weights: tuple[torch.Tensor, ...]
    memory: tuple[torch.Tensor, ...]
    """Like the weights, held so that nothing else gets their identity or memory."""
    states: Sequence[tuple[int, int]]


class Piece:
    """A graph as a function of its inputs: weights, other tensors, and sizes of these.

    Outputs that are views of inputs, or sizes, are computed by PyTorch, so that they share memory with inputs.
    """

    def __init__(self, graph: torch.fx.GraphModule, options: Mapping[str, object]) -> None:
        """``options``: of ``tilewright.compile``."""
        self._compile = partial(compile_model, **options)
        self._inputs = inputs_of(graph)
        by_torch = computed_by_torch(graph)
        self._compiled = [place for place, skipped in enumerate(by_torch) if not skipped]
        self._rest = [place for place, skipped in enumerate(by_torch) if skipped]
        self._graph = with_outputs(graph, self._compiled, is_pure=False)
        self._views = with_outputs(graph, self._rest, is_pure=True) if self._compiled else graph
        self._lock = ProcessLock()
        self._versions: dict[tuple[object, ...], _Version] = {}
        self._is_per_size = False

    def __call__(self, *inputs: object) -> tuple[object, ...]:
        results: dict[int, object] = {}
        if self._compiled:
            call = self._sorted(inputs)
            results.update(zip(self._compiled, tensors_of(self._run(call), inputs), strict=True))
        if self._rest or not self._compiled:
            results.update(zip(self._rest, self._views(*inputs), strict=True))
        return tuple(results[place] for place in range(len(results)))

    def _run(self, call: _Call) -> Sequence[Array]:
        """The outputs. Sizes for which the trace of others is not right get a model of their own."""
        model = self._version(call).model
        try:
            return model.run(None, model.by_name(tuple(call.free.values())))
        except BadFeed as error:
            if self._is_per_size or not any(self._dimensions(call)):
                raise
            self._tell_sizes(error)
        return self._run(call)

    def _sorted(self, inputs: Sequence[object]) -> _Call:
        weights: dict[int, torch.Tensor] = {}
        free: dict[int, torch.Tensor] = {}
        fixed: dict[int, object] = {}
        for place, value in enumerate(inputs):
            if place in self._inputs.numbers:
                fixed[place] = cast(torch.Tensor, value).item()
            elif isinstance(value, torch.Tensor):
                (weights if _is_weight(value) else free)[place] = value
            elif place not in self._inputs.sizes:
                fixed[place] = value
        return _Call(weights, free, fixed)

    def _version(self, call: _Call) -> _Version:
        """The model for the weights of ``call``, which is compiled if they have none, or were written to."""
        with self._lock.held():
            found = self._versions.get(call.key(is_per_size=self._is_per_size))
            if found is not None:
                if found.states == _states(tuple(call.weights.values())):
                    return found
                _LOG.warning("weights of a compiled module were written to: it is compiled again")
            made = self._made(call)
            self._versions[call.key(is_per_size=self._is_per_size)] = made
            while len(self._versions) > MOST_MODELS:
                del self._versions[next(iter(self._versions))]
            return made

    def _made(self, call: _Call) -> _Version:
        weights = tuple(call.weights.values())
        states = _states(weights)
        return _Version(self._model(call), weights, tuple(one.detach() for one in weights), states)

    def _model(self, call: _Call) -> CompiledModel:
        """The model, for all sizes that the graph is for, if possible; else for those of ``call``."""
        module = Bound(self._graph, self._inputs, call.weights, call.fixed)
        examples = tuple(call.free.values())
        dimensions = self._dimensions(call)
        if any(dimensions) and not self._is_per_size:
            shapes = (tuple(dict.fromkeys(dims, Dim.DYNAMIC) for dims in dimensions),)
            try:
                return self._compile(module, example_inputs=examples, dynamic_shapes=shapes)
            except Unsupported as error:
                self._tell_sizes(error)
        return self._compile(module, example_inputs=examples)

    def _dimensions(self, call: _Call) -> list[Sequence[int]]:
        """The dimensions of each tensor that are open."""
        return [self._inputs.open_dimensions.get(place, ()) for place in call.free]

    def _tell_sizes(self, error: Exception) -> None:
        _LOG.warning("a graph of PyTorch is compiled for each size of its inputs: %s", error)
        self._is_per_size = True


def _is_weight(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a parameter, or a buffer of a module, which PyTorch marks as in one place."""
    return isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_dynamo_static_input_type", None) is not None


def _states(weights: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Numbers that change if a weight is written to, or gets other memory. Raises ``BadInput``."""
    if any(one.is_inference() for one in weights):
        raise BadInput(
            "weights that were made under torch.inference_mode() do not tell when they are written to: make "
            "the module outside of it"
        )
    return [(one._version, one.data_ptr()) for one in weights]
