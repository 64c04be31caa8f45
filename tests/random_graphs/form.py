"""What overrides of the reference evaluator are given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.random_graphs.case import Attribute


@dataclass(frozen=True)
class Form:
    """What a node says besides its operands."""

    op_type: str
    opset: int
    attributes: Mapping[str, Attribute]
    outputs: int

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        return list(self.attributes.get(name) or default)

    def get(self, name: str, default: float) -> float:
        return self.attributes.get(name, default)
