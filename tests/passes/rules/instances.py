"""Graphs that are the sources of a rule, at random extents."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import f32
from tilewright.base.errors import BadProgram
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.passes.rules import Apply, Number, Rule, Term, Variable
from tilewright.passes.rules.binding import spliced
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Expr, const
from tilewright.symbolic.simplify import prove
from tilewright.symbolic.traversal import substitute

Array = NDArray[np.generic]
ATTEMPTS = 3000


def instance(rule: Rule, seed: int) -> Graph:
    """A graph whose outputs are the sources of ``rule``: the first extents by chance at which both sides fit."""
    random = np.random.default_rng(seed)
    for _ in range(ATTEMPTS):
        try:
            return _Instance(rule, random).graph()
        except BadProgram:
            continue
    raise AssertionError(f"{rule.name} has no instance")


def feeds_of(graph: Graph, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {v.name: _elements(v, random) for v in graph.inputs}


def _elements(value: Value, random: np.random.Generator) -> Array:
    return random.uniform(0.5, 1.5, [int(str(extent)) for extent in value.shape]).astype(np.float32)


class _Instance:
    def __init__(self, rule: Rule, random: np.random.Generator) -> None:
        self.rule = rule
        self.random = random
        self.symbols = {s: const(int(random.integers(1, 4))) for s in sorted(rule.symbols, key=lambda s: s.name)}
        self.leading: dict[str, tuple[Expr, ...]] = {}
        self.rests: dict[str, Mapping[str, Attribute]] = {}
        self.values: dict[Term, Value] = {}
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.inputs: list[Value] = []

    def graph(self) -> Graph:
        for need in self.rule.needs:
            if not prove(substitute(need, self.symbols), Bounds()):
                raise BadProgram("what the rule needs does not hold")
        outputs = tuple(map(self.value, self.rule.sources))
        graph = Graph("instance", tuple(self.inputs), outputs, tuple(self.nodes), dict(self.constants))
        if [v.shape for v in map(self.value, self.rule.targets)] != [v.shape for v in outputs]:
            raise BadProgram("the targets have other shapes")
        return graph

    def value(self, term: Term) -> Value:
        if term not in self.values:
            self.values[term] = self._made(term)
        return self.values[term]

    def _made(self, term: Term) -> Value:
        match term:
            case Variable(name, shape, leading, is_weight):
                first = () if leading is None else self.leading.setdefault(leading, self._leading())
                made = Value(name, f32, (*first, *(substitute(extent, self.symbols) for extent in shape)))
                if is_weight:
                    self.constants[made] = _elements(made, self.random)
                else:
                    self.inputs.append(made)
                return made
            case Number(value):
                made = Value(f"number{len(self.constants)}", f32, ())
                self.constants[made] = np.asarray(value, np.float32)
                return made
            case Apply():
                return self._applied(term)

    def _leading(self) -> tuple[Expr, ...]:
        return tuple(map(const, self.random.integers(1, 3, self.random.integers(0, 3)).tolist()))

    def _applied(self, term: Apply) -> Value:
        assert not term.output, "no rule here is about a second result"
        operands = [self.value(operand) for operand in term.operands]
        written = {name: self._attribute(value) for name, value in term.attributes}
        if term.rest is not None and term.rest not in self.rests:
            unwritten = self._rest(term.op.name, operands)
            self.rests[term.rest] = {name: value for name, value in unwritten.items() if name not in written}
        rest = {} if term.rest is None else self.rests[term.rest]
        node = make_node(term.op, operands, [f"v{len(self.nodes)}"], {**rest, **written}, f"node{len(self.nodes)}")
        self.nodes.append(node)
        return node.outputs[0]

    def _attribute(self, value: Attribute) -> Attribute:
        if isinstance(value, tuple):
            return tuple(self._attribute(part) for part in spliced(value, self.leading))  # type: ignore[return-value]
        return int(str(substitute(value, self.symbols))) if isinstance(value, Expr) else value

    def _rest(self, op: str, operands: list[Value]) -> Mapping[str, Attribute]:
        """Attributes that the rule does not name: some that the operator may have."""
        rank = len(operands[0].shape) - 2
        shape = [int(str(extent)) for extent in operands[0].shape]
        match op:
            case "Conv":
                strides = tuple(self.random.integers(1, 3, rank).tolist())
                return {"strides": strides, "pads": tuple(self.random.integers(0, 2, 2 * rank).tolist())}
            case "AveragePool":
                kernel = tuple(self.random.integers(1, 3, rank).tolist())
                return {"kernel_shape": kernel, "strides": (2,) * rank, "pads": (1,) * (2 * rank)}
            case "MaxPool":
                return {"kernel_shape": tuple(self.random.integers(1, 3, rank).tolist()), "strides": (2,) * rank}
            case "PhaseConv":
                filters = [int(str(extent)) for extent in operands[1].shape]
                strides, taps = filters[1 : rank + 1], filters[rank + 2 :]
                kernel = [s * t for s, t in zip(strides, taps, strict=True)]
                spatial = [(n - 1) * s + k for n, s, k in zip(shape[2:], strides, kernel, strict=True)]
                ones, zeros = (1,) * rank, (0,) * rank
                return {"kernel": tuple(kernel), "dilations": ones, "begins": zeros, "spatial": tuple(spatial)}
            case "BatchNormalization":
                return {"epsilon": 0.25}
            case "Gemm":
                return {"alpha": 0.5}
            case _:
                return {}
