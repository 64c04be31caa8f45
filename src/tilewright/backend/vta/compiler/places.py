"""Which buffers of acc share their tiles: where ALU computes in place, a result takes the place of its operand.

And which ones all virtual threads have in one place: those that ALU writes and reads in one go, as compute works for
one thread after another.
"""

from collections.abc import Mapping, Sequence

from tilewright.backend.vta.compiler.elementwise import chain_of
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.memories import memories
from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Block, Buffer, If, Stmt, Store
from tilewright.loops.visit import mentions, seq_items, walk
from tilewright.symbolic.expr import Read


def shared(buffers: Sequence[Buffer], body: Stmt, config: Config) -> Mapping[str, str]:
    """For some of ``buffers``, allocated together around ``body``, another one whose tiles they take.

    A block computes such a buffer, element by element, from the other one, which is used before only, as it is itself
    only afterwards.
    """
    items, found = seq_items(body), dict[str, str]()
    for buffer in buffers:
        users = [position for position, item in enumerate(items) if mentions(item, buffer)]
        if not users or (block := _single_block(items[users[0]])) is None:
            continue
        source = _source(block, buffer, config)
        if source is None or source not in buffers or source.shape != buffer.shape:
            continue
        others = [position for position, item in enumerate(items) if mentions(item, source)]
        if others[-1] == users[0]:
            found[buffer.name] = source.name
    return found


def passing(buffers: Sequence[Buffer], body: Stmt, together: Mapping[str, str], config: Config) -> frozenset[str]:
    """The buffers, of those that have tiles of their own, that are needed by compute, while no other module works.

    ``together``: as ``shared`` says.
    """
    items, own = seq_items(body), [buffer for buffer in buffers if buffer.name not in together]
    is_computed = [_computes(item, config) for item in items]
    found: set[str] = set()
    for buffer in own:
        group = [other for other in buffers if _root(other.name, together) == buffer.name]
        users = [at for at, item in enumerate(items) if any(mentions(item, other) for other in group)]
        if users and all(is_computed[users[0] : users[-1] + 1]):
            found.add(buffer.name)
    return frozenset(found)


def _root(name: str, together: Mapping[str, str]) -> str:
    while name in together:
        name = together[name]
    return name


def _computes(item: Stmt, config: Config) -> bool:
    """Whether compute runs all of ``item``: what writes accumulators, loads to them included."""
    written = (region.buffer for stmt in walk(item) if isinstance(stmt, Block) for region in stmt.writes)
    return all(buffer.memory == memories(config).acc for buffer in written)


def _single_block(item: Stmt) -> Block | None:
    blocks = [stmt for stmt in walk(item) if isinstance(stmt, Block)]
    return blocks[0] if len(blocks) == 1 else None


def _source(block: Block, buffer: Buffer, config: Config) -> Buffer | None:
    """The buffer whose elements a block changes into those of ``buffer``."""
    store = block.body
    while isinstance(store, If) and store.otherwise is None:
        store = store.then
    if block.init is not None or not isinstance(store, Store) or store.buffer != buffer:
        return None
    try:
        chain = chain_of(store.value, config)
    except Unsupported:
        return None
    start, operands = chain.start, [one.operand for one in chain.operations]
    if not isinstance(start, Read) or start.indices != store.indices or not isinstance(start.source, Buffer):
        return None
    again = any(isinstance(operand, Read) and operand.source == start.source for operand in operands)
    return None if again else start.source
