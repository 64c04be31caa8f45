"""The built-in families, with the number of operations and outputs to which each is enumerated."""

from tilewright.superopt.generate.branch_families import ADAPTERS, FILTERS
from tilewright.superopt.generate.families import NORMALIZATION, TASO, TRANSFORMER
from tilewright.superopt.generate.linear_families import PLACES, ROWS

FAMILIES = (TASO, TRANSFORMER, NORMALIZATION, PLACES, ROWS, FILTERS, ADAPTERS)
