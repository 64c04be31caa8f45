"""How many vector registers blocks of channels fill: several, where products of a matrix unit read whole rows of them.

A row of such a unit's tiles holds more numbers than a vector register has words: twice as many of bfloat16, four times
as many bytes. Where bytes are put together along their channels, all have blocks of one width that divides the places
where one ends and the next begins: else each would be copied.
"""

from collections.abc import Iterator, Sequence
from math import gcd

from tilewright.base.dtypes import i8, u8
from tilewright.graph import Graph, Node
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.passes.blocks import Blocks, register_of
from tilewright.passes.precision import Narrow
from tilewright.target.target import Target

_PAIR, _BYTES = 2, 4
"""Numbers of a type in a word."""
_CONCAT = require("Concat")
_SUMS_OF_BYTES = frozenset(
    map(
        require,
        (
            "QuantizedConv",
            "ConvInteger",
            "BlockedDotConvolution",
            "PlaceDotConvolution",
            "DotConvolution",
            "PixelRowConv",
            "ChannelConvolution",
        ),
    )
)


def blocks_of(graph: Graph, narrow: Narrow, target: Target) -> Blocks:
    """The blocks of the values of ``graph``."""
    if narrow.dtype is not None:
        return Blocks(target, 1 if tile_unit(target, narrow.dtype, narrow.dtype) is None else _PAIR)
    if tile_unit(target, u8, i8) is None or not any(node.op in _SUMS_OF_BYTES for node in graph.nodes):
        return Blocks(target)
    return Blocks(target, _BYTES, dict(_fewer(graph.nodes, target)))


def _fewer(nodes: Sequence[Node], target: Target) -> Iterator[tuple[int, int]]:
    """Numbers of registers that values fill which are put together, and the most registers of a block of each."""
    sets: list[tuple[set[int], int]] = []
    for node in nodes:
        sizes = _registers_put_together(node, target)
        joined, divisor = set(sizes), gcd(*sizes)
        if divisor < _PAIR:
            continue  # blocks of one register would be worse than copies
        for others, other in [entry for entry in sets if entry[0] & joined]:
            sets.remove((others, other))
            joined, divisor = joined | others, gcd(divisor, other)
        sets.append((joined, divisor))
    for joined, divisor in sets:
        most = next(count for count in (_BYTES, _PAIR, 1) if divisor % count == 0)
        yield from ((size, most) for size in joined)


def _registers_put_together(node: Node, target: Target) -> Sequence[int]:
    """Registers that the channels of each operand and of the result fill; none if ``node`` does not put whole registers
    of channels together."""
    result = node.outputs[0]
    if node.op != _CONCAT or dict(node.attributes).get("axis") != 1 or len(result.shape) < 3:
        return ()
    channels = [static(value.shape[1:2]) for value in (*node.inputs, result) if value is not None]
    lanes = register_of(result, target)
    known = [own[0] for own in channels if own is not None]
    return (
        [count // lanes for count in known]
        if len(known) == len(channels) and not any(count % lanes for count in known)
        else ()
    )
