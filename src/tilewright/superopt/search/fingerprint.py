"""Hashes of graphs that do not depend on the names of values.

Two graphs over the same inputs and constants have equal fingerprints if their outputs are the same terms: names of
intermediate values, the order of nodes and dead code do not matter.
"""

from hashlib import blake2b

from tilewright.graph import Graph, Node
from tilewright.ops import Attribute

_SIZE = 16
"""Bytes of a fingerprint: among a billion graphs, a collision has probability 1e-20."""


def fingerprint(graph: Graph) -> bytes:
    """The hash of the terms of the outputs of ``graph``."""
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
    """An attribute as text that distinguishes ``1``, ``1.0`` and ``True``."""
    return f"{type(value).__name__} {value!r}"


def _digest(*parts: str | bytes) -> bytes:
    total = blake2b(digest_size=_SIZE)
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        total.update(len(encoded).to_bytes(8, "little"))
        total.update(encoded)
    return total.digest()
