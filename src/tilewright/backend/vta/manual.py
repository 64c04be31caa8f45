"""The manual page of the instruction set, written from its description: docs/appendix/accelerator-instructions.md."""

from collections.abc import Iterable, Iterator

from tilewright.backend.vta.config import PRESETS, VTA, Config, Scratchpad
from tilewright.backend.vta.fields import Placed
from tilewright.backend.vta.instructions import (
    FORMS,
    OPCODE_BITS,
    AluOperation,
    Instruction,
    places,
    uop_places,
)

_PREFACE = """\
# The accelerator's instruction set

This page is written from `backend/vta/instructions.py` and `config.py` (`backend/vta/manual.py`); a test compares them.
Bits are those of the configuration `{name}`; the widths of addresses follow from the sizes of its memories.
[An accelerator](../accelerator.md) shows programs.

## Order

An instruction goes to the queue of its module: LOAD of inp and wgt to load, STORE to store, all others to compute.
Each module runs its queue in order. Between load and compute, and between compute and store, there are two queues of
tokens, one in each direction. An instruction waits for a token from each queue that it pops from, and puts one, when
it ends, into each that it pushes to. A program means what it does when its instructions run one after another; tokens
must make every order in which the modules may run them equal to this one.

## Memories

A tile is what a memory holds at one address. Addresses in device memory count tiles, too.
"""
_MICRO_OPS = """\
GEMM and ALU run their micro-ops `outer * inner` times; all arithmetic is modulo 2^32:

    for i in range(outer):
        for j in range(inner):
            for uop in uops[uop_begin:uop_end]:
                dst = uop.dst + i * dst_outer + j * dst_inner      (likewise src and wgt)
                GEMM:  acc[dst] += inp[src] @ wgt[wgt].T           (reset: acc[dst] = 0)
                ALU:   acc[dst] = f(acc[dst], acc[src])            (use_immediate: the immediate, not acc[src])
"""


def manual() -> str:
    """The page, in Markdown."""
    parts = [_PREFACE.format(name=VTA.name), _table(_memories(VTA)), "## Configurations\n", _table(_presets())]
    parts += ["## Micro-ops\n", _MICRO_OPS, _table(_fields(uop_places(VTA)))]
    for form in FORMS:
        parts += [
            f"## {form.opcode.name}\n",
            _described(form),
            _table([*_opcode(form), *_fields(places(form, VTA))[1:]]),
        ]
    parts += ["## Operations of ALU\n", _table(_operations())]
    return "\n".join(parts)


def _described(form: type[Instruction]) -> str:
    lines = (form.__doc__ or "").replace("``", "`").split("\n")
    return "\n".join(line.strip() for line in lines).strip() + "\n"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, ("---",) * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n"


def _memories(config: Config) -> Iterator[tuple[str, ...]]:
    yield "number", "memory", "tile", "tiles", "use"
    for pad in Scratchpad:
        shape = " x ".join(map(str, config.tile_shape(pad))) or "1"
        tile = f"{shape} of {config.element_bits(pad)} bits"
        yield str(pad.value), pad.name.lower(), tile, str(config.depth(pad)), pad.text


def _presets() -> Iterator[tuple[str, ...]]:
    yield "name", "batch x block_in x block_out", "uop, inp, wgt, acc in KiB", "MHz", "peak in GOPS"
    for config in PRESETS.values():
        sizes = (config.uop_bytes, config.inp_bytes, config.wgt_bytes, config.acc_bytes)
        yield (
            config.name,
            f"{config.batch} x {config.block_in} x {config.block_out}",
            ", ".join(str(size >> 10) for size in sizes),
            str(config.clock_mhz),
            f"{config.peak_gops:.1f}",
        )


def _opcode(form: type[Instruction]) -> Iterator[tuple[str, ...]]:
    yield "bits", "field", "meaning"
    yield f"0 to {OPCODE_BITS - 1}", "opcode", f"{form.opcode.value}."


def _fields(placed: tuple[Placed, ...]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("bits", "field", "meaning")]
    for place in placed:
        last = place.shift + place.width - 1
        span = f"{place.shift} to {last}" if place.width > 1 else str(last)
        sign = " Signed." if place.field.bits.signed else ""
        rows.append((span, place.field.name, place.field.bits.text + sign))
    return rows


def _operations() -> Iterator[tuple[str, ...]]:
    yield "number", "operation", "result, from `x = acc[dst]` and `y = acc[src]` or the immediate"
    for operation in AluOperation:
        yield str(operation.value), operation.name, operation.text
