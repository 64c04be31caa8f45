"""A template in one file, as ``docs/extending.md`` shows it: stripes of rows, each of which is read once."""

from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config, extent
from tilewright.space.orders import All


def stripes(s: Schedule, config: Config) -> None:
    """For a matrix product that is called ``C``, with loops over rows, columns and the sum."""
    y, x, k = s.get_loops("C")
    yo, yi = s.split(y, config.split("rows", extent(s, y), parts=2, max_factor=8))
    xo, xi = s.split(x, config.split("columns", extent(s, x), parts=2, max_factor=32))
    s.reorder(yo, xo, *config.reorder("order", (k, yi), All()), xi)
    s.vectorize(xi)
    if config.choice("written out", (0, 1)):
        s.unroll(yi)
