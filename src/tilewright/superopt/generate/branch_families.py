"""Small families for deeper enumeration: branches of one value that are joined again.

Four operations and two outputs of a large family are too many; of these few they are thousands.
"""

from tilewright.superopt.generate.families import NORMALIZATION, TASO, TRANSFORMER
from tilewright.superopt.generate.operations import Family, Input, of_name

FILTERS = Family(
    "filters",
    (
        Input("i1", ("n", "c", "h", "w")),
        Input("u1", ("c", "c2", 3, 3), True),
        Input("v1", ("c", "c2", 1, 3), True),
    ),
    (
        of_name(TASO, "Conv"),
        of_name(TASO, "Add"),
        of_name(TASO, "Enlarge"),
        of_name(TASO, "Concat0 of rank 4"),
        of_name(TASO, "Split1.0 of rank 4"),
        of_name(TASO, "Split1.1 of rank 4"),
    ),
    NORMALIZATION.extents,
)
"""Convolutions of one image, whose filters differ in size."""

ADAPTERS = Family(
    "adapters",
    (
        Input("t1", ("b", "m", "k")),
        Input("w1", ("k", "k2"), True),
        Input("w2", ("k", "k2"), True),
        Input("w3", ("k", "k2"), True),
    ),
    (
        of_name(TRANSFORMER, "MatMul"),
        of_name(TRANSFORMER, "Add"),
    ),
    TRANSFORMER.extents,
)
"""Products with a matrix, and with two others after one another."""
