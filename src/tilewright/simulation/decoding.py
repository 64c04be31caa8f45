"""AArch64 instructions as a processor's pipelines see them: what they read, write and occupy. Disassembled by Capstone.

A class of instructions without a line below is taken for simple arithmetic, on integers or vectors by its registers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from capstone import CS_ARCH_ARM64, CS_MODE_ARM, Cs, CsInsn


class Kind(Enum):
    """Classes of instructions that differ in their latency, or in what they occupy."""

    INTEGER = auto()
    MULTIPLY = auto()
    DIVIDE = auto()
    BRANCH = auto()
    LOAD = auto()
    BROADCAST = auto()
    """A load of one element to all lanes, or to one of several."""
    STORE = auto()
    PREFETCH = auto()
    FMA = auto()
    DOT = auto()
    """Sums of products of bytes or halves: as a multiply-add, but for their latency on some cores."""
    FLOAT = auto()
    """Additions, multiplications, comparisons and conversions of floats."""
    FLOAT_DIVIDE = auto()
    VECTOR = auto()
    """Moves, permutations, and arithmetic of integers in vectors."""
    TO_VECTOR = auto()
    """From a general register."""
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Instruction:
    """``reads``, ``writes``: numbered registers, without their widths; ``added``: the register that a multiply-add adds
    to; ``bits``: of the vectors that it works on; ``bytes``: that it loads or stores. ``target``: of a branch whose
    code says it."""

    address: int
    kind: Kind
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    added: str = ""
    bits: int = 0
    bytes: int = 0
    target: int | None = None


_NAMES: Mapping[Kind, str] = {
    Kind.MULTIPLY: "madd msub mul mneg smull umull smaddl umaddl smulh umulh",
    Kind.DIVIDE: "sdiv udiv",
    Kind.BRANCH: "b bl blr br ret cbz cbnz tbz tbnz",
    Kind.BROADCAST: "ld1r ld2r ld3r ld4r",
    Kind.PREFETCH: "prfm prfum",
    Kind.FMA: "fmla fmls fmadd fmsub fnmadd fnmsub",
    Kind.DOT: "sdot udot usdot sudot smmla ummla usmmla bfdot bfmmla bfmlalb bfmlalt mla mls",
    Kind.FLOAT: "scvtf ucvtf fadd fsub fmul fnmul fmulx fmax fmin fmaxnm fminnm fabs fneg fabd faddp frecpe frecps "
    "frsqrte frsqrts",
    Kind.FLOAT_DIVIDE: "fdiv fsqrt",
    Kind.NOTHING: "nop hint",
}
_KINDS: Mapping[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_VECTORS = "bhsdqv"
_LOADED: Mapping[str, int] = {"b": 1, "h": 2, "s": 4, "d": 8, "q": 16, "w": 4, "x": 8}
"""Bytes of a register, by the first letter of its name."""
_ARRANGED = re.compile(r"v\d+\.(\d+)([bhsd])")
_SINGLE = re.compile(r"\}\[\d+\]")
_WIDTH = re.compile(r"([bh])$|([bh])ur?$")


def decoded(code: bytes, address: int) -> tuple[Instruction, ...]:
    """The instructions of ``code``, which is at ``address``."""
    return tuple(_instructions(code, address))


def _instructions(code: bytes, address: int) -> Iterator[Instruction]:
    machine = Cs(CS_ARCH_ARM64, CS_MODE_ARM)
    machine.detail = True
    at = 0
    while at < len(code):
        for found in machine.disasm(code[at:], address + at):
            yield _instruction(found)
            at = found.address - address + 4
        if at < len(code):  # one that Capstone does not know
            yield Instruction(address + at, Kind.VECTOR, (), (), bits=128)
            at += 4


def _instruction(found: CsInsn) -> Instruction:
    read, written = found.regs_access()
    reads = tuple(dict.fromkeys(name for one in read if (name := _register(found.reg_name(one)))))
    writes = tuple(dict.fromkeys(name for one in written if (name := _register(found.reg_name(one)))))
    kind = _kind(found, reads, writes)
    added = ""
    if kind in (Kind.FMA, Kind.DOT):
        added = _operand(found, 3) if found.mnemonic.endswith(("add", "sub")) else _operand(found, 0)
    if added and added not in reads:
        reads = (*reads, added)
    moved = _moved_bytes(found, kind) if kind in (Kind.LOAD, Kind.BROADCAST, Kind.STORE) else 0
    target = _target(found) if kind is Kind.BRANCH else None
    return Instruction(found.address, kind, reads, writes, added, _bits(found), moved, target)


def _kind(found: CsInsn, reads: tuple[str, ...], writes: tuple[str, ...]) -> Kind:
    name = found.mnemonic.partition(".")[0]
    if name in _KINDS:
        return _KINDS[name]
    if name.startswith("ld"):
        return Kind.BROADCAST if _SINGLE.search(found.op_str) else Kind.LOAD
    if name.startswith("st"):
        return Kind.STORE
    if name.startswith(("fcm", "frint", "fcvt", "fac", "fmaxv", "fminv", "fmaxnmv", "fminnmv")):
        return Kind.FLOAT
    vectors = [one.startswith("v") for one in (*reads, *writes)]
    if any(one.startswith("v") for one in writes) and reads and not any(one.startswith("v") for one in reads):
        return Kind.TO_VECTOR
    return Kind.VECTOR if any(vectors) else Kind.INTEGER


def _register(name: str) -> str:
    """The register without its width: ``q3``, ``s3`` and ``v3`` are ``v3``; empty for the one that is zero."""
    letter, number = name[:1], name[1:]
    if number.isdigit():
        return f"v{number}" if letter in _VECTORS else f"x{number}" if letter in "wx" else name
    return {"fp": "x29", "lr": "x30", "wsp": "sp", "xzr": "", "wzr": ""}.get(name, name)


def _operand(found: CsInsn, place: int) -> str:
    operands = [one.strip() for one in found.op_str.split(",")]
    return _register(operands[place].partition(".")[0]) if place < len(operands) else ""


def _bits(found: CsInsn) -> int:
    """Bits of the vectors that it works on; 64 for a scalar."""
    arranged = _ARRANGED.search(found.op_str)
    if arranged is not None:
        return 8 * int(arranged[1]) * _LOADED[arranged[2]]
    return 128 if found.op_str.startswith("q") else 64


def _moved_bytes(found: CsInsn, kind: Kind) -> int:
    name, operands = found.mnemonic, found.op_str
    if operands.startswith("{"):
        listed = operands.partition("}")[0]
        count = listed.count("v")
        arranged = _ARRANGED.search(operands)
        if "-" in listed:
            first, last = re.findall(r"v(\d+)", listed)[:2]
            count = int(last) - int(first) + 1
        if arranged is None or kind is Kind.BROADCAST or _SINGLE.search(operands):
            return 16 if arranged is None else count * _LOADED[arranged[2]]
        return count * int(arranged[1]) * _LOADED[arranged[2]]
    width = _LOADED.get(operands[:1], 8)
    if operands[:1] in "wx" and (narrow := _WIDTH.search(name)) is not None:
        width = _LOADED[narrow[1] or narrow[2]]
    return 2 * width if name.startswith(("ldp", "stp", "ldnp", "stnp")) else width


def _target(found: CsInsn) -> int | None:
    last = found.op_str.rpartition("#")[2]
    return int(last, 16) if last.startswith("0x") else None
