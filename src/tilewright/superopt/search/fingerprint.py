"""Fingerprints of graphs, which do not depend on the names of values.

Two graphs over the same inputs and constants have one fingerprint if their outputs are the same terms: names of values
in between, the order of nodes, and nodes that nobody reads make no difference.
"""

from hashlib import blake2b

from tilewright.graph import Graph, Node
from tilewright.ops import Attribute

_SIZE = 16
"""Bytes: of a billion graphs, two are taken for one with a probability of 1e-20."""


def fingerprint(graph: Graph) -> bytes:
    """The digest of the terms that the outputs of ``graph`` are."""
    digests = {value.name: _digest("given", repr(value)) for value in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        made = _of_node(node, digests)
        digests.update((value.name, _digest(str(number), made)) for number, value in enumerate(node.outputs))
    return _digest(*(digests[value.name] for value in graph.outputs))


def _of_node(node: Node, digests: dict[str, bytes]) -> bytes:
    operands = [b"" if value is None else digests[value.name] for value in node.inputs]
    written = sorted(f"{name}={described(value)}" for name, value in node.attributes)
    return _digest(node.op.name, *written, *operands)


def described(value: Attribute) -> str:
    """An attribute as text that tells ``1`` from ``1.0`` and ``True``."""
    return f"{type(value).__name__} {value!r}"


def _digest(*parts: str | bytes) -> bytes:
    total = blake2b(digest_size=_SIZE)
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        total.update(len(encoded).to_bytes(8, "little"))
        total.update(encoded)
    return total.digest()
