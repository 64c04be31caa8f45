"""What a block becomes: LOADs, STOREs, GEMM or operations of ALU, by the memories that it accesses.

An action is prepared once, and makes steps for each environment, with the places of buffers on the chip.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from tilewright.backend.vta.compiler.elementwise import Chain, chain_of, number
from tilewright.backend.vta.compiler.forms import Env, Form, Steps
from tilewright.backend.vta.compiler.micro_loops import micro_loops
from tilewright.backend.vta.compiler.nests import Box, Span, boxes
from tilewright.backend.vta.compiler.recording import Recorded, Tiles
from tilewright.backend.vta.compiler.site import Site, buffer_of
from tilewright.backend.vta.compiler.tiles import Tiled, lanes_of, require_whole
from tilewright.backend.vta.compiler.transfers import Place, loads, stores
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import AluOperation, Uop
from tilewright.backend.vta.kernels import AluKernel, GemmKernel, Loop
from tilewright.backend.vta.memories import gemm
from tilewright.backend.vta.program import Call as Run
from tilewright.backend.vta.program import Operand, Transfer
from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Buffer, Call, Store
from tilewright.symbolic.expr import TRUE, Cast, Const, Expr, Read, Select

Bases = Mapping[str, int]
"""The first tile of each buffer on the chip, by name."""
OperandOf = Callable[[Buffer, Scratchpad], Operand]
"""The operand that a buffer in device memory is."""


class Action(Protocol):
    """What a block does."""

    @property
    def forms(self) -> Sequence[Form]:
        """All indices and conditions."""
        ...

    def steps(self, loops: Mapping[str, int], env: Env, bases: Bases) -> Iterator[Recorded]:
        """The steps for an environment; ``loops``: those that are the instructions' own."""
        ...


def action_of(site: Site, operand_of: OperandOf, since: Set[str] | None) -> Action:
    """The action of a block. ``since``: the loops since the allocation of what it alone writes; None: others write it.

    Raises ``Unsupported`` for what the accelerator can't do.
    """
    effect, condition = site.body()
    inside = site.conditions(condition)
    if isinstance(effect, Call):
        return _product(site, effect, inside)
    near = site.pad(effect.buffer)
    if near is None:
        return _stored(site, effect, inside, operand_of)
    value, where = _unguarded(effect.value)
    if isinstance(value, Read) and site.pad(buffer_of(value)) is None:
        return _loaded(site, effect, value, (inside, site.conditions(where)), operand_of, since)
    if near is not Scratchpad.ACC:
        raise Unsupported(f"it computes in {near.name.lower()}, which only copies of device memory are loaded to")
    return _computed(site, effect, inside)


def _unguarded(value: Expr) -> tuple[Expr, Expr]:
    """What is copied, and where; elsewhere are zeros."""
    where: Expr = TRUE
    if isinstance(value, Select) and isinstance(value.b, Const) and value.b.value == 0:
        where, value = value.condition, value.a
    while isinstance(value, Cast):
        value = value.a
    return value, where


# Transfers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loading:
    pad: Scratchpad
    operand: Operand
    near: Tiled
    far: Tiled
    inside: Sequence[Form]
    valid: Sequence[Form]
    since: Set[str] | None
    extents: Mapping[str, int]

    @property
    def forms(self) -> Sequence[Form]:
        return self.near.form, self.far.form, *self.inside, *self.valid

    def steps(self, loops: Mapping[str, int], env: Env, bases: Bases) -> Iterator[Recorded]:
        for box in self._boxes(loops, env):
            require_whole(box, self.near.lanes, self.extents)
            (near, steps), far = self.near.start(box), self.far.start(box)
            place = Place(near + bases[self.near.buffer.name], steps)
            for load in loads(self.pad, box, place, Place(*far)):
                tiles = Tiles(self.pad.storage, load.sram, load.sram + load.tiles)
                yield Recorded(Transfer(self.operand, load), writes=(tiles,))

    def _boxes(self, loops: Mapping[str, int], env: Env) -> Sequence[Box]:
        """With zeros where nothing is copied, if that does no harm: rectangles are then larger, and fewer."""
        if self.inside and self.since is not None and self.since <= loops.keys():
            outer = [form for form in self.inside if not form.at(env)[1]]
            inner = [form for form in self.inside if form.at(env)[1]]
            filled = list(boxes(loops, outer, [*inner, *self.valid], env))
            if all(_stop(*self.near.start(box), box) <= self.near.tiles for box in filled):
                return filled
        return list(boxes(loops, self.inside, self.valid, env))


@dataclass(frozen=True, slots=True)
class _Storing:
    operand: Operand
    near: Tiled
    far: Tiled
    inside: Sequence[Form]
    extents: Mapping[str, int]

    @property
    def forms(self) -> Sequence[Form]:
        return self.near.form, self.far.form, *self.inside

    def steps(self, loops: Mapping[str, int], env: Env, bases: Bases) -> Iterator[Recorded]:
        for box in boxes(loops, self.inside, (), env):
            require_whole(box, self.near.lanes, self.extents)
            (near, steps), far = self.near.start(box), self.far.start(box)
            for store in stores(box, Place(near + bases[self.near.buffer.name], steps), Place(*far)):
                tiles = Tiles(Scratchpad.ACC, store.sram, store.sram + store.tiles)
                yield Recorded(Transfer(self.operand, store), reads=(tiles,))


def _loaded(
    site: Site,
    effect: Store,
    value: Read,
    conditions: tuple[Sequence[Form], Sequence[Form]],
    operand_of: OperandOf,
    since: Set[str] | None,
) -> Action:
    pad, source = site.pad(effect.buffer), buffer_of(value)
    assert pad is not None
    if pad is Scratchpad.ACC and source.dtype.numpy == site.config.dtype(Scratchpad.OUT):
        pad = Scratchpad.ACC8
    _require_type(source, pad, site.config)
    size = site.config.elements(pad)
    near = _with_lanes(site, effect, size)
    far = site.tiled(value, near.lanes, size)
    return _Loading(pad, operand_of(source, pad), near, far, *conditions, since, site.loops)


def _stored(site: Site, effect: Store, inside: Sequence[Form], operand_of: OperandOf) -> Action:
    value = effect.value
    while isinstance(value, Cast):
        value = value.a
    if not isinstance(value, Read) or site.pad(buffer_of(value)) is not Scratchpad.ACC:
        raise Unsupported(
            f"it stores `{effect.value}` to device memory; STORE copies what a buffer in acc holds: compute it there"
        )
    _require_type(effect.buffer, Scratchpad.OUT, site.config)
    size = site.config.elements(Scratchpad.OUT)
    near = _with_lanes(site, value, size)
    far = site.tiled(effect, near.lanes, size)
    return _Storing(operand_of(effect.buffer, Scratchpad.OUT), near, far, inside, site.loops)


def _with_lanes(site: Site, access: Read | Store, size: int) -> Tiled:
    form, buffer = site.form(access), buffer_of(access)
    return Tiled(buffer, form, size, lanes_of(form, site.loops, size, buffer.name))


def _require_type(buffer: Buffer, pad: Scratchpad, config: Config) -> None:
    if buffer.dtype.numpy != config.dtype(pad):
        raise Unsupported(
            f"{buffer.name} has elements of {buffer.dtype}; transfers of {pad.name.lower()} move {config.dtype(pad)}"
        )


# Products -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """GEMM, after its reset where a sum begins."""

    acc: Tiled
    operands: tuple[Tiled, Tiled] | None
    """inp and wgt; None only resets."""
    inside: Sequence[Form]
    first: Sequence[Form] | None
    """Where a sum begins."""
    config: Config

    @property
    def forms(self) -> Sequence[Form]:
        operands = () if self.operands is None else (operand.form for operand in self.operands)
        return self.acc.form, *operands, *self.inside, *(self.first or ())

    def steps(self, loops: Mapping[str, int], env: Env, bases: Bases) -> Iterator[Recorded]:
        for box in boxes(loops, self.first, (), env) if self.first is not None else ():
            yield from reset_steps(self.acc, box, bases, self.config)
        if self.operands is not None:
            for box in boxes(loops, self.inside, (), env):
                yield from self._products(box, bases)

    def _products(self, box: Box, bases: Bases) -> Iterator[Recorded]:
        assert self.operands is not None
        named = (self.acc, *self.operands)
        starts = [_on_chip(tiled, box, bases) for tiled in named]
        (dst, dst_steps), (src, src_steps), (wgt, wgt_steps) = starts
        loops = [
            Loop(span.count, dst_steps.get(name, 0), src_steps.get(name, 0), wgt_steps.get(name, 0))
            for name, span in box.spans.items()
        ]
        written, *read = (
            Tiles(pad, *_range(start, steps, box))
            for pad, (start, steps) in zip((Scratchpad.ACC, Scratchpad.INP, Scratchpad.WGT), starts, strict=True)
        )
        for made in micro_loops(loops, Uop(dst, src, wgt), Scratchpad.INP, self.config):
            kernel = GemmKernel(made.uops, made.outer, made.inner)
            yield Recorded(Run(kernel), reads=(written, *read), writes=(written,))


def reset_steps(acc: Tiled, box: Box, bases: Bases, config: Config) -> Iterator[Recorded]:
    """Set the accumulators of a box to 0."""
    start, steps = _on_chip(acc, box, bases)
    written = Tiles(Scratchpad.ACC, *_range(start, steps, box))
    for made in micro_loops(_single(box, steps), Uop(start, start), Scratchpad.ACC, config):
        bare = [replace(loop, src=0) for loop in (made.outer, made.inner)]
        yield Recorded(Run(GemmKernel(made.uops, *bare, reset=True)), writes=(written,))


def _product(site: Site, effect: Call, inside: Sequence[Form]) -> Action:
    intrinsic, config = gemm(site.config), site.config
    acc = site.region(effect.args[-1], config.elements(Scratchpad.ACC))
    operands = None
    forms = (intrinsic.compute, intrinsic.reset, intrinsic.update)
    compute, reset, update = (form.name if form is not None else "" for form in forms)
    if effect.callee not in (compute, reset, update):
        raise Unsupported(f"the accelerator has no {effect.callee}; its intrinsic is {intrinsic.name} (gemm(config))")
    if effect.callee != reset:
        inp, wgt = effect.args[:2]
        operands = (
            site.region(inp, config.elements(Scratchpad.INP)),
            site.region(wgt, config.elements(Scratchpad.WGT)),
        )
        for tiled, pad in zip((*operands, acc), (Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC), strict=True):
            if site.pad(tiled.buffer) is not pad:
                raise Unsupported(
                    f"GEMM takes {tiled.buffer.name} from {tiled.buffer.memory.name}, not from {pad.name.lower()}; "
                    "let it read a copy (cache_read), or set the scope"
                )
    init = site.init()
    first = inside if effect.callee in (compute, reset) else None if init is None else site.conditions(init[1])
    return _Product(acc, operands, inside, first, config)


# ALU ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Computed:
    """A number or another accumulator, and operations on it."""

    dst: Tiled
    chain: Chain
    sources: Mapping[Read, Tiled]
    inside: Sequence[Form]
    config: Config
    extents: Mapping[str, int]
    before: "_Computed | None" = field(default=None)
    """What the first iteration of a reduction does."""

    @property
    def forms(self) -> Sequence[Form]:
        own = self.dst.form, *(tiled.form for tiled in self.sources.values()), *self.inside
        return own if self.before is None else (*own, *self.before.forms)

    def steps(self, loops: Mapping[str, int], env: Env, bases: Bases) -> Iterator[Recorded]:
        if self.before is not None:
            yield from self.before.steps(loops, env, bases)
        for box in boxes(loops, self.inside, (), env):
            require_whole(box, self.dst.lanes, self.extents)
            self._require_once(box, bases)
            yield from self._started(box, bases)
            for one in self.chain.operations:
                yield from self._applied(one.operation, one.operand, box, bases)

    def _require_once(self, box: Box, bases: Bases) -> None:
        """Raises ``Unsupported`` for operations that loops repeat, unless each adds to what there is (or a maximum)."""
        dst = _on_chip(self.dst, box, bases)
        repeated = [name for name, span in self._moving(box) if span.count > 1 and name not in dst[1]]
        start, operations = self.chain.start, self.chain.operations
        is_reduction = (
            isinstance(start, Read)
            and _on_chip(self.sources[start], box, bases) == dst
            and len(operations) == 1
            and isinstance(operations[0].operand, Read)
        )
        if repeated and operations and not is_reduction:
            raise Unsupported(f"`{repeated[0]}` repeats operations of ALU; a reduction has one, of two accumulators")

    def _moving(self, box: Box) -> list[tuple[str, Span]]:
        """The loops over tiles."""
        return [(name, span) for name, span in box.spans.items() if name not in self.dst.lanes]

    def _started(self, box: Box, bases: Bases) -> Iterator[Recorded]:
        """Bring the start of the chain to its place, unless it is there."""
        start = self.chain.start
        if isinstance(start, int):
            yield from reset_steps(self.dst, box, bases, self.config)
            for one in number(start):
                yield from self._applied(one.operation, one.operand, box, bases)
        elif _on_chip(self.sources[start], box, bases) != _on_chip(self.dst, box, bases):
            yield from reset_steps(self.dst, box, bases, self.config)
            yield from self._applied(AluOperation.ADD, start, box, bases)

    def _applied(self, operation: AluOperation, operand: Read | int, box: Box, bases: Bases) -> Iterator[Recorded]:
        dst, steps = _on_chip(self.dst, box, bases)
        written = Tiles(Scratchpad.ACC, *_range(dst, steps, box))
        if isinstance(operand, int):
            for made in micro_loops(_single(box, steps), Uop(dst, dst), Scratchpad.ACC, self.config):
                kernel = AluKernel(made.uops, operation, made.outer, made.inner, operand)
                yield Recorded(Run(kernel), reads=(written,), writes=(written,))
            return
        src, src_steps = _on_chip(self.sources[operand], box, bases)
        read = Tiles(Scratchpad.ACC, *_range(src, src_steps, box))
        loops = [Loop(span.count, steps.get(name, 0), src_steps.get(name, 0)) for name, span in self._moving(box)]
        for made in micro_loops(loops, Uop(dst, src), Scratchpad.ACC, self.config):
            kernel = AluKernel(made.uops, operation, made.outer, made.inner)
            yield Recorded(Run(kernel), reads=(written, read), writes=(written,))


def _computed(site: Site, effect: Store, inside: Sequence[Form]) -> Action:
    init = site.init()
    before = None
    if init is not None:
        started, condition = init
        if not isinstance(started, Store):
            raise Unsupported("its reduction begins with a call")
        before = _one_computed(site, started, site.conditions(condition))
    return replace(_one_computed(site, effect, inside), before=before)


def _one_computed(site: Site, effect: Store, inside: Sequence[Form]) -> "_Computed":
    size = site.config.elements(Scratchpad.ACC)
    dst, chain = _with_lanes(site, effect, size), chain_of(effect.value, site.config)
    read = [one for one in (chain.start, *(each.operand for each in chain.operations)) if isinstance(one, Read)]
    for one in read:
        if site.pad(buffer_of(one)) is not Scratchpad.ACC:
            raise Unsupported(
                f"ALU takes {buffer_of(one).name} from {buffer_of(one).memory.name}: load it to acc first"
            )
    sources = {one: site.tiled(one, dst.lanes, size) for one in read}
    return _Computed(dst, chain, sources, (*inside, *site.conditions(chain.where)), site.config, site.loops)


# Steps of boxes -------------------------------------------------------------------------------------------------------


def _on_chip(tiled: Tiled, box: Box, bases: Bases) -> tuple[int, Steps]:
    start, steps = tiled.start(box)
    return start + bases[tiled.buffer.name], steps


def _single(box: Box, steps: Steps) -> list[Loop]:
    """The loops of an operation on one accumulator; those that would only repeat it are left out."""
    return [Loop(box.spans[name].count, dst=step, src=step) for name, step in steps.items()]


def _range(start: int, steps: Steps, box: Box) -> tuple[int, int]:
    """The first tile and the end of those that a box accesses."""
    last = [step * (box.spans[name].count - 1) for name, step in steps.items()]
    return start + sum(min(move, 0) for move in last), start + sum(max(move, 0) for move in last) + 1


def _stop(start: int, steps: Steps, box: Box) -> int:
    return _range(start, steps, box)[1]
