"""A random case from a seed: one node after the other, each evaluated as it is added."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

from tests.random_graphs.case import Array, Case, Node, pruned, single_node
from tests.random_graphs.draw import MAX_ELEMENTS, Draw, NoDType, Source, Value, schema
from tests.random_graphs.onnx_runtime import load
from tests.random_graphs.reference import Estimate, NotEvaluated, evaluate_node
from tests.random_graphs.rules import FAMILIES, RULES, WEIGHTS
from tilewright.frontend.onnx.read.rules import RULES as KNOWN

OPSETS = (9, 11, 13, 16, 17, 18, 19, 20, 21, 21, 21, 22, 23, 24)
"""Which ones are drawn; the newest that ONNX Runtime reads is the last."""

SMALL = 1000
"""Seeds below this one make graphs of 3 to 5 nodes, so that a thousand of them are quick; others of 3 to 15."""

LARGEST = {2: 200.0, 4: 1e4, 8: 1e4}
"""Results beyond these (by bytes of the float) are refused, as the next operator might overflow."""

ATTEMPTS = 40

BY_ZEROS = frozenset({"DFT", "STFT"})
"""What Tilewright computes by products with zeros that the definition does not have: not of infinities and NaN."""


def generate(seed: int) -> Case:
    """The case of this seed."""
    random = np.random.default_rng([seed, 20])
    opset = OPSETS[int(random.integers(len(OPSETS)))]
    least, most = (3, 5) if seed < SMALL else (3, 15)
    count = int(random.integers(least, most + 1))
    if seed >= SMALL:
        count = min(count, *(int(c) for c in random.integers(least, most + 1, 2)))  # often few: large ones take long
    growing = Growing(random, opset, special=bool(random.random() < 0.12))
    for _ in range(ATTEMPTS * count):
        if len(growing.nodes) == count:
            break
        growing.attempt(str(random.choice(operators(opset), p=_probabilities(opset))))
    return growing.case(f"seed {seed}", threads=1 + seed % 2, checked=_is_checked(seed))


def _is_checked(seed: int) -> bool:
    """Half of the graphs have bounds checks; of those that are to be quick, a quarter, as checked code takes long."""
    return seed // 2 % (4 if seed < SMALL else 2) == 1


@cache
def operators(opset: int) -> tuple[str, ...]:
    """The operators that have a rule of generation, are known to the importer, and are in the opset."""
    return tuple(name for name in RULES if _is_known(name, opset))


def _is_known(op_type: str, opset: int) -> bool:
    """By a rule of the importer, or as a function."""
    found = schema(op_type, opset)
    return found is not None and (op_type in KNOWN or found.has_function or found.has_context_dependent_function)


@cache
def _probabilities(opset: int) -> Array:
    there = operators(opset)
    weights = np.zeros(len(there))
    for family, rules in FAMILIES.items():
        members = [position for position, name in enumerate(there) if name in rules]
        weights[members] = WEIGHTS[family] / max(len(members), 1)
    return weights / weights.sum()


class Growing:
    """A graph that grows. ``refused``: why proposals were not taken, by operator."""

    def __init__(self, random: np.random.Generator, opset: int, *, special: bool = False) -> None:
        self._random = random
        self._opset = opset
        self._special = special
        self._values: list[Value] = []
        self._named = 0
        self.nodes: list[Node] = []
        self.refused: Counter[str] = Counter()

    def can_draw(self, op_type: str) -> bool:
        """Whether the opset has the operator."""
        return schema(op_type, self._opset) is not None

    def attempt(self, op_type: str) -> bool:
        """Whether a node of this operator was added."""
        if self._special and op_type in BY_ZEROS:
            return self._refuse(op_type, "infinities")
        pool = [value for value in self._values if value.source is not Source.PARAMETER]
        draw = Draw(self._random, op_type, self._opset, pool, special=self._special, first=self._named)
        try:
            proposal = RULES[op_type](draw)
        except NoDType:
            proposal = None
        if proposal is None:
            return self._refuse(op_type, "no proposal")
        inputs = _without_tail(proposal.inputs)
        first = self._named + len(draw.made)
        names = tuple(f"{Source.NODE.value}{first + position}" for position in range(proposal.outputs))
        node = Node(op_type, tuple("" if v is None else v.name for v in inputs), names, proposal.attributes)
        operands = {value.name: value for value in inputs if value is not None}
        parameters = {n: v.estimate.exact for n, v in operands.items() if v.source is Source.PARAMETER}
        estimates = {name: value.estimate for name, value in operands.items()}
        if not has_kernel(node, estimates, self._opset):
            return self._refuse(op_type, "no kernel in ONNX Runtime")
        try:
            results = evaluate_node(node, estimates, parameters, self._opset, len(self.nodes))
        except NotEvaluated as error:
            return self._refuse(op_type, str(error))
        for estimate in results.values():
            reason = self._objection(estimate)
            if reason:
                return self._refuse(op_type, reason)
        self._named = first + proposal.outputs
        self._values += [value for value in draw.made if value.name in operands]
        self._values += [Value(name, Source.NODE, estimate) for name, estimate in results.items()]
        self.nodes.append(node)
        return True

    def _refuse(self, op_type: str, reason: str) -> bool:
        self.refused[f"{op_type}: {reason[:200]}"] += 1
        return False

    def _objection(self, found: Estimate) -> str | None:
        """Why a result is not wanted: rounding decides too much of it, or it is too large."""
        exact = found.exact
        if exact.size > 2 * MAX_ELEMENTS:
            return "large"
        if not found.is_float:
            return "unstable" if found.unstable().any() else None
        finite = np.isfinite(exact)
        if not self._special and not finite.all():
            return "not finite"
        size = np.abs(exact[finite]).max(initial=0.0)
        if self._special:
            return None
        if size > LARGEST[found.dtype.itemsize]:
            return "large elements"
        slack = {2: 0.2, 4: 1e-3, 8: 1e-8}[found.dtype.itemsize]
        return "ill-conditioned" if found.budget().max(initial=0.0) > slack * max(size, 1e-3) else None

    def case(self, name: str, *, threads: int, checked: bool) -> Case:
        """What has grown. Outputs: what nothing reads, and some of the rest."""
        read = {operand for node in self.nodes for operand in node.inputs}
        made = [name for node in self.nodes for name in node.outputs]
        outputs = tuple(name for name in made if name not in read or self._random.random() < 0.15)
        arrays = {
            source: {v.name: v.elements for v in self._values if v.source is source and v.elements is not None}
            for source in (Source.INPUT, Source.CONSTANT, Source.PARAMETER)
        }
        whole = Case(
            name, self._opset, tuple(self.nodes), arrays[Source.INPUT], arrays[Source.CONSTANT],
            arrays[Source.PARAMETER], outputs, threads, checked,
        )  # fmt: skip
        return pruned(whole)


def _without_tail(inputs: Sequence[Value | None]) -> list[Value | None]:
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


_KERNELS: dict[object, bool] = {}


def has_kernel(node: Node, operands: dict[str, Estimate], opset: int) -> bool:
    """Whether ONNX Runtime has a kernel for the operator with operands of these dtypes, and takes the node."""
    kinds = tuple(str(operands[name].dtype) if name else "" for name in node.inputs)
    key = (node.op_type, opset, kinds, len(node.outputs), node.attributes.get("to"))
    if key not in _KERNELS:
        plain = {name: np.zeros(value.exact.shape, value.dtype) for name, value in operands.items()}
        try:
            load(single_node(node, plain, opset))
        except Exception as error:  # noqa: BLE001  its own kinds of errors have no common base
            if "NOT_IMPLEMENTED" not in str(error):
                return False  # this node is wrong, not all of its kind
            _KERNELS[key] = False
        else:
            _KERNELS[key] = True
    return _KERNELS[key]
