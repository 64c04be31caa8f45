"""Prices kernels for comparisons of whole graphs: cycles on all cores of a target.

A kernel costs its arithmetic and the traffic of its arguments, which overlap little but for elementwise operations on
values that come from far away: ``python -m benchmarks.superopt costs`` compares costs with measured times. A
contraction takes the analytic model's estimate of its register tiles (``cost.kernels``). A transform of small tiles
(Winograd's) is unrolled in registers, where its choices are made while compiling: it costs the values of its stages.
All else are operations of a vector each, functions (``exp``) of many instructions, and elements that are read across
lanes.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from tilewright.cost.kernels import tile_nests, work_of
from tilewright.cost.model import chosen_cycles
from tilewright.cost.recurrence import is_recurrent
from tilewright.cost.reuse import left
from tilewright.cost.work import Work
from tilewright.kernels.contraction import Extents
from tilewright.kernels.nests import Nest, Tiles
from tilewright.kernels.reductions import reduces_rows
from tilewright.kernels.schedules import is_reduction
from tilewright.kernels.transforms import transform_stages
from tilewright.loops.ir import Block, Store
from tilewright.loops.program import Program
from tilewright.schedule.tree import all_blocks
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Read
from tilewright.symbolic.traversal import free_vars, walk
from tilewright.target.target import Target

_WORD = 32
"""Bits of an element in most kernels."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes that a cycle reads or writes of what is not in the near caches: of weights, infinite if they are in these,
    and of values.

    In a run, all weights pass. What a network of more weights than a cache holds reads of them has left that cache
    since the last run, and so has what it writes values over.
    """

    weights: float
    values: float

    @staticmethod
    def of(size: int, target: Target) -> "Rates":
        """Those of a network with ``size`` bytes of weights."""
        part, machine = target.machine.cache_part, target.machine
        if size > part * min(target.l3_bytes, machine.third_share):
            return Rates(machine.memory_bytes, machine.memory_bytes)
        gone = left(size, part * target.l2_bytes)
        return Rates(machine.third_bytes / gone if gone else inf, machine.far_bytes)


def price(naive: Program, target: Target, weights: Collection[str] = (), rates: Rates | None = None) -> float:
    """Cycles of a run of the kernel ``naive``. ``weights``: its parameters that are constants of the model; ``rates``:
    those of the network, by default of one whose weights stay in the near caches."""
    work, known = work_of(naive), rates or Rates.of(0, target)
    size = _read(work, weights)
    streaming = target.machine.cold_start + size / known.weights if size and known.weights < inf else 0.0
    return target.machine.call_cycles + max(_busy(naive, work, target, weights, known), streaming)


def _busy(naive: Program, work: Work, target: Target, weights: Collection[str], rates: Rates) -> float:
    stages = transform_stages(naive)
    near, far = _traffic(work.bytes - _read(work, weights), target, rates)
    moving = near + far
    if stages:
        return _shared(_transform_cycles(naive, stages, target) + moving, target)
    moving += _across(naive, weights, target)
    if is_recurrent(naive):
        return _recurrence_cycles(naive, work, target, weights) + moving
    nests = tile_nests(naive, target) if work.multiply_adds else ()
    if nests:
        tiles = _tile_cycles(nests, target, rates)
        return tiles + (_function_cycles(work, target) + moving) / target.cores
    computing = arithmetic_cycles(work, target) + _row_cycles(naive, target) + _in_turn(naive, target)
    hidden = 0.0 if any(map(is_reduction, all_blocks(naive.body))) else min(far, _plain_cycles(work, target))
    return _shared(computing + moving - hidden, target)


def _tile_cycles(nests: Sequence[Nest], target: Target, rates: Rates) -> float:
    """Cycles of register tiles with weights at hand, and those in which they wait for weights."""
    both = [_reading(target, rate) for rate in (inf, rates.weights)]
    found = [chosen_cycles(one, target, [(_far(one, target), figures) for figures in both]) for one in nests]
    near, whole = map(sum, zip(*found, strict=True))
    return target.machine.product_slack * near + whole - near


def _far(nest: Nest, target: Target) -> Nest:
    """``nest``, whose weights are not in the second cache, however few they are."""
    if not isinstance(nest, Tiles) or not nest.facts.streamed:
        return nest
    return replace(nest, facts=replace(nest.facts, streamed=max(nest.facts.streamed, target.l2_bytes + 1)))


def _reading(target: Target, rate: float) -> Target:
    """``target``, whose tiles read weights from beyond the second cache at ``rate``."""
    apart = rate * target.machine.apart_bytes / target.machine.stream_bytes
    return replace(target, machine=replace(target.machine, stream_bytes=rate, apart_bytes=apart))


def _row_cycles(naive: Program, target: Target) -> float:
    """Cycles to add up the lanes of each row that is reduced."""
    extents = Extents(naive.dims)
    reduced = [block.axes for block in all_blocks(naive.body) if is_reduction(block) and reduces_rows(block)]
    rows = sum(extents.points(axis for axis in axes if axis.kind is IterKind.SPATIAL) for axes in reduced)
    return target.machine.row_sum * rows


def _in_turn(naive: Program, target: Target) -> float:
    """Cycles of sums that are not in lanes, as both of their last axes have one element: each term waits for the sum
    of those before."""
    extents = Extents(naive.dims)
    sums = (block for block in all_blocks(naive.body) if is_reduction(block) and _is_in_turn(block, extents))
    return target.machine.fma_latency * sum(extents.points(block.axes) for block in sums)


def _is_in_turn(block: Block, extents: Extents) -> bool:
    kinds = (IterKind.SPATIAL, IterKind.REDUCE)
    last = [next((axis for axis in reversed(block.axes) if axis.kind is kind), None) for kind in kinds]
    return all(axis is None or extents(axis) == 1 for axis in last)


def arithmetic_cycles(work: Work, target: Target) -> float:
    """Cycles of the operations of ``work`` on one core, in lanes, with data in its first cache."""
    return _plain_cycles(work, target) + _function_cycles(work, target)


def _plain_cycles(work: Work, target: Target) -> float:
    plain = work.multiply_adds + work.others - work.functions
    return target.machine.plain_cycles * plain / target.lanes(_WORD)


def _function_cycles(work: Work, target: Target) -> float:
    return target.machine.function_cycles * work.functions / target.lanes(_WORD)


def _read(work: Work, weights: Collection[str]) -> int:
    """Bytes of ``weights`` that are read: of a table, some rows."""
    return sum(size for name, size in work.touched.items() if name in weights)


def _traffic(size: float, target: Target, rates: Rates) -> tuple[float, float]:
    """Cycles to read and write ``size`` bytes once, in near caches and beyond: other values have their part of the
    second cache, too."""
    near = min(size, target.l2_bytes / 2)
    return near / target.machine.near_bytes, (size - near) / rates.values


def _recurrence_cycles(naive: Program, work: Work, target: Target, weights: Collection[str]) -> float:
    """Cycles of steps that run in sequence: each reads all weights."""
    extents, machine = Extents(naive.dims), target.machine
    ordered = (axis for block in all_blocks(naive.body) for axis in block.axes if axis.kind is IterKind.ORDERED)
    steps, size = max(map(extents, ordered)), _read(work, weights)
    rate = machine.near_bytes if size <= target.l2_bytes else machine.step_bytes
    products = machine.product_slack * work.multiply_adds / target.fma_per_cycle / target.lanes(_WORD)
    beside = replace(work, multiply_adds=0)
    return max(products, steps * size / rate) / target.cores + arithmetic_cycles(beside, target)


def _transform_cycles(naive: Program, stages: Sequence[Block], target: Target) -> float:
    """Cycles of a transform, by the values that its stages compute."""
    extents = Extents(naive.dims)
    values = sum(prod(map(extents.of, region.buffer.shape)) for block in stages for region in block.writes)
    return values / 2 / target.lanes(_WORD) * target.machine.transform_cycles


def _across(naive: Program, weights: Collection[str], target: Target) -> float:
    """Cycles for elements that are read at a distance from lane to lane: copies to another layout, transposes."""
    extents = Extents(naive.dims)
    count = sum(extents.points(one.axes) for one in all_blocks(naive.body) for _ in _distant(one, extents, weights))
    return target.machine.scattered_cycles * count / target.lanes(_WORD)


def _distant(block: Block, extents: Extents, weights: Collection[str]) -> Iterator[Read]:
    """The reads of an elementwise ``block`` that do not follow its last axis by their last index."""
    axes = [axis for axis in block.axes if extents(axis) > 1]
    if is_reduction(block) or not axes or not isinstance(block.body, Store):
        return
    lanes = axes[-1].var
    for read in {one for one in walk(block.body.value) if isinstance(one, Read) and one.source.name not in weights}:
        if lanes in free_vars(read) and lanes not in free_vars(read.indices[-1]):
            yield read


def _shared(cycles: float, target: Target) -> float:
    """The time on all cores, if that is less than on one."""
    return min(cycles, cycles / target.cores + target.machine.region_cycles)
