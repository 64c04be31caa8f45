"""Tensor intrinsics: hardware operations for ``tensorize``, declared by a tensor expression.

A reduction has three forms (as in the TVM paper): ``compute`` is the whole reduction, ``reset`` stores the identity,
and ``update`` adds to the old values. Each is an ``Intrinsic`` of the loop IR whose description follows from the
expression::

    w, x = te.placeholder((8, 8), name="w"), te.placeholder((8, 8), name="x")
    k = te.reduce_axis((0, 8), name="k")
    y = te.compute((8, 8), lambda i, j: te.sum(w[i, k] * x[j, k], axis=k), name="y")
    gemm8x8 = decl_tensor_intrin(y, "gemm8x8", reset="fill_zero", update="fused_gemm8x8_add")
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadProgram
from tilewright.base.names import shown
from tilewright.loops.ir import Block, Loop
from tilewright.loops.lower import lower
from tilewright.loops.program import Intrinsic, Program
from tilewright.loops.visit import walk
from tilewright.schedule.tree import all_blocks, nest
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """The pattern of ``tensorize`` (``description``: one nest around one block), and its replacement."""

    name: str
    description: Program
    compute: Intrinsic | None = None
    """The whole description; inputs, then outputs."""
    reset: Intrinsic | None = None
    """The init of a reduction; outputs only."""
    update: Intrinsic | None = None
    """The reduction without its init; inputs, then outputs."""
    multiply_adds: int = 1
    """Vector multiply-adds that take as long as an update: for the cost model."""
    temporaries: int = 0
    """Vector registers that an update needs besides those of its operands: for the cost model."""
    dense: frozenset[str] = frozenset()
    """Parameters whose rows are rows of the buffer that is passed, with nothing between them in memory."""

    @property
    def block(self) -> Block:
        """The block of the description."""
        return all_blocks(self.description.body)[0]


@dataclass(frozen=True, slots=True)
class IntrinsicSet:
    """A library of intrinsics, by name."""

    intrinsics: tuple[TensorIntrinsic, ...] = ()
    families: tuple[Callable[[str], TensorIntrinsic | None], ...] = ()
    """Each makes the intrinsic of a name that says what it computes, and None of other names."""

    def get(self, name: str) -> TensorIntrinsic | None:
        """The intrinsic ``name``, or None."""
        listed = next((intrinsic for intrinsic in self.intrinsics if intrinsic.name == name), None)
        made = (make(name) for make in self.families if listed is None)
        return listed or next((intrinsic for intrinsic in made if intrinsic is not None), None)

    @property
    def forms(self) -> tuple[Intrinsic, ...]:
        """All intrinsics that programs may call."""
        forms = (form for i in self.intrinsics for form in (i.compute, i.reset, i.update))
        return tuple(form for form in forms if form is not None)

    def with_intrinsic(self, intrinsic: TensorIntrinsic) -> "IntrinsicSet":
        """This set with ``intrinsic`` in place of another one of the same name."""
        others = tuple(other for other in self.intrinsics if other.name != intrinsic.name)
        return dataclasses.replace(self, intrinsics=(*others, intrinsic))


def decl_tensor_intrin(
    output: Tensor,
    name: str,
    *,
    reset: str | None = None,
    update: str | None = None,
    implementations: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    bounds: Mapping[str, int] | None = None,
) -> TensorIntrinsic:
    """Declare the intrinsic that computes ``output`` from its placeholders.

    ``name``: the form that computes the whole; a reduction that is also split outside of the intrinsic needs ``reset``
    and ``update`` too. ``implementations``: LLVM IR text by the name of the form (see ``Intrinsic``); without one, code
    is generated from the description. ``features``: required processor features (``avx512vnni``). ``bounds``: the
    largest values of dimensions that are known at run time only, by name. Raises ``BadProgram`` unless ``output`` is
    one compute over placeholders, of a shape that is constant but for these.
    """
    called = [one for one in (name, reset, update) if one is not None]
    for one in called:
        if not (one.isidentifier() and one.isascii()) or called.count(one) > 1:
            raise BadProgram(f"{shown(one)} can't name a form; use letters, digits and underscores, and each name once")
    description = lower([output], name, dims=bounds)
    block = _single_block(description)
    if block.init is None and (reset or update):
        raise BadProgram(f"{name} is no reduction, so it has no reset and no update")
    texts = dict(implementations or {})

    def form(called: str | None, program: Program) -> Intrinsic | None:
        if called is None:
            return None
        text = texts.pop(called, "")
        return Intrinsic(called, dataclasses.replace(program, name=called), text, tuple(features) if text else ())

    declared = TensorIntrinsic(
        name,
        description,
        form(name, description),
        form(reset, _reset_program(description, block)),
        form(update, _update_program(description, block)),
    )
    if texts:
        raise BadProgram(f"{name} has no form called {', '.join(texts)}; an implementation has the name of a form")
    return declared


def _single_block(description: Program) -> Block:
    blocks = all_blocks(description.body)
    extents = [stmt.extent for stmt in walk(description.body) if isinstance(stmt, Loop)]
    bounded = {dim.var for dim in description.dims if dim.bound is not None}
    if len(blocks) != 1 or not all(isinstance(extent, Const) or extent in bounded for extent in extents):
        raise BadProgram(f"the intrinsic {description.name} must be one te.compute of constant shape over placeholders")
    return blocks[0]


def _reset_program(description: Program, block: Block) -> Program:
    """``output = identity``, over the spatial axes."""
    if block.init is None:
        return description
    spatial = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if a.kind is IterKind.SPATIAL]
    axes = tuple(axis for axis, _ in spatial)
    own = dataclasses.replace(
        block, axes=axes, bindings=tuple(b for _, b in spatial), reads=(), body=block.init, init=None
    )
    bindings = frozenset(own.bindings)
    loops = [stmt for stmt in walk(description.body) if isinstance(stmt, Loop) and stmt.var in bindings]
    return dataclasses.replace(description, params=description.results, body=nest(loops, own))


def _update_program(description: Program, block: Block) -> Program:
    """``output = output + ...``, without the init."""
    loops = [stmt for stmt in walk(description.body) if isinstance(stmt, Loop)]
    return dataclasses.replace(description, body=nest(loops, dataclasses.replace(block, init=None)))
