"""Scan and Loop with a known number of steps: the body is imported once for each step, in place of the node.

What a step computes from its number alone is then a constant, and the steps share their kernels. The bodies of loops
see the names around them, as branches do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.base.errors import UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.listed import Bound, tensor
from tilewright.frontend.onnx.read.order import all_nodes
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops.shapes import normalize_axis
from tilewright.symbolic.expr import Const, Expr

MOST_NODES = 1 << 14
"""Maximum nodes of all steps together."""

Run = Callable[[Sequence[Bound], str], list[Bound]]
"""Imports the body for one step: its inputs, and the step's place; the results are the body's outputs."""


class NotUnrolled(UnsupportedModel):
    """A loop whose number of steps is known at run time only, or too large."""


@dataclass(frozen=True, slots=True)
class ScanForm:
    """The parts of a Scan (opset 9): the first states, and what is scanned, along which axes, in which directions."""

    request: Request
    states: Sequence[Value]
    sources: Sequence[Value]
    axes: Sequence[int]
    is_reversed: Sequence[bool]

    @staticmethod
    def of(request: Request, body: onnx.GraphProto) -> "ScanForm":
        """Raises ``InvalidModel``, and ``UnsupportedModel`` for opset 8."""
        if request.opset < 9:
            raise request.unsupported(
                "Scan of opset 8 with rows or steps whose number is known at run time only is not supported; export "
                "with opset 9 or later"
            )
        inputs = [request.input(position) for position in range(len(request.inputs))]
        scanned = request.integer("num_scan_inputs", 1)
        states, sources = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
        if not sources or len(body.input) != len(inputs) or len(body.output) < len(states):
            raise request.invalid(
                f"{len(inputs)} inputs, of which {scanned} are scanned, do not fit a body with {len(body.input)} "
                f"inputs and {len(body.output)} outputs"
            )
        axes = _axes(request, "scan_input_axes", [len(source.shape) for source in sources])
        return ScanForm(request, states, sources, axes, _flags(request, "scan_input_directions", len(sources)))

    def axes_of_stacks(self, ranks: Sequence[int]) -> list[int]:
        """The axes along which results of these ranks are stacked."""
        return _axes(self.request, "scan_output_axes", ranks)

    def are_stacked_backwards(self, count: int) -> list[bool]:
        """Whether each of ``count`` results begins with that of the last step."""
        return _flags(self.request, "scan_output_directions", count)

    def part(self, source: Value, axis: int, place: Value) -> Value:
        """One step's element. As the place is data, the kernels of all steps are the same."""
        return self.request.apply("Gather", source, place, axis=axis)


def scan(request: Request, given: Sequence[Bound | None], body: onnx.GraphProto, run: Run) -> list[Bound]:
    """The results of a Scan: the last states, then for each scan output the elements of all steps, stacked.

    Raises ``NotUnrolled`` if the number of steps is known at run time only, 0, or too large.
    """
    del given
    if request.opset < 9:
        return _scan_of_each(request, body, run)
    return [*_scanned(ScanForm.of(request, body), body, run)]


def _scanned(form: ScanForm, body: onnx.GraphProto, run: Run) -> list[Value]:
    request, states = form.request, form.states
    steps = _known_steps(request, form.sources[0].shape[form.axes[0]])
    _check_steps(request, body, steps)
    stacks: list[list[Value]] = [[] for _ in range(len(body.output) - len(states))]
    for step in range(steps):
        places = [steps - 1 - step if backwards else step for backwards in form.is_reversed]
        given = [request.constant(np.array(place, np.int64)) for place in places]
        parts = [form.part(*one) for one in zip(form.sources, form.axes, given, strict=True)]
        made = run([*states, *parts], f"{request.place} step {step}")
        results = [tensor(result, request.place) for result in made]
        states = results[: len(states)]
        for stack, result in zip(stacks, results[len(states) :], strict=True):
            stack.append(result)
    along = form.axes_of_stacks([len(stack[0].shape) + 1 for stack in stacks])
    stacked = zip(stacks, along, form.are_stacked_backwards(len(stacks)), strict=True)
    return [*states, *(_stacked(request, stack[::-1] if back else stack, axis) for stack, axis, back in stacked)]


def _known_steps(request: Request, extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise NotUnrolled(f"{request.place}: there are {extent} steps")
    return int(extent.value)


def _scan_of_each(request: Request, body: onnx.GraphProto, run: Run) -> list[Bound]:
    """A Scan of opset 8: the first input is the length of each row, and the others have a dimension of rows."""
    if request.optional(0) is not None:
        raise request.unsupported("lengths of rows of their own (sequence_lens) are not supported; export with opset 9")
    given = [request.input(position) for position in range(1, len(request.inputs))]
    scanned = request.integer("num_scan_inputs", 1)
    if not 0 < scanned <= len(given) or not all(value.shape for value in given):
        raise request.invalid(f"{len(given)} inputs, of which {scanned} are scanned, do not have rows")
    rows = _known_steps(request, given[0].shape[0])
    _check_steps(request, body, rows)
    is_reversed = _flags(request, "directions", scanned)
    results: list[list[Value]] = []
    for row in range(rows):
        place = request.constant(np.array(row, np.int64))
        own = [request.apply("Gather", value, place, axis=0) for value in given]
        form = ScanForm(request, own[:-scanned], own[-scanned:], [0] * scanned, is_reversed)
        results.append(_scanned(form, body, run))
    return [_stacked(request, each, 0) for each in zip(*results, strict=True)]


def loop(request: Request, given: Sequence[Bound | None], body: onnx.GraphProto, run: Run) -> list[Bound]:
    """The results of a Loop whose steps and condition are constants: the last states, then the stacked scan outputs.

    States may be sequences. Raises ``NotUnrolled`` if the number of steps is known at run time only, too large, or 0
    with scan outputs.
    """
    states: list[Bound] = [request.input(at) if each is None else each for at, each in enumerate(given) if at > 1]
    if len(body.input) != len(states) + 2 or len(body.output) < len(states) + 1:
        raise request.invalid(
            f"{len(states)} states do not fit a body with {len(body.input)} inputs and {len(body.output)} outputs"
        )
    steps = request.optional(0)
    if steps is not None and request.importer.known(steps) is None:
        raise NotUnrolled(f"{request.place}: there are `{readable(steps.name)}` steps")
    most = request.integers(0)
    goes_on = _is_true(request, request.optional(1))
    stacks: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    step = 0
    while goes_on and (most is None or step < most[0]):
        _check_steps(request, body, step + 1)
        counted, holds = request.constant(np.array(step, np.int64)), request.constant(np.array(True))
        condition, *results = run([counted, holds, *states], f"{request.place} step {step}")
        states = results[: len(states)]
        for stack, result in zip(stacks, results[len(states) :], strict=True):
            stack.append(tensor(result, request.place))
        goes_on = _is_true(request, tensor(condition, request.place))
        step += 1
    if stacks and not step:
        raise NotUnrolled(f"{request.place}: there are no steps")
    return [*states, *(_stacked(request, stack, 0) for stack in stacks)]


Unroll = Callable[[Request, Sequence[Bound | None], onnx.GraphProto, Run], list[Bound]]
"""From a node, its inputs, its body, and what imports this to the results."""
UNROLLED: Mapping[str, Unroll] = {"Loop": loop, "Scan": scan}
"""By operator."""


def _is_true(request: Request, condition: Value | None) -> bool:
    if condition is None:
        return True
    known = request.importer.known(condition)
    if known is None:
        raise NotUnrolled(f"{request.place}: whether there is another step depends on `{readable(condition.name)}`")
    return known.size == 1 and bool(known.item())


def _check_steps(request: Request, body: onnx.GraphProto, steps: int) -> None:
    size = sum(1 for _ in all_nodes(body.node))
    if steps * max(size, 1) > MOST_NODES:
        raise NotUnrolled(f"{request.place}: {steps} steps of {size} nodes are more than {MOST_NODES} nodes")
    if not steps:
        raise NotUnrolled(f"{request.place}: there are no steps")


def _axes(request: Request, name: str, ranks: Sequence[int]) -> list[int]:
    given = request.ints(name) or (0,) * len(ranks)
    if len(given) != len(ranks):
        raise request.invalid(f"{name} is {list(given)}; {len(ranks)} axes are needed")
    return [normalize_axis(axis, rank) for axis, rank in zip(given, ranks, strict=True)]


def _flags(request: Request, name: str, count: int) -> list[bool]:
    given = request.ints(name) or (0,) * count
    if len(given) != count:
        raise request.invalid(f"{name} is {list(given)}; {count} directions are needed")
    return [bool(flag) for flag in given]


def _stacked(request: Request, parts: Sequence[Value], axis: int) -> Value:
    wide = [request.apply("Unsqueeze", part, axes=(axis,)) for part in parts]
    return request.apply_many("Concat", wide, 1, axis=axis)[0]
