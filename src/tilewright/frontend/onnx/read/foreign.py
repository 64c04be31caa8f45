"""Operators of other domains than ONNX's, defined by a user or a package.

    swish2 = Operator("my.domain.Swish2", function, FusionKind.INJECTIVE, Trait.ELEMENTWISE)
    SWISH2 = OnnxOperator("my.domain", "Swish2", Rule(swish2, {"beta": "beta"}))

They are passed when a model is opened, and valid for that model only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from tilewright.base.errors import InvalidModel, TilewrightError, UnsupportedModel, UnsupportedOperator
from tilewright.base.names import nearest, readable
from tilewright.base.plugins import installed
from tilewright.frontend.onnx.read.protos import own_domain
from tilewright.frontend.onnx.read.rules import RULES, Request, Rule, RuleFunction
from tilewright.graph import Value
from tilewright.ops import Operator, find

GROUP = "tilewright.operators"
"""Group of entry points."""
_INTERNAL = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of operators that ONNX Runtime chooses for the processor at hand."""


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """An operator of ONNX models: its name there, and the rule that translates its nodes.

    ``since``: the first version of the domain for ``rule``; of several, the latest one not above the model's version is
    used. It takes precedence over a function of that name in the model.
    """

    domain: str
    name: str
    rule: RuleFunction
    since: int = 1

    def __call__(self, request: Request) -> Sequence[Value]:
        """The node's results. Raises ``UnsupportedModel`` if the rule fails."""
        try:
            results = self.rule(request)
        except TilewrightError:
            raise
        except Exception as error:
            text = f"what was given for the operator {self} raised {type(error).__name__}: {error}"
            raise request.unsupported(f"{text}; correct it, or leave it out") from error
        if len(results) != request.outputs:
            raise request.unsupported(f"what was given for {self} makes {len(results)} values, not {request.outputs}")
        return results

    def __str__(self) -> str:
        return f"{self.domain}::{self.name}"


def installed_operators() -> tuple[OnnxOperator, ...]:
    """The operators of installed packages."""
    return tuple(installed(GROUP, OnnxOperator).values())


def chosen(operators: Iterable[OnnxOperator], domain: str, name: str, version: int) -> OnnxOperator | None:
    """The operator of a node; of several, the first."""
    fitting = [one for one in operators if (own_domain(one.domain), one.name) == (domain, name)]
    return max((one for one in fitting if one.since <= version), key=lambda one: one.since, default=None)


def found(operator: str | Operator, place: str) -> Operator:
    """The operator itself, or that of ``ops`` with this name.

    Raises ``UnsupportedModel`` for a user's operator with the name of one of ``ops``; use a dot in its name.
    """
    known = find(operator if isinstance(operator, str) else operator.name)
    if isinstance(operator, str):
        assert known is not None, f"the rules name {operator}, which is no operator"
        return known
    if operator != known and "." not in operator.name:
        better = f"my_package.{operator.name}"
        raise UnsupportedModel(f"{place}: the operator {readable(operator.name)} needs a name with a dot, as {better}")
    return operator


def operator_of(given: OnnxOperator) -> Operator | None:
    """The operator that a node becomes, if ``given`` defines it."""
    rule = given.rule
    return rule.operator if isinstance(rule, Rule) and isinstance(rule.operator, Operator) else None


def unsupported(node: onnx.NodeProto, place: str) -> UnsupportedOperator:
    """The error for an operator that is not known."""
    domain = own_domain(node.domain)
    if domain in _INTERNAL:
        saved = "save the optimized model with the level ORT_ENABLE_EXTENDED, or without optimizations"
        of_one_kind = "is for ONNX Runtime on one kind of processors only"
        return UnsupportedOperator(f"{place}: {readable(domain)} {of_one_kind}; {saved}")
    if domain:
        name = f"{readable(domain)}::{readable(node.op_type)}"
        ways = "define it in Python and give it by operators= or --operators MODULE:NAME (docs/own-operators.md)"
        text = f"there is no definition of the operator {name}; {ways}, or export with ONNX's own operators"
        return UnsupportedOperator(f"{place}: {text}")
    near = nearest(node.op_type, RULES)
    if onnx.defs.has(node.op_type):
        hint = (
            "express it by others, or put it in a domain of your own and give it by operators= (docs/own-operators.md)"
        )
    else:
        hint = f"did you mean {' or '.join(near)}?" if near else "ONNX has no operator of that name"
    return UnsupportedOperator(f"{place}: operator {readable(node.op_type)} is not supported; {hint}")


def not_imported(
    node: onnx.NodeProto, place: str, operators: Sequence[OnnxOperator]
) -> InvalidModel | UnsupportedOperator:
    """The error for a node of a domain that the model does not import; ``operators``: of other domains."""
    domain = own_domain(node.domain)
    if not domain:
        return InvalidModel(f"{place}: the model does not say which ONNX opset it uses; add it to opset_import")
    if chosen(operators, domain, node.op_type, 1 << 30) is None:
        return unsupported(node, place)
    named = readable(domain)
    return InvalidModel(f"{place}: opset_import does not say which version of the domain {named} it uses; add it")
