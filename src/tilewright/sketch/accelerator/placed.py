"""Each buffer in its memory: what all sketches of a program begin with.

Factors of products go to inp and wgt, everything else to acc; what blocks read of device memory is copied first; the
result is computed on acc, and then stored.
"""

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.memories import memories
from tilewright.backend.vta.schedules.roles import copied, factors_of, fetches, parameters_read
from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Block
from tilewright.loops.memory import Memory
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks, buffers_written

_LEAST_DIMENSIONS = 3
"""Of a result: positions of tiles, and those of a tile's elements."""


def placed(naive: Program, config: Config) -> Schedule:
    """A schedule of ``naive`` with memories. Raises ``Unsupported`` for several results, and one of a single tile."""
    if len(naive.results) != 1:
        raise Unsupported(f"{naive.name} has {len(naive.results)} results; give each a program of its own")
    if len(naive.results[0].shape) < _LEAST_DIMENSIONS:
        raise Unsupported(f"{naive.results[0].name} is one tile: give it a dimension of tiles, of extent 1")
    s, on_chip = Schedule(naive), memories(config)
    last = _last(s.program)
    stored = copied(last)
    if stored is None or stored.source in naive.params:
        s.cache_write(last.name, last.writes[0].buffer.name, on_chip.acc)
    last = _last(s.program)
    blocks = [block for block in all_blocks(s.program.body) if block.name != last.name]
    scopes = _factors(blocks, config)
    for block in blocks:
        written = block.writes[0].buffer.name
        if fetches(block, s.program.params):
            s.set_scope(written, scopes.get(written, on_chip.acc))
            continue
        s.set_scope(written, on_chip.acc)
        own = _factors([block], config)
        for buffer in parameters_read(block, s.program):
            s.cache_read([block.name], buffer.name, own.get(buffer.name, on_chip.acc))
    return s


def _last(program: Program) -> Block:
    """The block of the result."""
    return next(b for b in all_blocks(program.body) if program.results[0] in buffers_written(b))


def _factors(blocks: list[Block], config: Config) -> dict[str, Memory]:
    """The memories of the factors of products, by buffer. Raises ``Unsupported`` for one that is in both."""
    on_chip, found = memories(config), dict[str, Memory]()
    for block in blocks:
        factors = factors_of(block)
        for factor, memory in zip(factors or (), (on_chip.inp, on_chip.wgt), strict=False):
            if found.setdefault(factor.source.name, memory) != memory:
                raise Unsupported(f"{factor.source.name} is data of one product and weights of another: copy it twice")
    return found
