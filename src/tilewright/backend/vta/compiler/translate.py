"""From a scheduled loop program to a program of the accelerator: the walk.

Loops run here, once for each instruction; the innermost serial ones around a block are the instruction's own. Unrolled
loops are not: each of their iterations has instructions of its own. An ``Alloc`` takes tiles of its memory until its
body ends. The iterations of a loop over virtual threads have allocations side by side, and what they do is interleaved
(``recording``). What ALU only needs in passing is at the end of its memory, in one place for all of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.backend.vta.compiler.actions import Action, action_of
from tilewright.backend.vta.compiler.easing import eased
from tilewright.backend.vta.compiler.forms import Env, constant, extents, no_data
from tilewright.backend.vta.compiler.places import passing, shared
from tilewright.backend.vta.compiler.recording import Recorded, interleaved, ordered
from tilewright.backend.vta.compiler.site import Site
from tilewright.backend.vta.compiler.tiles import tiles_of
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.memories import memories
from tilewright.backend.vta.program import Operand, Program
from tilewright.base.errors import BadProgram, Unsupported
from tilewright.loops.ir import Alloc, Block, Buffer, If, Loop, LoopKind, Seq, Stmt
from tilewright.loops.printer import format_stmt
from tilewright.loops.program import Program as LoopProgram
from tilewright.loops.scalars import int_evaluator
from tilewright.loops.visit import allocations, perfect_nest, walk


def translated(program: LoopProgram, config: Config) -> Program:
    """The program of the accelerator that computes what ``program`` does; its operands have the parameters' names.

    Raises ``Unsupported``, with the block, for what the accelerator can't do; ``BadProgram`` for buffers that do not
    fit its memories.
    """
    walk = _Walk(program, config)
    steps = ordered(eased(list(walk.visit(program.body, {}, ())), config), config)
    return Program(config, tuple(walk.operands[p.name] for p in program.params if p.name in walk.operands), steps)


def recorded(program: LoopProgram, config: Config, operands: Mapping[str, Operand]) -> Sequence[Recorded]:
    """The steps of a program that is a part of a larger one, without tokens (``recording.ordered``).

    ``operands``: what its parameters are there. Raises as ``translated``.
    """
    walk = _Walk(program, config, dict(operands))
    return eased(list(walk.visit(program.body, {}, ())), config)


@dataclass(frozen=True, slots=True)
class _Nest:
    """A block that is prepared."""

    action: Action
    own: Mapping[str, int]
    """The loops that may be an instruction's own, and their extents."""


@dataclass(slots=True)
class _Walk:
    program: LoopProgram
    config: Config
    operands: dict[str, Operand] = field(default_factory=dict[str, Operand])
    bases: dict[str, int] = field(default_factory=dict[str, int])
    tops: dict[Scratchpad, int] = field(default_factory=dict[Scratchpad, int])
    """The first free tile of each memory."""
    highest: dict[Scratchpad, int] = field(default_factory=dict[Scratchpad, int])
    """The end of the tiles that were taken since a virtual thread began."""
    ends: dict[Scratchpad, int] = field(default_factory=dict[Scratchpad, int])
    """Where tiles begin that are taken in passing."""
    peaks: dict[Scratchpad, int] = field(default_factory=dict[Scratchpad, int])
    """How many tiles were taken at most, of each memory; and in ``passed`` how many of them in passing."""
    passed: dict[Scratchpad, int] = field(default_factory=dict[Scratchpad, int])
    nests: dict[int, _Nest] = field(default_factory=dict[int, _Nest])
    depths: dict[str, int] = field(default_factory=dict[str, int])
    """How many loops are around each buffer's allocation."""
    places: dict[int, tuple[Mapping[str, str], frozenset[str]]] = field(
        default_factory=dict[int, tuple[Mapping[str, str], frozenset[str]]]
    )
    """Which buffers share their tiles, and which ones take them in passing, for each place of allocation."""
    writers: Counter[str] = field(init=False)
    """How many blocks write each buffer."""

    def __post_init__(self) -> None:
        blocks = (stmt for stmt in walk(self.program.body) if isinstance(stmt, Block))
        self.writers = Counter(name for block in blocks for name in {region.buffer.name for region in block.writes})

    def visit(self, stmt: Stmt, env: Env, around: Sequence[Loop]) -> Iterator[Recorded]:
        """The steps of ``stmt``."""
        match stmt:
            case Seq(statements):
                for inner in statements:
                    yield from self.visit(inner, env, around)
            case Alloc():
                yield from self._allocated(stmt, env, around)
            case Loop():
                yield from self._loop(stmt, env, around)
            case If(condition, then, otherwise):
                chosen = then if int_evaluator(condition, no_data)(env) else otherwise
                if chosen is not None:
                    yield from self.visit(chosen, env, around)
            case Block():
                yield from self._block(stmt, env, around, {})
            case _:
                raise Unsupported(f"`{type(stmt).__name__}` outside of a block: the accelerator runs blocks only")

    # Loops ------------------------------------------------------------------------------------------------------------

    def _loop(self, loop: Loop, env: Env, around: Sequence[Loop]) -> Iterator[Recorded]:
        inside = perfect_nest(loop)
        block = inside[-1].body
        if isinstance(block, Block):
            nest = self._nest(block, (*around, *inside))
            if loop.var.name in nest.own:
                yield from self._block(
                    block, env, (*around, *inside), {v.var.name: nest.own[v.var.name] for v in inside}
                )
                return
        count = constant(loop.extent, f"`{loop.var}` has the extent")
        if loop.kind is LoopKind.VIRTUAL_THREAD:
            yield from self._threads(loop, count, env, around)
            return
        for value in range(count):
            yield from self.visit(loop.body, {**env, loop.var.name: value}, (*around, loop))

    def _threads(self, loop: Loop, count: int, env: Env, around: Sequence[Loop]) -> Iterator[Recorded]:
        before, highest = dict(self.tops), dict(self.highest)
        streams: list[list[Recorded]] = []
        for value in range(count):
            self.highest = dict(self.tops)
            streams.append([*self.visit(loop.body, {**env, loop.var.name: value}, (*around, loop))])
            self.tops = dict(self.highest)
        self.highest = {pad: max(top, highest.get(pad, 0)) for pad, top in self.tops.items()}
        self.tops = before
        yield from interleaved(streams)

    # Blocks -----------------------------------------------------------------------------------------------------------

    def _block(self, block: Block, env: Env, around: Sequence[Loop], own: Mapping[str, int]) -> Iterator[Recorded]:
        nest = self._nest(block, around)
        try:
            yield from nest.action.steps(own, env, self.bases)
        except Unsupported as error:
            raise self._refusal(block, str(error)) from error

    def _nest(self, block: Block, around: Sequence[Loop]) -> _Nest:
        if id(block) not in self.nests:
            try:
                self.nests[id(block)] = self._prepared(block, around)
            except Unsupported as error:
                raise self._refusal(block, str(error)) from error
        return self.nests[id(block)]

    def _prepared(self, block: Block, around: Sequence[Loop]) -> _Nest:
        site = Site.of(block, around, self.config)
        action = action_of(site, self._operand, self._since(block, around))
        fixed = frozenset[str]().union(*(form.fixed for form in action.forms))
        own: dict[str, int] = {}
        for loop in reversed(around):
            is_alone = perfect_nest(loop)[-1].body is block
            if loop.kind is not LoopKind.SERIAL or loop.var.name in fixed or not is_alone:
                break
            own[loop.var.name] = site.loops[loop.var.name]
        return _Nest(action, dict(reversed(own.items())))

    def _since(self, block: Block, around: Sequence[Loop]) -> frozenset[str] | None:
        """The loops since the allocation of what ``block`` alone writes."""
        written = block.writes[0].buffer
        if self.writers[written.name] > 1 or written.name not in self.depths:
            return None
        return frozenset(loop.var.name for loop in around[self.depths[written.name] :])

    def _refusal(self, block: Block, reason: str) -> Unsupported:
        return Unsupported(f"block `{block.name}`: {reason}\n\n{format_stmt(block)}")

    # Memories ---------------------------------------------------------------------------------------------------------

    def _allocated(self, stmt: Alloc, env: Env, around: Sequence[Loop]) -> Iterator[Recorded]:
        allocs, body = allocations(stmt)
        buffers = [alloc.buffer for alloc in allocs]
        if id(stmt) not in self.places:
            together = shared(buffers, body, self.config)
            self.places[id(stmt)] = together, passing(buffers, body, together, self.config)
        together, in_passing = self.places[id(stmt)]
        tops, ends = dict(self.tops), dict(self.ends)
        for buffer in buffers:
            self.depths[buffer.name] = len(around)
            if buffer.name not in together:
                self.bases[buffer.name] = self._taken(buffer, buffer.name in in_passing)
        for buffer in buffers:
            root = buffer.name
            while root in together:
                root = together[root]
            self.bases[buffer.name] = self.bases[root]
        yield from self.visit(body, env, around)
        self.tops, self.ends = tops, ends

    def _taken(self, buffer: Buffer, in_passing: bool) -> int:
        """The first of the tiles that ``buffer`` takes."""
        pad = memories(self.config).pad(buffer.memory)
        if pad is None:
            raise Unsupported(f"{buffer.name} is allocated in {buffer.memory.name}: keep it on the chip (set_scope)")
        depth, size = self.config.depth(pad), tiles_of(buffer, self.config.elements(pad))
        if in_passing:
            start = self.ends[pad] = self.ends.get(pad, depth) - size
            self.passed[pad] = max(self.passed.get(pad, 0), depth - start)
        else:
            start = self.tops.get(pad, 0)
            self.tops[pad] = start + size
            self.highest[pad] = max(self.highest.get(pad, 0), self.tops[pad])
            self.peaks[pad] = max(self.peaks.get(pad, 0), self.tops[pad])
        if (end := self.peaks.get(pad, 0) + self.passed.get(pad, 0)) > depth:
            raise BadProgram(
                f"{buffer.name} ends at tile {end} of {pad.name.lower()}, which has {depth}; use smaller tiles"
            )
        return start

    def _operand(self, buffer: Buffer, pad: Scratchpad) -> Operand:
        """The operand that a parameter is."""
        if buffer not in self.program.params:
            raise Unsupported(f"{buffer.name} is no parameter: keep what is between two stages on the chip (set_scope)")
        *shape, batch, block = extents(buffer)
        operand = self.operands.setdefault(buffer.name, Operand(buffer.name, pad, tuple(shape)))
        if operand.array_shape(self.config) != (*shape, batch, block):
            tile = " x ".join(map(str, self.config.tile_shape(pad)))
            raise Unsupported(f"{buffer.name} is {buffer!r}: its last two dimensions must be a tile of {tile}")
        return operand
