"""The built-in families. Those of branches are small enough to be enumerated one operation deeper."""

from tilewright.superopt.generate.branch_families import ADAPTERS, FILTERS
from tilewright.superopt.generate.families import NORMALIZATION, TASO, TRANSFORMER
from tilewright.superopt.generate.linear_families import PLACES, ROWS
from tilewright.superopt.generate.order_families import EXTREMA

FAMILIES = (TASO, TRANSFORMER, NORMALIZATION, PLACES, ROWS, FILTERS, ADAPTERS, EXTREMA)
