"""The known alternatives: built in, installed and given."""

from collections.abc import Sequence

from tilewright.base.numerics import Math, Precision
from tilewright.base.plugins import installed
from tilewright.graph import Graph, Node
from tilewright.ops.operator import require
from tilewright.passes.alternatives.api import Alternative, Facts
from tilewright.passes.alternatives.attention import IN_BLOCKS, IN_TILES, WITH_SCORES
from tilewright.passes.alternatives.axis_by_axis import AXIS_BY_AXIS
from tilewright.passes.alternatives.byte_rows import BYTE_ROWS
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.alternatives.filtering_of_words import FILTERING_OF_WORDS
from tilewright.passes.alternatives.flat_positions import FLAT_POSITIONS
from tilewright.passes.alternatives.gathered_taps import GATHERED_TAPS
from tilewright.passes.alternatives.group_by_group import GROUP_BY_GROUP
from tilewright.passes.alternatives.inside_taps import INSIDE_TAPS
from tilewright.passes.alternatives.integer_products import IN_CHANNELS, IN_GROUPS, IN_REALS, IN_WORDS
from tilewright.passes.alternatives.joined_groups import JOINED_GROUPS
from tilewright.passes.alternatives.minimal_filtering import F2, F3, F4
from tilewright.passes.alternatives.phases import INTERLEAVED_PHASES, SEPARATE_PHASES
from tilewright.passes.alternatives.places_in_rows import BYTE_PLACES_IN_ROWS, PLACES_IN_ROWS
from tilewright.passes.alternatives.quantized_products import DEQUANTIZED, SCALED
from tilewright.passes.alternatives.tap_products import TAP_PRODUCTS
from tilewright.passes.alternatives.taps_in_rows import TAPS_IN_ROWS
from tilewright.passes.alternatives.weight_products import IN_DIGITS, IN_FLOATS
from tilewright.passes.alternatives.whole_channels import WHOLE_CHANNELS
from tilewright.passes.block_widths import blocks_of
from tilewright.passes.precision import narrow
from tilewright.target.target import Target

BUILT_IN: tuple[Alternative, ...] = (
    *(FLAT_POSITIONS, DIRECT, INSIDE_TAPS, GROUP_BY_GROUP, AXIS_BY_AXIS),
    *(TAPS_IN_ROWS, PLACES_IN_ROWS, BYTE_PLACES_IN_ROWS, BYTE_ROWS),
    *(WHOLE_CHANNELS, JOINED_GROUPS, GATHERED_TAPS),
    *(INTERLEAVED_PHASES, SEPARATE_PHASES, TAP_PRODUCTS, F2, F3, F4, FILTERING_OF_WORDS),
    *(IN_GROUPS, IN_CHANNELS, IN_REALS, IN_WORDS, SCALED, DEQUANTIZED),
    *(IN_DIGITS, IN_FLOATS, WITH_SCORES, IN_BLOCKS, IN_TILES),
)
"""Equally cheap ones are preferred in this order."""

GROUP = "tilewright.alternatives"
"""Group of entry points, in which installed packages name their alternatives."""


def known(given: Sequence[Alternative] = ()) -> tuple[Alternative, ...]:
    """The built-in alternatives, those of installed packages, and those ``given``.

    Each replaces earlier ones of the same name.
    """
    every = (*BUILT_IN, *installed(GROUP, Alternative).values(), *given)
    return tuple({alternative.name: alternative for alternative in every}.values())


def facts_of(
    graph: Graph,
    target: Target,
    math: Math = Math.DEFAULT,
    alternatives: Sequence[Alternative] = BUILT_IN,
    precision: Precision = Precision.FP32,
) -> Facts:
    """The context of the nodes of ``graph``."""
    stored, casts = narrow(graph, precision, target), [node for node in graph.nodes if node.op == _CAST]
    cut_off = frozenset(v for node in casts for v in node.inputs if v and v.dtype.is_float and not _is_float(node))
    wide = blocks_of(graph, stored, target)
    given, outside = (graph.constants, graph.names(), target, math, alternatives, stored), graph.inputs + graph.outputs
    return Facts(*given, cut_off=cut_off, outside=frozenset(outside), wide=wide)


_CAST = require("Cast")


def _is_float(node: Node) -> bool:
    return node.outputs[0].dtype.is_float
