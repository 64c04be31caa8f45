"""If, Loop and Scan that are decided when the model runs: their bodies become graphs of their own (``graph.control``).

The types of results must be known before. Extents that differ between branches, or from step to step, become extents
that are known only when the node has run. Ranks and types of elements can't differ.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx

from tilewright.base.dtypes import DType, boolean, i64
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.late_sizes import LateSizes
from tilewright.frontend.onnx.read.rules.rule import Importer, Request
from tilewright.frontend.onnx.read.unrolling import ScanForm
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.graph.control import Branch, Repeat, typed
from tilewright.ops import FusionKind
from tilewright.ops.hosted import HostOperator
from tilewright.ops.operator import require
from tilewright.ops.shapes import same_extent
from tilewright.symbolic.expr import Const, Expr, Extent
from tilewright.tensor.elements import Limit

_ROUNDS = 4
"""Maximum imports of the body of a loop: each makes more extents of its states changing ones."""

Run = Callable[[Sequence[Value], str], Sequence[Value]]
"""Imports a body: its inputs, and its place; the results are its outputs."""


class Encloser(Importer, Protocol):
    """The importer's services for bodies that are decided at run time."""

    def enclosed(self, run: Callable[[], Sequence[Value]], given: Sequence[Value], place: str) -> Graph:
        """What ``run`` imports, as a graph with the inputs ``given`` and all that it reads around it."""
        ...

    def between(self, op: HostOperator, inputs: Sequence[Value], outputs: int, place: str) -> tuple[Value, ...]:
        """Add a node that runs between parts of the model."""
        ...

    def fresh(self, dtype: DType, shape: Sequence[Expr]) -> Value:
        """A value with a fresh name."""
        ...


def branch_at_run_time(
    importer: Encloser, condition: Value, then: Run, otherwise: Run, place: str
) -> tuple[Value, ...]:
    """The results of one of two bodies."""
    if condition.dtype != boolean:
        raise InvalidModel(f"{place}: the condition is {condition!r}, not one bool")
    bodies = [
        importer.enclosed(lambda run=run, name=name: run((), name), (), name)
        for run, name in ((then, f"{place} then_branch"), (otherwise, f"{place} else_branch"))
    ]
    first, second = bodies
    types = _Types(importer, place)
    results = [types.common(a, b) for a, b in zip(first.outputs, second.outputs, strict=True)]
    op = Branch("host.If", typed(results), FusionKind.OPAQUE, sizes=tuple(types.sizes), then=first, otherwise=second)
    read = dict.fromkeys(value for body in bodies for value in body.inputs)
    return importer.between(op, [condition, *read], len(results), place)


def _loop(request: Request, importer: Encloser, body: onnx.GraphProto, run: Run) -> list[Value]:
    """The results of a Loop; what is left out of its first inputs does not end it."""
    most, condition = request.optional(0), request.optional(1)
    if most is None:
        most = request.constant(np.array(np.iinfo(np.int64).max))
    if condition is None:
        condition = request.constant(np.array(True))
    if condition.dtype != boolean or most.dtype != i64:
        raise request.invalid(f"{most!r} and {condition!r} are no number of steps and no condition")
    states = [request.input(position) for position in range(2, len(request.inputs))]
    if len(body.input) != len(states) + 2 or len(body.output) < len(states) + 1:
        raise request.invalid(
            f"{len(states)} states do not fit a body with {len(body.input)} inputs and {len(body.output)} outputs"
        )
    return _repeated(request, importer, (most, condition), states, run)


def _scan(request: Request, importer: Encloser, body: onnx.GraphProto, run: Run) -> list[Value]:
    """The results of a Scan: a Loop of which each step takes its parts of what is scanned."""
    form = ScanForm.of(request, body)
    steps = form.sources[0].shape[form.axes[0]]
    count = importer.symbolic_value((steps,), (), i64, request.place)

    def step(given: Sequence[Value], place: str) -> list[Value]:
        number, condition, *states = given
        backward = request.apply("Sub", request.apply("Sub", count, request.constant(np.array(1))), number)
        places = [backward if backwards else number for backwards in form.is_reversed]
        parts = [form.part(*one) for one in zip(form.sources, form.axes, places, strict=True)]
        return [condition, *run([*states, *parts], place)]

    results = _repeated(request, importer, (count, request.constant(np.array(True))), form.states, step)
    stacks = results[len(form.states) :]
    if any(form.are_stacked_backwards(len(stacks))):
        raise request.unsupported("results in reverse order of steps, whose number is known at run time only")
    axes = form.axes_of_stacks([len(stack.shape) for stack in stacks])
    moved = [_moved(request, stack, axis) for stack, axis in zip(stacks, axes, strict=True)]
    return [*results[: len(form.states)], *moved]


def _moved(request: Request, stack: Value, axis: int) -> Value:
    """``stack`` with its first dimension as dimension ``axis``."""
    others = [*range(1, len(stack.shape))]
    return request.apply("Transpose", stack, perm=(*others[:axis], 0, *others[axis:])) if axis else stack


AT_RUN_TIME: Mapping[str, Callable[[Request, Encloser, onnx.GraphProto, Run], list[Value]]] = {
    "Loop": _loop,
    "Scan": _scan,
}
"""By operator."""


def _repeated(
    request: Request, importer: Encloser, until: tuple[Value, Value], first: Sequence[Value], run: Run
) -> list[Value]:
    """The last states, then what the steps made, stacked. ``until``: the most steps, and the first condition."""
    states = [_State(importer, value) for value in first]
    inputs = (importer.fresh(i64, ()), importer.fresh(boolean, ()))
    for _ in range(_ROUNDS):
        values = (*inputs, *(state.value for state in states))
        body = importer.enclosed(lambda values=values: run(values, f"{request.place} step"), values, request.place)
        after = body.outputs[1 : 1 + len(states)]
        if not any([state.widen(request, value) for state, value in zip(states, after, strict=True)]):
            break
    else:
        raise request.unsupported("the shapes of its states change from step to step in ways that are not followed")
    changing = tuple(extent for state in states for extent in state.own)
    types = _Types(importer, request.place, frozenset(changing))
    last = [types.last(state) for state in states]
    ends = [*last, *map(types.stacked, body.outputs[1 + len(states) :])]
    sizes, count = tuple(types.sizes), len(states)
    op = Repeat("host.Loop", typed(ends), FusionKind.OPAQUE, sizes=sizes, body=body, states=count, changing=changing)
    read = body.inputs[2 + count :]
    return [*importer.between(op, [*until, *first, *read], len(ends), request.place)]


class _State:
    """A state of a loop: the value that the body reads, and its extents that may change."""

    def __init__(self, importer: Encloser, first: Value) -> None:
        self._importer = importer
        self.first = first
        self.value = importer.fresh(first.dtype, first.shape)
        self.own: list[Extent] = []

    def widen(self, request: Request, after: Value) -> bool:
        """Make those extents changing ones that differ after a step; whether there are any."""
        if after.dtype != self.value.dtype or len(after.shape) != len(self.value.shape):
            raise request.unsupported(
                f"a state is {self.first!r} first, and after a step it is {after.dtype} of {len(after.shape)} "
                "dimensions"
            )
        shape = list(self.value.shape)
        for axis, (old, new) in enumerate(zip(self.value.shape, after.shape, strict=True)):
            if old not in self.own and not same_extent(old, new):
                name = f"{readable(self.first.name)} {axis}"
                shape[axis] = extent = self._importer.symbolic.late_extent(name)
                self.own.append(extent)
        changed = tuple(shape) != self.value.shape
        if changed:
            self.value = self._importer.fresh(self.value.dtype, shape)
        return changed


class _Types:
    """The types of results, and their extents that are known only when the node has run."""

    def __init__(self, importer: Encloser, place: str, hidden: frozenset[Extent] = frozenset()) -> None:
        """``hidden``: extents that only the bodies know."""
        self._importer = importer
        self._place = place
        self._hidden = hidden
        self.sizes: list[Extent] = []

    def common(self, a: Value, b: Value) -> Value:
        """A value of the type of both."""
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            raise UnsupportedModel(
                f"{self._place}: operator If is not supported on a condition that is computed at run time where the "
                f"branches' results have different types or ranks ({a!r}, {b!r}); if the "
                "condition depends on shapes only, give these by "
                f"{self._importer.symbolic.by_shapes}"
            )
        pairs = zip(a.shape, b.shape, strict=True)
        return self._importer.fresh(a.dtype, [self._known(x) if same_extent(x, y) else self._late() for x, y in pairs])

    def last(self, state: _State) -> Value:
        """A value of the type of the last state of a loop."""
        return self._importer.fresh(state.value.dtype, list(map(self._known, state.value.shape)))

    def stacked(self, step: Value) -> Value:
        """A value of the type of what all steps made, one after the other."""
        return self._importer.fresh(step.dtype, [self._late(), *map(self._known, step.shape)])

    def _known(self, extent: Expr) -> Expr:
        """``extent``, if it is known around the body."""
        if isinstance(extent, Const):
            return extent
        is_known = self._importer.symbolic.knows(extent) and self._hidden.isdisjoint(extent.variables)
        return extent if is_known else self._late()

    def _late(self) -> Extent:
        self.sizes.append(self._importer.symbolic.late_extent(f"{self._place} {len(self.sizes)}"))
        return self.sizes[-1]


def leaving(values: Sequence[Value], late: LateSizes, start: int, place: str) -> tuple[Value, ...]:
    """``values``, each made by a node of its own in the body that begins with node ``start``."""
    found: list[Value] = []
    for value in values:
        if late.symbolic.is_missing(value):
            late.nodes.append(late.symbolic.node(value, place))
        made = {each for node in late.nodes[start:] for each in node.outputs}
        if value not in made or value in found:
            copy = make_node(require("Identity"), [value], [late.fresh()], {}, place)
            late.nodes.append(copy)
            found.append(copy.outputs[0])
        else:
            found.append(value)
    return tuple(found)


def body_of(
    name: str,
    given: Sequence[Value],
    outputs: Sequence[Value],
    nodes: Sequence[Node],
    constants: Mapping[Value, Array],
    limits: Sequence[Limit],
) -> Graph:
    """A body as a graph of its own: what it reads around it is an input, too."""
    made = {*given, *(value for node in nodes for value in node.outputs)}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    own = {value: constants[value] for value in read if value in constants}
    captured = (value for value in read if value not in made and value not in own)
    return Graph(name, (*given, *captured), tuple(outputs), tuple(nodes), own, limits=tuple(limits))
