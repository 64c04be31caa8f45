"""Recurrent layers (LSTM, GRU, simple RNN) in one direction: the recurrence, as one scan.

The inputs' contribution to the gates is one matrix product over all steps, passed as ``x``. A step adds the product of
the state and the recurrent weights. Steps are numbered from 1; row 0 of a state is its initial value. The equations are
those of ONNX.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.recurrent_activations import Activation, activation
from tilewright.ops.shapes import Shape, same_extent, show
from tilewright.symbolic.check import Origin, checked
from tilewright.symbolic.expr import ONE, ZERO, Expr, as_expr, cast, const, maximum, minimum, select
from tilewright.tensor import build as te
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Reduction, Tensor
from tilewright.tensor.scan import scan


@dataclass(frozen=True, slots=True)
class _Layer:
    """Shapes and direction of one layer."""

    operator: str
    x: Tensor
    lengths: Tensor | None
    steps: Expr
    batch: Expr
    hidden: Expr
    reverse: bool
    activations: tuple[Activation, ...]
    clip: float

    @property
    def shape(self) -> Shape:
        """The shape of a state: one row more than the steps."""
        return self.steps + 1, self.batch, self.hidden

    def state(self, name: str) -> Tensor:
        """A placeholder for all rows of a state."""
        return placeholder(self.shape, accumulator(self.x.dtype), name)

    def start(self, given: Tensor | None) -> Tensor:
        """Row 0 of a state: zeros, unless it is ``given``."""
        wide = accumulator(self.x.dtype)
        shape = ONE, self.batch, self.hidden
        return tensor(shape, lambda i: const(0.0, wide) if given is None else cast(given[i[1:]], wide))

    def input(self, step: Expr, b: Expr, n: Expr) -> Expr:
        """The element of ``x`` for a step: in reverse, the last element of the sequence comes first."""
        time = step - 1
        if self.reverse and self.lengths is None:
            time = self.steps - step
        elif self.reverse:
            time = maximum(self._length(b) - step, ZERO)
        return cast(self.x[time, b, n], accumulator(self.x.dtype))

    def kept(self, step: Expr, b: Expr, new: Expr, old: Expr) -> Expr:
        """``new``; beyond the end of a sequence, ``old``."""
        return new if self.lengths is None else select(step <= self._length(b), new, old)

    def results(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The states in the order of time, zero beyond the ends of sequences; and the last one of each sequence."""
        dtype = self.x.dtype

        def at(index: Index) -> Expr:
            time, b, n = index
            if self.lengths is None:
                return cast(states[self.steps - time if self.reverse else time + 1, b, n], dtype)
            length = self._length(b)
            row = maximum(length - time, ZERO) if self.reverse else time + 1
            return select(time < length, cast(states[row, b, n], dtype), const(0.0, dtype))

        every = tensor((self.steps, self.batch, self.hidden), at)
        last = tensor((self.batch, self.hidden), lambda i: cast(states[(self.steps, *i)], dtype))
        return every, last

    def clipped(self, value: Expr) -> Expr:
        """The input of an activation, clipped to the threshold."""
        if not self.clip:
            return value
        return minimum(maximum(value, const(-self.clip, value.dtype)), const(self.clip, value.dtype))

    def activated(self, which: int, value: Expr) -> Expr:
        """The activation number ``which`` of ``value``, clipped."""
        return self.activations[which](self.clipped(value))

    def _length(self, b: Expr) -> Expr:
        """The length of a sequence, clipped to ``0 .. steps``."""
        assert self.lengths is not None
        return checked(self.lengths[b], self.steps + 1, Origin(self.operator, "sequence_lens"))

    def product(self, state: Callable[[Index], Expr], weights: Tensor) -> Tensor:
        """``state`` of each step times the transposed ``weights``: ``[steps + 1, batch, gates]``."""
        wide = accumulator(self.x.dtype)
        k = te.reduce_axis((0, self.hidden), name="k")
        shape = (self.steps + 1, self.batch, weights.shape[0])

        def body(t: Expr, b: Expr, n: Expr) -> Reduction:
            return te.sum(state((t, b, k.var)) * cast(weights[n, k.var], wide), axis=k)

        return te.compute(shape, body, name="product")

    def sums(self, outputs: Tensor, weights: Tensor, name: str, change: Callable[[Expr], Expr] = as_expr) -> Tensor:
        """The contribution of the previous step's outputs and of the input to the gates of ``weights``, after
        ``change``."""
        product = self.product(lambda i: outputs[_before(i)], weights)
        return self.step(weights.shape[0], lambda i: change(product[i] + self.input(*i)), name)

    def step(self, width: Expr, body: Callable[[Index], Expr], name: str) -> Tensor:
        """One part of all steps: ``[steps + 1, batch, width]``."""

        def at(t: Expr, b: Expr, n: Expr) -> Expr:
            return body((t, b, n))

        return te.compute((self.steps + 1, self.batch, width), at, name=name)


def _layer(
    name: str,
    x: Tensor,
    weights: Tensor,
    others: Sequence[tuple[str, Tensor | None, Shape]],
    lengths: Tensor | None,
    gates: int,
    reverse: bool,
    activations: tuple[Activation, ...],
    clip: float,
) -> _Layer:
    """Raises ``BadProgram`` if a shape or dtype does not fit. ``others``: further inputs and their shapes."""
    if x.ndim != 3 or weights.ndim != 2:
        raise BadProgram(f"{name}: {x} and {weights} must have 3 and 2 dimensions")
    layer = _Layer(name, x, lengths, x.shape[0], x.shape[1], weights.shape[1], reverse, activations, clip)
    expected = [("the input", x, (*x.shape[:2], layer.hidden * gates)), *others]
    for role, given, shape in expected:
        if given is not None and not (len(given.shape) == len(shape) and all(map(same_extent, given.shape, shape))):
            raise BadProgram(f"{name}: {role} {given} should have the shape {show(shape)}")
        if given is not None and given.dtype != x.dtype:
            raise BadProgram(f"{name}: {role} {given} should be {x.dtype}")
    if lengths is not None and (not lengths.dtype.is_int or lengths.shape != (layer.batch,)):
        raise BadProgram(f"{name}: the lengths {lengths} should be integers of the shape {show((layer.batch,))}")
    if not clip >= 0:
        raise BadProgram(f"{name}: the clip threshold is {clip}; it must be at least 0")
    return layer


def _before(index: Index) -> Index:
    """The same position, one step earlier."""
    return (index[0] - 1, *index[1:])


def _functions(
    operator_name: str, count: int, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Activation, ...]:
    """The activations by name. Raises ``BadProgram`` unless there are ``count``, with as many parameters."""
    if not len(names) == len(alphas) == len(betas) == count:
        raise BadProgram(f"{operator_name}: {count} activations are needed, not {[*names]}")
    return tuple(map(activation, names, alphas, betas))


@dataclass(frozen=True, slots=True)
class _LstmStep:
    """The equations of one step of an LSTM, given the inputs of its gates: input, output, forget, cell."""

    layer: _Layer
    sums: Tensor
    peepholes: Tensor | None
    input_forget: bool

    def next_cell(self, i: Index, old: Expr) -> Expr:
        """The cell state after the step."""
        entering = self._gate(i, 0, old)
        kept = const(1.0, old.dtype) - entering if self.input_forget else self._gate(i, 2, old)
        new = self.layer.activated(1, self._sum(i, 3))
        return self.layer.kept(i[0], i[1], kept * old + entering * new, old)

    def next_output(self, i: Index, cell: Expr, old: Expr) -> Expr:
        """The output after the step with the new cell state ``cell``."""
        return self.layer.kept(i[0], i[1], self._gate(i, 1, cell) * self.layer.activations[2](cell), old)

    def _gate(self, i: Index, which: int, cell: Expr) -> Expr:
        """A gate, optionally with a peephole to the cell state."""
        value = self._sum(i, which)
        if self.peepholes is not None:
            value = value + cast(self.peepholes[i[2] + self.layer.hidden * which], value.dtype) * cell
        return self.layer.activated(0, value)

    def _sum(self, i: Index, which: int) -> Expr:
        t, b, n = i
        return self.sums[t, b, n + self.layer.hidden * which]


@operator("LSTM", FusionKind.OPAQUE)
def lstm(
    x: Tensor,
    recurrent: Tensor,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    activations: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    reverse: bool = False,
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """All outputs ``[steps, batch, hidden]``, the last output and the last cell state ``[batch, hidden]``.

    ``x``: ``[steps, batch, 4 * hidden]``, the gates input, output, forget, cell; ``recurrent``: ``[4 * hidden,
    hidden]``; ``peepholes``: ``[3 * hidden]`` (input, output, forget; Gers and Schmidhuber, 2000). Gates are clipped
    before their activations, as in ONNX Runtime (ONNX leaves the cell open); ``clip`` 0 means none.
    """
    hidden = recurrent.shape[-1]
    state_shape = (*x.shape[1:2], hidden)
    others = [
        ("the recurrent weight", recurrent, (hidden * 4, hidden)),
        ("the initial output", initial_h, state_shape),
        ("the initial cell state", initial_c, state_shape),
        ("the peephole weight", peepholes, (hidden * 3,)),
    ]
    functions = _functions("LSTM", 3, activations, alphas, betas)
    layer = _layer("LSTM", x, recurrent, others, lengths, 4, reverse, functions, clip)
    outputs, cells = layer.state("outputs"), layer.state("cells")
    step = _LstmStep(layer, layer.sums(outputs, recurrent, "gates"), peepholes, input_forget)
    next_cells = layer.step(hidden, lambda i: step.next_cell(i, cells[_before(i)]), "next_cells")
    next_outputs = layer.step(hidden, lambda i: step.next_output(i, next_cells[i], outputs[_before(i)]), "next_outputs")
    starts = [layer.start(initial_h), layer.start(initial_c)]
    all_outputs, all_cells = scan(starts, [next_outputs, next_cells], [outputs, cells], name="lstm")
    return *layer.results(all_outputs), layer.results(all_cells)[1]


@dataclass(frozen=True, slots=True)
class _GruStep:
    """The equations of one step of a GRU, given its gates update and reset."""

    layer: _Layer
    outputs: Tensor
    gates: Tensor

    def candidates_reset_first(self, weights: Tensor) -> Tensor:
        """New values, from the product with the state after reset."""
        remembered = self.layer.step(
            self.layer.hidden, lambda i: self._reset(i) * self.outputs[_before(i)], "remembered"
        )
        plain = self.layer.product(lambda i: remembered[i], weights)
        return self._candidates(lambda i: plain[i])

    def candidates_reset_last(self, weights: Tensor, bias: Tensor | None) -> Tensor:
        """New values, from the reset product with the state."""
        plain = self.layer.product(lambda i: self.outputs[_before(i)], weights)

        def contribution(i: Index) -> Expr:
            value = plain[i] if bias is None else plain[i] + cast(bias[i[2]], plain.dtype)
            return self._reset(i) * value

        return self._candidates(contribution)

    def next_output(self, i: Index, candidate: Expr) -> Expr:
        """The output after the step: interpolated between the previous one and the new value."""
        old, update = self.outputs[_before(i)], self.gates[i]
        return self.layer.kept(i[0], i[1], (const(1.0, old.dtype) - update) * candidate + update * old, old)

    def _candidates(self, contribution: Callable[[Index], Expr]) -> Tensor:
        def candidate(i: Index) -> Expr:
            entering = self.layer.input(i[0], i[1], i[2] + self.layer.hidden * 2)
            return self.layer.activated(1, contribution(i) + entering)

        return self.layer.step(self.layer.hidden, candidate, "candidates")

    def _reset(self, i: Index) -> Expr:
        t, b, n = i
        return self.gates[t, b, n + self.layer.hidden]


@operator("GRU", FusionKind.OPAQUE)
def gru(
    x: Tensor,
    recurrent_gates: Tensor,
    recurrent_hidden: Tensor,
    recurrent_bias: Tensor | None = None,
    initial_h: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    activations: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    reverse: bool = False,
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """All outputs ``[steps, batch, hidden]`` and the last one ``[batch, hidden]``.

    ``x``: ``[steps, batch, 3 * hidden]``, the gates update, reset, hidden; the recurrent weights of the first two, ``[2
    * hidden, hidden]``, and of the last one. ``recurrent_bias``: ``[hidden]``, of the last one, only if the reset
    follows the product (``linear_before_reset``); else add it to ``x``.
    """
    hidden = recurrent_gates.shape[-1]
    others = [
        ("the recurrent weight of the gates", recurrent_gates, (hidden * 2, hidden)),
        ("the recurrent weight", recurrent_hidden, (hidden, hidden)),
        ("the recurrent bias", recurrent_bias, (hidden,)),
        ("the initial output", initial_h, (*x.shape[1:2], hidden)),
    ]
    functions = _functions("GRU", 2, activations, alphas, betas)
    layer = _layer("GRU", x, recurrent_gates, others, lengths, 3, reverse, functions, clip)
    outputs = layer.state("outputs")
    step = _GruStep(layer, outputs, layer.sums(outputs, recurrent_gates, "gates", lambda v: layer.activated(0, v)))
    if linear_before_reset:
        candidates = step.candidates_reset_last(recurrent_hidden, recurrent_bias)
    else:
        candidates = step.candidates_reset_first(recurrent_hidden)
    next_outputs = layer.step(hidden, lambda i: step.next_output(i, candidates[i]), "next_outputs")
    return layer.results(scan(layer.start(initial_h), next_outputs, outputs, name="gru"))


@operator("RNN", FusionKind.OPAQUE)
def rnn(
    x: Tensor,
    recurrent: Tensor,
    initial_h: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    activations: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    reverse: bool = False,
    clip: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """All outputs ``[steps, batch, hidden]`` and the last one; ``x``: ``[steps, batch, hidden]`` (Elman, 1990)."""
    hidden = recurrent.shape[-1]
    others = [
        ("the recurrent weight", recurrent, (hidden, hidden)),
        ("the initial output", initial_h, (*x.shape[1:2], hidden)),
    ]
    functions = _functions("RNN", 1, activations, alphas, betas)
    layer = _layer("RNN", x, recurrent, others, lengths, 1, reverse, functions, clip)
    outputs = layer.state("outputs")
    sums = layer.sums(outputs, recurrent, "sums", lambda v: layer.activated(0, v))
    next_outputs = layer.step(hidden, lambda i: layer.kept(i[0], i[1], sums[i], outputs[_before(i)]), "next_outputs")
    return layer.results(scan(layer.start(initial_h), next_outputs, outputs, name="rnn"))
