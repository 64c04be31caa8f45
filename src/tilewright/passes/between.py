"""Why a node runs between native parts of a model (``passes.parts``), in words: for reports, and for refusals of what
takes models of one part only.
"""

from dataclasses import dataclass

from tilewright.base.dtypes import CODED, DType, f32, i8, u8
from tilewright.graph import Graph, Node
from tilewright.graph.control import Branch, Repeat
from tilewright.ops.called import CalledOperator, Caller
from tilewright.ops.hosted import VIEW, HostOperator


@dataclass(frozen=True, slots=True)
class Between:
    """A node between parts: the place in the model, why it is there, and what helps."""

    place: str
    reason: str
    remedy: str

    @staticmethod
    def of(node: Node) -> "Between":
        """Of a node of a ``HostOperator``."""
        return Between(node.source, *_reason_and_remedy(node))

    @staticmethod
    def first(graph: Graph) -> "Between | None":
        """That of the first such node of ``graph``; None if it is one native part."""
        return next((Between.of(node) for node in graph.nodes if isinstance(node.op, HostOperator)), None)

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}; {self.remedy}"


def _reason_and_remedy(node: Node) -> tuple[str, str]:
    match node.op:
        case CalledOperator(by=Caller.ACCELERATOR):
            return "an accelerator computes it", "nothing to do"
        case CalledOperator(by=Caller.LIBRARY):
            return "a library computes it", "nothing to do"
        case CalledOperator():
            return (
                f"a Python function computes the operator {node.op.name}",
                "define the operator by te (docs/own-operators.md)",
            )
        case Branch() | Repeat():
            return (
                "which branch is taken, or how many steps there are, is known only when the model runs",
                "make it a constant, if it is always the same",
            )
        case op if op is VIEW:
            return _of_view(node)
        case _:
            return (
                "sizes are known only when a part of the model has run",
                "give constants in the place of what is computed, if it is one",
            )


def _of_view(node: Node) -> tuple[str, str]:
    given, made = node.inputs[0], node.outputs[0]
    assert given is not None, "a view is one of something"
    if given.dtype in CODED:
        return (
            f"its elements are {given.dtype}, which native code has as codes",
            f"make it {_wide(given.dtype)} in the model, and convert the data before",
        )
    if made.dtype in CODED:
        return (
            f"its elements are {made.dtype}, which native code has as codes",
            f"make it {_wide(made.dtype)} in the model, and convert the results after",
        )
    return (
        "the same bytes are elements of another type, which no kernel computes",
        "convert numbers by a Cast, if their bits do not matter",
    )


def _wide(narrow: DType) -> DType:
    """A type with native code that has all numbers of ``narrow``."""
    if not narrow.is_int:
        return f32
    return i8 if narrow.is_signed else u8
